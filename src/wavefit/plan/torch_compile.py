"""torch.compile's buffers, where they differ from those of a program that runs op by op.

Read from the allocator's own history of ten nets on an H200 (PyTorch 2.11; `python benchmarks/_torch_points.py`), which
keeps the Python function that asked: weights that are frozen in another form are copies (torch/_inductor/freezing.py);
an element-wise or normalising node writes over its input where nothing else reads it; casts are made where a tensor is
written; generated kernels are timed on first use, between two timings a buffer of the L2's size is cleared, and a
kernel that writes over its input is timed on a copy of it (torch/_inductor/runtime: benchmarking.py,
triton_heuristics.py). Kernels that an earlier model had timed are not timed again, so a later run may take less.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from wavefit.plan.allocator import Pool
from wavefit.plan.convolution import Conv
from wavefit.plan.liveness import ALIASES, ELEMENTWISE
from wavefit.plan.peaks import MATRIX_OPS
from wavefit.plan.torch_memory import FULL, Program, read_by
from wavefit.plan.trace import Step

_GENERATED = frozenset((*ELEMENTWISE, *FULL, "MaxPool", "AveragePool", "ReduceMean", "ReduceMax", "Concat"))


def freeze(pool: Pool, program: Program) -> None:
    """Copies of weights: convolutions' in the layout of their inputs, joined ones of products of one tensor."""
    trace, half = program.trace, program.how.half
    for _, size in read_by(trace, frozenset(("Conv", "ConvTranspose"))) if program.how.channels_last else ():
        pool.take(size // 2 if half else size)
    for group in joined(program):
        size = sum(trace.bytes.get(step.weights[0]) or 0 for step in group)
        pool.take(size // 2 if half else size)


def joined(program: Program) -> list[list[Step]]:
    """Products of one tensor by two or three weights of one shape: they run as one.

    See torch/_inductor/fx_passes/freezing_patterns.py.
    """
    shapes = program.trace.shapes
    groups: dict[tuple[str, tuple[int, ...]], list[Step]] = {}
    for step in program.steps:
        if step.op in ("MatMul", "Gemm") and step.weights and len(step.inputs) == 1:
            groups.setdefault((step.inputs[0], shapes.get(step.weights[0], ())), []).append(step)
    return [group for group in groups.values() if len(group) in (2, 3)]


@dataclass
class Compiled(Program):
    """The steps as torch.compile's code runs them."""

    sums: dict[str, int] = field(default_factory=dict)  # bytes of what joined products make

    def __post_init__(self) -> None:
        super().__post_init__()
        self._halve()
        self._join()
        self._write_over()

    def _halve(self) -> None:
        """What only matrix products read is written in their precision."""
        readers: dict[str, list[str]] = {}
        for step in self.steps:
            for name in step.inputs:
                readers.setdefault(name, []).append(step.op)
        for step in self.steps if self.how.half else ():
            for name in step.outputs:
                if name in readers and all(op in MATRIX_OPS for op in readers[name]):
                    self.halves.add(name)

    def _join(self) -> None:
        for group in joined(self):
            head, *others = (step.outputs[0] for step in group)
            self.sums[head] = sum(super(Compiled, self).bytes(step.outputs[0]) for step in group)
            self._move(dict.fromkeys(others, head))

    def _move(self, moved: dict[str, str]) -> None:
        """Lets tensors lie in others' buffers."""
        self.base = {name: moved.get(base, base) for name, base in self.base.items()}
        for name, into in moved.items():
            self.last[into] = max(self.last[into], self.last[name])

    def _write_over(self) -> None:
        for index, step in enumerate(self.steps):
            if (step.op not in ELEMENTWISE and step.op not in FULL) or len(step.outputs) != 1:
                continue
            made = step.outputs[0]
            for name in step.inputs:
                buffer = self.base[name]
                whole = buffer not in self.trace.inputs and self.bytes(buffer) == self.bytes(made)
                if whole and self.last[buffer] == index and self.base[made] == made:
                    self._move({made: buffer})
                    break

    def run(self, pool: Pool, first: bool) -> None:
        """As :meth:`Program.run`; casts of inputs and outputs are generated kernels too."""
        if first and self._prepared():
            pool.touch(self.how.l2_bytes)
        super().run(pool, first)
        if first and self.how.half:
            pool.touch(self.how.l2_bytes)

    def bytes(self, name: str) -> int:
        return self.sums.get(name) or super().bytes(name)

    def _prepared(self) -> list[int]:
        """A convolution's input is laid out channels-last, a product's cast."""
        readers = {
            name: {step.op for step in self.steps if name in step.inputs} for name in self.trace.inputs
        }
        sizes = {name: self.trace.bytes.get(name) or 0 for name in self.trace.inputs}
        laid = self.how.channels_last
        return [
            size // 2 if self.how.half else size
            for name, size in sizes.items()
            if self._lowered(name) or (laid and "Conv" in readers[name])
        ]

    def _temporary(self, step: Step) -> list[int]:
        """Operands made contiguous; casts are made by what writes them."""
        return [self.bytes(name) for name in step.inputs if step.op == "MatMul" and name in self.strided]

    def _scratch(self, pool: Pool, step: Step, searched: set[Conv] | None) -> None:
        if step.op in MATRIX_OPS:
            super()._scratch(pool, step, searched)
        elif searched is not None and step.op in _GENERATED and step.op not in ALIASES:
            size = self.bytes(self.base[step.outputs[0]])
            over = step.op in (*ELEMENTWISE, *FULL) and self.base[step.outputs[0]] != step.outputs[0]
            if over:
                pool.touch(size)
            clearing = pool.take(self.how.l2_bytes)
            if over:
                pool.touch(size)
            pool.give(clearing)
