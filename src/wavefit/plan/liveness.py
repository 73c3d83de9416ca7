"""How many bytes of activations live at once, with the nodes run in the graph's order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from wavefit.plan.trace import Step, Trace

SUMMED = "FusedConv"  # of plan/layout.py: its last input is added to its output, and may be written over

# Their output is their input under another shape: every runtime here passes the buffer on (ONNX Runtime's kernels
# declare Alias(0, 0), PyTorch returns a view).
ALIASES = frozenset(("Dropout", "Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"))

# One output element needs the same element of the inputs only, so that it may take an input's place.
_NAMES = """
    Abs Add BatchNormalization Ceil Clip Div Elu Erf Exp Floor Gelu HardSigmoid HardSwish LeakyRelu Log Mul Neg PRelu
    Pow Reciprocal Relu Round Selu Sigmoid Softplus Sqrt Sub Sum Tanh Where
"""
ELEMENTWISE = frozenset(_NAMES.split())


@dataclass(frozen=True)
class Live:
    """The moment at which most bytes are alive.

    Args:
        peak_bytes: of inputs, outputs and intermediate tensors together.
        step: index of the node that runs then; None where there are no nodes.
        tensors: those alive then, largest first, with their bytes.
        unknown: tensors whose size depends on the data: they are left out of the sum.
    """

    peak_bytes: int
    step: int | None
    tensors: tuple[tuple[str, int], ...]
    unknown: tuple[str, ...]


@dataclass(frozen=True)
class Event:
    """A buffer is taken or given back; ``name`` is the tensor that it was made for."""

    take: bool
    name: str
    bytes: int
    step: int


def liveness(trace: Trace, in_place: bool = False, count_inputs: bool = True) -> Live:
    """Bytes alive at the worst moment.

    A tensor is taken when its node runs and given back after its last reader; outputs of the model are kept to the
    end, its inputs are there from the start. While a node runs, its inputs and outputs are alive together.

    Args:
        in_place: an element-wise node may write over an input that it is the last to read, as ONNX Runtime's memory
            planner and fused kernels do; else every node has an output of its own.
        count_inputs: the model's inputs are copied to the device; False where the caller's own arrays are read.
    """
    alive: dict[str, int] = {}
    peak, now, at, held = 0, 0, None, {}
    for event in events(trace, in_place, count_inputs):
        now += event.bytes if event.take else -event.bytes
        if event.take:
            alive[event.name] = event.bytes
        else:
            alive.pop(event.name, None)
        if now > peak:
            peak, at, held = now, event.step, dict(alive)
    tensors = tuple(sorted(held.items(), key=lambda pair: -pair[1]))
    unknown = tuple(name for step in trace.steps for name in step.outputs if trace.bytes.get(name) is None)
    return Live(peak, at if at is None or at >= 0 else None, tensors, unknown)


def events(trace: Trace, in_place: bool = False, count_inputs: bool = True) -> Iterable[Event]:
    """Buffers taken and given back, in order; see :func:`liveness`. Inputs are taken at step -1."""
    owner, uses = _owners(trace, in_place)
    left = Counter(uses)
    sizes: dict[str, int] = {}
    for name in trace.inputs if count_inputs else ():
        sizes[name] = trace.bytes.get(name) or 0
        yield Event(True, name, sizes[name], -1)
    for index, step in enumerate(trace.steps):
        for name in step.outputs:
            if owner[name] == name:
                sizes[name] = trace.bytes.get(name) or 0
                yield Event(True, name, sizes[name], index)
        for name in step.inputs:
            left[owner[name]] -= 1
        for name in dict.fromkeys(owner[name] for name in (*step.inputs, *step.outputs)):
            if left[name] == 0 and name in sizes:
                yield Event(False, name, sizes.pop(name), index)


def _owners(trace: Trace, in_place: bool) -> tuple[dict[str, str], Counter[str]]:
    """The tensor whose buffer each tensor lies in, and how often every buffer is read; outputs are read at the end."""
    reads = Counter(name for step in trace.steps for name in step.inputs)
    kept = set(trace.outputs)
    owner = {name: name for name in trace.inputs}
    uses: Counter[str] = Counter()
    last = {name: index for index, step in enumerate(trace.steps) for name in step.inputs}
    ends: dict[str, int] = {}
    for index, step in enumerate(trace.steps):
        for name in step.outputs:
            owner[name] = name
        shared = _shared(step, index, trace, owner, ends, in_place)
        if shared is not None:
            owner[step.outputs[0]] = owner[shared]
        for name in step.outputs:
            end = len(trace.steps) if name in kept else last.get(name, index)
            ends[owner[name]] = max(ends.get(owner[name], -1), end)
    for name, buffer in owner.items():
        uses[buffer] += reads[name] + (name in kept)
    for name in trace.inputs:
        uses[name] += 0
    return owner, uses


def _shared(
    step: Step, index: int, trace: Trace, owner: dict[str, str], ends: dict[str, int], in_place: bool
) -> str | None:
    """The input whose buffer the step's output takes; None where it has one of its own."""
    if step.op in ALIASES and step.inputs:
        return step.inputs[0]
    if not in_place or step.op not in (*ELEMENTWISE, SUMMED) or len(step.outputs) != 1:
        return None
    size = trace.bytes.get(step.outputs[0])
    for name in step.inputs[-1:] if step.op == SUMMED else step.inputs:
        whole = owner[name] not in trace.inputs  # the caller's arrays are not written to
        if (
            whole
            and ends.get(owner[name], -1) == index
            and size is not None
            and trace.bytes.get(name) == size
        ):
            return name
    return None
