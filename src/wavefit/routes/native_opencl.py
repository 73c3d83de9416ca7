"""wavefit's own engine on OpenCL: any GPU with an OpenCL driver, also those that ROCm, MIGraphX and Triton refuse.

Options of a plan: ``storage=fp16`` keeps an fp32 file's tensors in 16 bits between kernels, which compute in float.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from wavefit.device.user_cache import user_cache
from wavefit.errors import InputError, RouteError
from wavefit.model.shapes import bind
from wavefit.routes import _packages
from wavefit.routes._tuning import Tuned, Tuning
from wavefit.routes.session import Arrays, Session
from wavefit.schema import (
    Device,
    Model,
    Placement,
    Plan,
    Precision,
    Prediction,
    ProviderShare,
    Request,
    Unsupported,
)

if TYPE_CHECKING:
    from wavefit.child.main import Reporter
    from wavefit.native.opencl.chooser import Chooser
    from wavefit.native.operation import UnsupportedNode
    from wavefit.native.program import Program

TUNES = True

_NAME = "native_opencl"
_PROVIDER = "native OpenCL"
_INSTALL = "pip install 'wavefit[opencl]'"
_SLOWEST = 10


def plans(devices: Sequence[Device], model: Model, request: Request) -> list[Plan | Unsupported]:
    missing = [name for name in ("pyopencl", "onnx-ir") if _packages.version(name) is None]
    if missing:
        return [_refuse(None, f"{' and '.join(missing)} is not installed", _INSTALL)]
    if not devices:
        return [_refuse(None, "there is no device", "wavefit doctor says what this machine has")]
    return [answer for device in devices for answer in _plans(device, model, request)]


def _plans(device: Device, model: Model, request: Request) -> list[Plan | Unsupported]:
    problem = _problem(device, model, request)
    if problem:
        return [_refuse(device, *problem)]
    return [_plan(device, model, request, precision) for precision in request.precisions]


def _problem(device: Device, model: Model, request: Request) -> tuple[str, str] | None:
    from wavefit.native.opencl.devices import runtime

    if device.kind == "cpu" and _NAME not in request.routes:
        return (
            "OpenCL on a CPU is for trying the engine, not for speed",
            f"add --route {_NAME} to run it all the same",
        )
    if runtime(device) is None:
        fix = "pip install 'wavefit[pocl]'" if device.kind == "cpu" else "wavefit doctor says what is missing"
        return f"no OpenCL driver shows {device.id}", fix
    try:
        stuck = _unsupported(model.path, _frozen(bind(model, request.batches[0], request.sizes)))
    except InputError as error:
        return error.what, error.fix or "use another route"
    if stuck:
        more = f", and {len(stuck) - 1} more" if len(stuck) > 1 else ""
        first = stuck[0]
        return f"{first.op} node {first.node!r}{more}: {first.reason}", first.fix
    return None


_Shapes = tuple[tuple[str, tuple[int, ...]], ...]


def _frozen(shapes: Mapping[str, tuple[int, ...]]) -> _Shapes:
    return tuple(sorted(shapes.items()))


@lru_cache(maxsize=4)
def _unsupported(path: str, shapes: _Shapes) -> tuple[UnsupportedNode, ...]:
    """The nodes that stand in the way; asked for every device and precision alike."""
    from wavefit.native.import_onnx import load

    graph = load(Path(path), dict(shapes))
    return graph if isinstance(graph, tuple) else ()


def _plan(device: Device, model: Model, request: Request, precision: Precision) -> Plan | Unsupported:
    options: dict[str, str | int | float | bool] = {}
    if precision != model.precision:
        if (model.precision, precision) != ("fp32", "fp16"):
            reason = f"the engine does not make {precision} of a file in {model.precision}"
            return _refuse(device, reason, f"give a file in {precision}", precision)
        options["storage"] = "fp16"
    return Plan(
        route=_NAME,
        device=device.id,
        precision=precision,
        batch=request.batches[0],
        shapes=bind(model, request.batches[0], request.sizes),
        options=options,
        transfer="zero-copy" if device.integrated or device.kind == "cpu" else "pinned",
    )


def _refuse(device: Device | None, reason: str, fix: str, precision: Precision | None = None) -> Unsupported:
    return Unsupported(
        route=_NAME, device=device.id if device else None, reason=reason, fix=fix, precision=precision
    )


def open(plan: Plan, model: Model, device: Device, workdir: Path) -> Session:
    from wavefit.native.limits import of_opencl
    from wavefit.native.opencl.chooser import Chooser
    from wavefit.native.opencl.devices import find
    from wavefit.native.opencl.tuned import known

    found = find(device)
    program = _program(plan, model, Chooser(of_opencl(found, device), known(found)))
    return NativeSession(model, plan, program, found)


def predict(plan: Plan, model: Model, device: Device, general: Prediction) -> Prediction:
    """The engine's own account of a plan on a GPU: what it allocates, and what its kernels are expected to take.

    Memory is exact: arena, weights, and two sets of inputs and outputs, as in a stream. The time is the sum of the
    chosen templates' costs, with the copies that ``general`` has.
    """
    from wavefit.native.limits import of_device
    from wavefit.native.opencl.chooser import Chooser

    if device.kind == "cpu" or _packages.version("onnx-ir") is None:
        return general
    chooser = Chooser(of_device(device))
    try:
        program = _program(plan, model, chooser)
    except (InputError, RouteError):  # it is told where the plan is asked for, or opened
        return general
    costs = [chooser.cost(operation) or 0.0 for operation, _ in program.operations]
    known = of_device(device).flops is not None and general.transfer_s is not None
    return msgspec.structs.replace(
        general,
        peak_bytes=program.device_bytes + program.port_bytes,
        total_s=sum(costs) + (general.transfer_s or 0.0) if known else general.total_s,
    )


def _program(plan: Plan, model: Model, chooser: Chooser) -> Program:
    from wavefit.native import engine

    half = plan.options.get("storage") == "fp16"
    program = engine.prepare(Path(model.path), plan.shapes, chooser, half=half)
    if isinstance(program, tuple):
        said = "; ".join(refusal.reason for refusal in program[:3])
        raise RouteError(
            f"the engine cannot run {len(program)} of the model's nodes: {said}", "use another route"
        )
    return program


def tune(payload: Tuning, say: Reporter) -> Tuned:
    """Tunes the operations of a plan; what was tuned before within as large a budget is left as it is.

    Raises:
        RouteError: OpenCL does not have the device, or the engine cannot run the model.
    """
    from wavefit.native.limits import of_opencl
    from wavefit.native.opencl import tune as tuner
    from wavefit.native.opencl.chooser import Chooser
    from wavefit.native.opencl.devices import find

    found = find(payload.device)
    limits = of_opencl(found, payload.device)
    program = _program(payload.plan, payload.model, Chooser(limits))
    operations = [operation for operation, _ in program.operations]
    choices = tuner.tune(operations, found, payload.budget_s, say, limits=limits)
    faster = sum(choice.source == "tuned" for choice in choices.values())
    return Tuned(operations=len(choices), faster=faster)


class NativeSession(Session):
    """A program of the engine on an OpenCL device; its shapes are the plan's.

    Args:
        model: its inputs and outputs.
        plan: whose shapes were compiled.
        program: of the engine.
        device: a ``pyopencl.Device``.
    """

    def __init__(self, model: Model, plan: Plan, program: Program, device: object) -> None:
        from msgspec.structs import replace

        from wavefit.native.opencl.executor import Executor

        specs = tuple(replace(spec, shape=plan.shapes[spec.name]) for spec in model.inputs)
        super().__init__(specs, model.outputs)
        self._executor = Executor(program, device, user_cache() / "opencl")

    def _run_impl(self, inputs: Mapping[str, np.ndarray]) -> Arrays:
        return self._executor.run(inputs)

    def _stream_impl(self, batches: Iterator[Mapping[str, np.ndarray]]) -> Iterator[Arrays]:
        return self._executor.stream(batches)

    def _placement_impl(self) -> Placement | None:
        nodes = {name for step in self._executor.program.steps for name in step.source}
        share = ProviderShare(provider=_PROVIDER, nodes=len(nodes))
        return Placement(providers=(share,), source="the engine's program")

    def _device_peak_bytes_impl(self) -> int | None:
        return self._executor.device_bytes

    def _close_impl(self) -> None:
        self._executor.close()


def versions() -> dict[str, str]:
    """Of pyopencl, and the state of what was tuned on this machine: a plan is measured again after tuning."""
    from wavefit.native.opencl.tuned import state

    found = {"pyopencl": _packages.version("pyopencl"), "tuned kernels": state()}
    return {name: version for name, version in found.items() if version}
