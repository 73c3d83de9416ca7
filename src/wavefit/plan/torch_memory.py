"""What PyTorch's allocator holds at most when the torch_gpu route opens a program and runs it.

The order of buffers was read from the allocator's own history for ten nets on an H200 (PyTorch 2.11;
`python benchmarks/_torch_points.py`): the weights, as the host has made them ready; the inputs; then, as long as an
operator runs, its output, its casts and its scratch. A graph is warmed up on a stream of
its own and then captured into a pool of its own, and neither shares memory with what was there before. For
torch.compile see :mod:`wavefit.plan.torch_compile`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from operator import mul

from wavefit.plan.allocator import Pool
from wavefit.plan.convolution import CONVOLUTIONS, Conv, lifted, run_scratch, search_scratch
from wavefit.plan.liveness import ALIASES
from wavefit.plan.peaks import MATRIX_OPS
from wavefit.plan.torch_graph import FUSED_ATTENTION, as_torch
from wavefit.plan.trace import Step, Trace
from wavefit.schema import Device, Precision

# Of all but the weights, added on top: which free block a buffer takes hangs on small ones that are not followed here.
# Without it ten nets were up to 10 % too low. A plan that is said to fit must fit.
MARGIN = 0.08

_RUNS = 3
FULL = frozenset(
    ("LayerNormalization", "Softmax", "LogSoftmax", "Exp", "Log", "Pow", "ReduceSum")
)  # autocast: fp32
_INDEX_BYTES = 8  # MaxPool finds indices as well
_BLAS_BYTES = (8192 << 10) + (128 << 10)  # ":4096:2:16:8" (ATen/cuda/CublasHandlePool.cpp)
_BLAS_HOPPER_BYTES = 32 << 20  # the same file: compute capability 9.0
_BLAS_LT_BYTES = 1 << 20  # seen beside it
_HOPPER_L2_BYTES = 60 << 20  # torch.cuda.get_device_properties(0).L2_cache_size on an H200
_WARM, _CAPTURED, _STATE = 1, 2, 3  # streams; 0 is where all else happens


@dataclass(frozen=True)
class Form:
    """How the route runs a plan; ``blas_bytes`` is the scratch of matrix products, cuDNN whether it searches."""

    half: bool = False
    mode: str = "eager"
    channels_last: bool = False
    cudnn: bool = False
    blas_bytes: int = 0
    l2_bytes: int = 0  # torch.compile clears it between timings


def form(device: Device, precision: Precision, options: Mapping[str, object]) -> Form:
    """The form of a plan. On AMD the scratch of convolutions and matrix products is not known, and left out.

    torch.compile lays convolutions out channels-last by itself, on NVIDIA (torch/_inductor/config.py,
    layout_optimization).
    """
    nvidia = device.vendor == "nvidia"
    hopper = any(name in (device.name or "") for name in ("H100", "H200", "H800", "H20", "GH200"))
    mode = str(options.get("mode", "eager"))
    return Form(
        half=precision in ("fp16", "bf16"),
        mode=mode,
        channels_last=options.get("layout") == "channels_last" or (nvidia and mode == "compile"),
        cudnn=nvidia,
        l2_bytes=_HOPPER_L2_BYTES if hopper else device.caches.get("l2_bytes") or 0,
        blas_bytes=(_BLAS_HOPPER_BYTES if hopper else _BLAS_BYTES) + _BLAS_LT_BYTES if nvidia else 0,
    )


def peak(trace: Trace, how: Form) -> int:
    """Most bytes reserved, as torch.cuda.max_memory_reserved counts them, after a few runs."""
    from wavefit.plan import torch_compile

    pool = Pool()
    load(pool, trace, how)
    loaded = pool.reserved
    for name in trace.inputs:
        pool.take(trace.bytes.get(name) or 0)
    compiled = how.mode == "compile"
    program = torch_compile.Compiled(trace, how) if compiled else Program(trace, how)
    if compiled:
        torch_compile.freeze(pool, program)
        program.run(pool, first=True)
    pool.stream = 0 if how.mode == "eager" else _WARM
    for number in range(_RUNS):
        program.run(pool, first=number == 0 and not compiled)
    if how.mode != "eager":
        pool.empty()
        pool.stream = _STATE
        pool.take(1)
        pool.stream = _CAPTURED
        program.run(pool, first=False)
    return pool.peak + round(MARGIN * (pool.peak - loaded))


def left_out(trace: Trace, how: Form) -> tuple[str, ...]:
    """What a prediction leaves out, or only bounds, in words."""
    found = ["the driver's context"]
    if not how.cudnn:
        return (*found, "scratch of kernels")
    kinds = {step.op for step in trace.steps}
    if "ConvTranspose" in kinds and not how.half:
        found.append("part of the scratch of transposed convolutions in fp32")
    if kinds & CONVOLUTIONS:
        found.append("which kernels cuDNN tries: the scratch counted is a bound")
    return tuple(found)


def load(pool: Pool, trace: Trace, how: Form) -> None:
    """Weights: folded, narrowed and laid out on the host, then moved. ONNX's exporter has folded them already.

    In which order the module holds them the graph does not tell. By size they fill segments worst.
    """
    pool.touch(1)
    halved = {name for name, _ in read_by(trace, MATRIX_OPS)} if how.half else set()
    for size in sorted(size // 2 if name in halved else size for name, size in trace.weights.items()):
        pool.take(size)


def read_by(trace: Trace, kinds: frozenset[str]) -> list[tuple[str, int]]:
    """Weights of such steps, each once, with their bytes."""
    names = dict.fromkeys(name for step in trace.steps if step.op in kinds for name in step.weights)
    return [(name, trace.bytes.get(name) or 0) for name in names]


@dataclass
class Program:
    """The steps as PyTorch runs them, with how long every buffer is needed."""

    trace: Trace
    how: Form
    steps: list[Step] = field(default_factory=list)
    base: dict[str, str] = field(default_factory=dict)  # whose buffer a tensor lies in
    strided: set[str] = field(default_factory=set)  # views that a matrix product has to copy
    turned: set[str] = field(default_factory=set)  # tensors that lie as their transpose would
    halves: set[str] = field(default_factory=set)
    last: dict[str, int] = field(default_factory=dict)
    blas: set[int] = field(default_factory=set)  # streams that have their scratch

    def __post_init__(self) -> None:
        self.steps = as_torch(self.trace)
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
        view = source is not None and self._views(step, source)
        for name in step.outputs:
            self.base[name] = self.base[source] if view and source is not None else name
        if step.op == FUSED_ATTENTION:  # its result lies in the order of tokens, as the next product reads it
            self.turned.update(step.outputs)
        elif view and source not in self.turned and (step.op not in ALIASES or source in self.strided):
            self.strided.update(step.outputs)
        whole = step.op in FULL or not all(name in self.halves for name in step.inputs)
        if self.how.half and (step.op in MATRIX_OPS or not whole):
            self.halves.update(step.outputs)

    def _views(self, step: Step, source: str) -> bool:
        """Whether the outputs lie in the input's buffer."""
        if step.op in ALIASES and source in self.strided:
            shapes = [self.trace.shapes.get(name, ()) for name in (source, *step.outputs)]
            return step.op == "Reshape" and _cuts(*shapes)
        return step.op in ("Transpose", "Split", *ALIASES)

    def bytes(self, name: str) -> int:
        size = self.trace.bytes.get(name) or 0
        return size // 2 if name in self.halves and name in self.trace.floats else size

    def run(self, pool: Pool, first: bool) -> None:
        """One run: every buffer taken and given back in order; what stays are scratch and cached segments.

        Args:
            first: convolutions are searched for.
        """
        casts = [pool.take(size) for size in self._prepared()]
        taken: dict[str, int] = {}
        searched: set[Conv] = set()
        for index, step in enumerate(self.steps):
            temporary = [pool.take(size) for size in self._temporary(step)]
            for name in step.outputs:
                if self.base[name] == name:
                    taken[name] = pool.take(self.bytes(name))
            self._scratch(pool, step, searched if first else None)
            for handle in temporary:
                pool.give(handle)
            for name in dict.fromkeys(self.base[name] for name in (*step.inputs, *step.outputs)):
                if self.last[name] == index and name in taken:
                    pool.give(taken.pop(name))
        for handle in (*casts, *taken.values()):
            pool.give(handle)

    def _prepared(self) -> list[int]:
        """Inputs that are cast, or laid out, before the first operator."""
        return [(self.trace.bytes.get(name) or 0) // 2 for name in self.trace.inputs if self._lowered(name)]

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
            elif step.op in FULL and name in self.halves:
                sizes.append(size)
        return sizes

    def _scratch(self, pool: Pool, step: Step, searched: set[Conv] | None) -> None:
        if step.op == "MaxPool":
            elements = math.prod(self.trace.shapes.get(step.outputs[0], ()))
            pool.touch(elements * _INDEX_BYTES)
        elif step.op in CONVOLUTIONS and self.how.cudnn:
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
            and step.op not in CONVOLUTIONS
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
        width = 2 if self.how.half else 4
        return lifted(Conv(given, weights, made, width, self.how.channels_last, step.op == "ConvTranspose"))


def _cuts(given: tuple[int, ...], made: tuple[int, ...]) -> bool:
    """Whether a reshape only cuts axes into several: then it needs no copy, however the tensor lies."""
    return bool(given) and set(accumulate(given, mul)) <= set(accumulate(made, mul))
