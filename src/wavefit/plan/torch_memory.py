"""What PyTorch's allocator holds at most when the torch_gpu route opens a program and runs it.

The order of buffers was read from the allocator's own history for ten nets on an H200 (PyTorch 2.11;
`python benchmarks/_torch_points.py`): the weights; copies of them (batch normalisations folded into convolutions, half
precision), beside which the originals stay, since only Python's collector of cycles frees them; the inputs; then, as
long as an operator runs, its output, its casts and its scratch. A graph is warmed up on a stream of its own and then
captured into a pool of its own, and neither shares memory with what was there before.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from wavefit.plan.allocator import Pool
from wavefit.plan.convolution import Conv, run_scratch, search_scratch
from wavefit.plan.liveness import ALIASES
from wavefit.plan.peaks import MATRIX_OPS
from wavefit.plan.trace import Step, Trace
from wavefit.schema import Device, Precision

_RUNS = 3
_EXAMPLES = 2  # the batch that a program was exported with; its inputs are moved with it
_FULL = frozenset(
    ("LayerNormalization", "Softmax", "LogSoftmax", "Exp", "Log", "Pow", "ReduceSum")
)  # autocast: fp32
_INDEX_BYTES = 8  # MaxPool finds indices as well
_BLAS_BYTES = (8192 << 10) + (128 << 10)  # ":4096:2:16:8" (ATen/cuda/CublasHandlePool.cpp)
_BLAS_HOPPER_BYTES = 32 << 20  # the same file: compute capability 9.0
_BLAS_LT_BYTES = 1 << 20  # seen beside it
_WARM, _CAPTURED, _STATE = 1, 2, 3  # streams; 0 is where all else happens


@dataclass(frozen=True)
class Form:
    """How the route runs a plan; ``blas_bytes`` is the scratch of matrix products, cuDNN whether it searches."""

    half: bool = False
    mode: str = "eager"
    channels_last: bool = False
    cudnn: bool = False
    blas_bytes: int = 0


def form(device: Device, precision: Precision, options: Mapping[str, object]) -> Form:
    """The form of a plan. On AMD the scratch of convolutions and matrix products is not known, and left out."""
    nvidia = device.vendor == "nvidia"
    hopper = any(name in (device.name or "") for name in ("H100", "H200", "H800", "H20", "GH200"))
    return Form(
        half=precision in ("fp16", "bf16"),
        mode=str(options.get("mode", "eager")),
        channels_last=options.get("layout") == "channels_last",
        cudnn=nvidia,
        blas_bytes=(_BLAS_HOPPER_BYTES if hopper else _BLAS_BYTES) + _BLAS_LT_BYTES if nvidia else 0,
    )


def peak(trace: Trace, batch: int, how: Form) -> int:
    """Most bytes reserved, as torch.cuda.max_memory_reserved counts them, after a few runs."""
    pool = Pool()
    _load(pool, trace, batch, how)
    for name in trace.inputs:
        pool.take(trace.bytes.get(name) or 0)
    program = _Program(trace, how)
    pool.stream = 0 if how.mode == "eager" else _WARM
    for number in range(_RUNS):
        program.run(pool, search=how.cudnn and number == 0)
    if how.mode != "eager":
        pool.empty()
        pool.stream = _STATE
        pool.take(1)
        pool.stream = _CAPTURED
        program.run(pool, search=False)
    return pool.peak


def _load(pool: Pool, trace: Trace, batch: int, how: Form) -> None:
    pool.touch(1)
    for size in trace.weights.values():
        pool.take(size)
    pool.touch(trace.input_bytes // max(batch, 1) * _EXAMPLES)
    for name in _folded(trace):
        pool.take(trace.bytes.get(name) or 0)
    laid_out = {
        name: pool.take(size) for name, size in _read_by(trace, frozenset(("Conv",))) if how.channels_last
    }
    for name, size in _read_by(trace, MATRIX_OPS) if how.half else ():
        pool.take(size // 2)
        pool.give(laid_out.pop(name, 0))


def _read_by(trace: Trace, kinds: frozenset[str]) -> list[tuple[str, int]]:
    """Weights of such steps, each once, with their bytes."""
    names = dict.fromkeys(name for step in trace.steps if step.op in kinds for name in step.weights)
    return [(name, trace.bytes.get(name) or 0) for name in names]


def _folded(trace: Trace) -> list[str]:
    """Weights of convolutions with a normalisation behind them.

    ONNX's exporter has folded it already. A convolution that then has no bias, or one that is named after its weight,
    was written without a bias, which is done where a normalisation follows.
    """
    normalised = {step.inputs[0] for step in trace.steps if step.op == "BatchNormalization" and step.inputs}
    convs = [step for step in trace.steps if step.op == "Conv" and step.weights]
    return [
        name
        for step in convs
        if step.outputs[0] in normalised or step.weights[1:] in ((), (f"{step.weights[0]}_bias",))
        for name in step.weights
    ]


@dataclass
class _Program:
    """The steps as PyTorch runs them, with how long every buffer is needed."""

    trace: Trace
    how: Form
    steps: list[Step] = field(default_factory=list)
    base: dict[str, str] = field(default_factory=dict)  # whose buffer a tensor lies in
    strided: set[str] = field(default_factory=set)  # views that a matrix product has to copy
    halves: set[str] = field(default_factory=set)
    last: dict[str, int] = field(default_factory=dict)
    blas: set[int] = field(default_factory=set)  # streams that have their scratch

    def __post_init__(self) -> None:
        self.steps = _linear(self.trace)
        self.base = {name: name for name in self.trace.inputs}
        for step in self.steps:
            self._describe(step)
        for index, step in enumerate(self.steps):
            for name in (*step.outputs, *step.inputs):
                self.last[self.base[name]] = index
        for name in self.trace.outputs:
            self.last[self.base.get(name, name)] = len(self.steps)

    def _describe(self, step: Step) -> None:
        source = step.inputs[0] if step.inputs else None
        view = step.op == "Transpose" or (step.op in ALIASES and source not in self.strided)
        for name in step.outputs:
            self.base[name] = self.base[source] if view and source is not None else name
        if step.op == "Transpose" or (view and source in self.strided):
            self.strided.update(step.outputs)
        whole = step.op in _FULL or not all(name in self.halves for name in step.inputs)
        if self.how.half and (step.op in MATRIX_OPS or not whole):
            self.halves.update(step.outputs)

    def bytes(self, name: str) -> int:
        size = self.trace.bytes.get(name) or 0
        return size // 2 if name in self.halves and name in self.trace.floats else size

    def run(self, pool: Pool, search: bool) -> None:
        """One run: every buffer taken and given back in order; what stays are scratch and cached segments."""
        casts = [
            pool.take((self.trace.bytes.get(name) or 0) // 2)
            for name in self.trace.inputs
            if self._lowered(name)
        ]
        taken: dict[str, int] = {}
        searched: set[Conv] = set()
        for index, step in enumerate(self.steps):
            temporary = [pool.take(size) for size in self._temporary(step)]
            for name in step.outputs:
                if self.base[name] == name:
                    taken[name] = pool.take(self.bytes(name))
            self._scratch(pool, step, searched if search else None)
            for handle in temporary:
                pool.give(handle)
            for name in dict.fromkeys(self.base[name] for name in (*step.inputs, *step.outputs)):
                if self.last[name] == index and name in taken:
                    pool.give(taken.pop(name))
        for handle in (*casts, *taken.values()):
            pool.give(handle)

    def _lowered(self, name: str) -> bool:
        readers = [step.op for step in self.steps if name in step.inputs]
        return self.how.half and bool(readers) and all(op in MATRIX_OPS for op in readers)

    def _temporary(self, step: Step) -> list[int]:
        """Copies of inputs that the operator makes for itself: casts, and operands made contiguous."""
        sizes = []
        for name in step.inputs:
            size = self.trace.bytes.get(name) or 0
            if step.op in MATRIX_OPS:
                cast = self.how.half and name not in self.halves and not self._lowered(name)
                if cast or (step.op == "MatMul" and name in self.strided):
                    sizes.append(size // 2 if self.how.half else size)
            elif step.op in _FULL and name in self.halves:
                sizes.append(size)
        return sizes

    def _scratch(self, pool: Pool, step: Step, searched: set[Conv] | None) -> None:
        if step.op == "MaxPool":
            elements = math.prod(self.trace.shapes.get(step.outputs[0], ()))
            pool.touch(elements * _INDEX_BYTES)
        elif step.op == "Conv" and self.how.cudnn:
            conv = self._conv(step)
            if conv is None:
                return
            if searched is not None and conv not in searched:
                searched.add(conv)
                pool.touch(search_scratch(conv))
                pool.empty()
            pool.touch(run_scratch(conv))
        elif (
            step.op in MATRIX_OPS
            and step.op != "Conv"
            and pool.stream not in self.blas
            and self.how.blas_bytes
        ):
            self.blas.add(pool.stream)
            pool.take(self.how.blas_bytes - _BLAS_LT_BYTES)
            pool.take(_BLAS_LT_BYTES)

    def _conv(self, step: Step) -> Conv | None:
        names = (step.inputs[0], step.weights[0], step.outputs[0]) if step.weights else ()
        shapes = [self.trace.shapes.get(name) for name in names]
        given, weights, made = shapes if len(shapes) == 3 else (None, None, None)
        if given is None or weights is None or made is None:
            return None
        return Conv(given, weights, made, 2 if self.how.half else 4, self.how.channels_last)


def _linear(trace: Trace) -> list[Step]:
    """A MatMul by a weight and the Add of its bias are one operator in PyTorch, and make one buffer."""
    steps: list[Step] = []
    made: dict[str, int] = {}
    for step in trace.steps:
        index = (
            made.get(step.inputs[0]) if step.op == "Add" and len(step.inputs) == 1 and step.weights else None
        )
        if index is not None:
            steps[index] = steps[index]._replace(outputs=step.outputs)
            continue
        if step.op == "MatMul" and step.weights:
            made[step.outputs[0]] = len(steps)
        steps.append(step)
    return steps
