"""What a plan will take and how long a run will last, said before anything is tried."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from wavefit.errors import InputError
from wavefit.plan.memory import Memory, on_device, on_host
from wavefit.plan.roofline import roofline
from wavefit.plan.torch_time import torch_time
from wavefit.plan.trace import Trace, trace
from wavefit.plan.transfer import transfer
from wavefit.schema import Device, Model, Plan, Prediction

Refine = Callable[[Device, Plan, Prediction], Prediction]
"""What a route that knows its own kernels makes of a general prediction."""


class Planner:
    """Predictions for one model. Its graph is walked once for each set of shapes.

    Args:
        model: whose graph.
        refine: is given every prediction; None: they stay as they are.
    """

    def __init__(self, model: Model, refine: Refine | None = None) -> None:
        self.model = model
        self._refine = refine
        self._traces: dict[tuple[tuple[str, tuple[int, ...]], ...], Trace | None] = {}

    def trace(self, shapes: Mapping[str, tuple[int, ...]]) -> Trace | None:
        """The graph at these shapes; None where they cannot go through it."""
        key = tuple(sorted((name, tuple(shape)) for name, shape in shapes.items()))
        if key not in self._traces:
            try:
                self._traces[key] = trace(self.model, shapes)
            except InputError:
                self._traces[key] = None
        return self._traces[key]

    def explain(self, shapes: Mapping[str, tuple[int, ...]]) -> Trace:
        """As :meth:`trace`.

        Raises:
            InputError: the shapes cannot go through the graph; the message says where.
        """
        return self.trace(shapes) or trace(self.model, shapes)

    def predict(self, device: Device, plan: Plan) -> Prediction | None:
        """Memory and time of one plan; None where the graph cannot be walked at its shapes."""
        general = self._predict(device, plan)
        if general is None or self._refine is None:
            return general
        return self._refine(device, plan, general)

    def own_time(self, device: Device, plan: Plan, prediction: Prediction) -> bool:
        """Whether the total is what ``refine`` makes of the route's own kernels, not the roofline's."""
        general = self._predict(device, plan)
        return general is not None and general.total_s != prediction.total_s

    def _predict(self, device: Device, plan: Plan) -> Prediction | None:
        """As for any route that does its work well.

        A figure is None where a peak that it needs is not known. ``total_s`` is compute and memory by the roofline of
        every node, launches where their cost is known, and transfer where there is a link. For PyTorch on a GPU whose
        host side was measured see :mod:`wavefit.plan.torch_time`.
        """
        found = self.trace(plan.shapes)
        if found is None:
            return None
        moved = transfer(found, device, self.model.parameters, plan.precision)
        roof = roofline(found, device, plan.precision, fused=is_fused(plan))
        total = roof.total_s
        if total is not None and moved.seconds is not None:
            total += moved.seconds
        elif moved.unified is not True:
            total = None
        needed = memory(found, self.model, device, plan).peak_bytes
        timed = torch_time(found, device, plan, roof) if plan.route == "torch_gpu" else None
        if timed is not None:
            return msgspec.structs.replace(timed, peak_bytes=needed)
        return Prediction(
            peak_bytes=needed,
            compute_s=roof.compute_s,
            memory_s=roof.memory_s,
            transfer_s=moved.seconds,
            launch_s=roof.launch_s,
            total_s=total,
        )


def predict(model: Model, device: Device, plan: Plan) -> Prediction | None:
    """One plan's prediction. For many plans of one model keep a :class:`Planner`."""
    return Planner(model).predict(device, plan)


def memory(found: Trace, model: Model, device: Device, plan: Plan) -> Memory:
    """One plan's memory: the host's where it runs on the CPU, else the device's."""
    if device.kind == "cpu":
        return on_host(found, model, plan.batch, plan.route)
    return on_device(found, model, device, plan)


def is_fused(plan: Plan) -> bool:
    """Whether the route's compiler runs element-wise nodes inside the kernel before them; PyTorch's eager does not."""
    if plan.route.startswith("torch"):
        return plan.options.get("mode") == "compile"
    return True
