"""How much memory a plan will take, part by part. Everything here is predicted."""

from __future__ import annotations

from wavefit.plan.host import host
from wavefit.plan.layout import as_run
from wavefit.plan.liveness import liveness
from wavefit.plan.peaks import ELEMENT_BYTES
from wavefit.plan.torch_memory import form, left_out, peak
from wavefit.plan.trace import Trace, narrowed
from wavefit.schema import Device, Model, Plan, Struct

# A process of wavefit's that has the runtime loaded and has run a model of 20 parameters: VmHWM on Linux x86-64,
# Python 3.11, onnxruntime 1.32, measured by `python benchmarks/predicted.py --base`, 2026-11-30.
BASE_BYTES: dict[str, int] = {"ort_cpu": 67 << 20}

_TRIAL_BATCHES = 4  # distinct batches that a trial prepares (bench/trial.py), within this bound:
_TRIAL_BYTES = 512 << 20
_TRIAL_SAMPLES = 8  # items of the reference (schema.Data.count)


class Memory(Struct, frozen=True, kw_only=True):
    """One batch's memory, in bytes. The parts do not all stand at the same moment: the peak is no sum of them."""

    where: str  # "host", "device"
    batch: int
    weights_bytes: int
    activations_bytes: int  # alive at once, at the worst moment
    workspace_bytes: int | None = None  # copies while opening, scratch of kernels; None where not known
    base_bytes: int | None = None  # the runtime itself; None where it was never measured
    buffers_bytes: int = 0  # inputs and outputs that the measuring process holds
    peak_bytes: int
    worst_node: str | None = None
    unknown: tuple[str, ...] = ()  # what is left out


def on_host(trace: Trace, model: Model, batch: int, route: str = "ort_cpu") -> Memory:
    """The memory of a process that runs the model on the CPU with ONNX Runtime: what Measurement.host_peak_bytes shows.

    See :mod:`wavefit.plan.host` for where its parts come from.
    """
    parts = host(trace, model.weight_bytes)
    base = BASE_BYTES.get(route)
    buffers = trial_buffers(trace, batch)
    run = as_run(trace)
    live = liveness(run, in_place=True, count_inputs=False)
    return Memory(
        where="host",
        batch=batch,
        weights_bytes=parts.weights,
        activations_bytes=parts.activations,
        workspace_bytes=parts.copies + parts.graph,
        base_bytes=base,
        buffers_bytes=buffers,
        peak_bytes=parts.peak + buffers + (base or 0),
        worst_node=_node(run, live.step),
        unknown=_unknown(live.unknown, () if base else ("the runtime's own memory",)),
    )


def on_device(trace: Trace, model: Model, device: Device, plan: Plan) -> Memory:
    """A GPU's memory: weights, inputs, and activations by liveness with an output of its own for every node.

    For PyTorch the blocks are dealt out as its caching allocator does, in the order in which the route asks for them
    (see :mod:`wavefit.plan.torch_memory`), which is what Measurement.device_peak_bytes shows. On NVIDIA that has the
    scratch of the search for convolutions in it. What a driver's context takes is not known before a run.
    """
    narrow = narrowed(trace, ELEMENT_BYTES[plan.precision])
    live = liveness(narrow)
    weights = sum(narrow.weights.values())
    taken = weights + live.peak_bytes
    missing: tuple[str, ...] = ("the runtime's own memory", "scratch of kernels")
    torch = plan.route.startswith("torch")
    if torch:
        how = form(device, plan.precision, plan.options)
        taken = peak(trace, how)
        missing = left_out(trace, how)
    return Memory(
        where="device",
        batch=plan.batch,
        weights_bytes=weights,
        activations_bytes=live.peak_bytes,
        workspace_bytes=max(0, taken - weights - live.peak_bytes) if torch else None,
        peak_bytes=taken,
        worst_node=_node(narrow, live.step),
        unknown=_unknown(live.unknown, missing),
    )


def trial_buffers(trace: Trace, batch: int) -> int:
    """Arrays that a trial holds: its prepared batches, the reference's samples, and one answer."""
    size = trace.input_bytes
    batches = min(_TRIAL_BATCHES, max(1, _TRIAL_BYTES // max(size, 1)))
    return batches * size + _TRIAL_SAMPLES * (size // max(batch, 1)) + trace.output_bytes


def _node(trace: Trace, step: int | None) -> str | None:
    return None if step is None else f"{trace.steps[step].op} {trace.steps[step].cost.name}"


def _unknown(tensors: tuple[str, ...], others: tuple[str, ...]) -> tuple[str, ...]:
    count = len(tensors)
    return (*((f"{count} tensors whose size depends on the data",) if count else ()), *others)
