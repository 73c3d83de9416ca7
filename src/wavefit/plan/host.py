"""Host memory that ONNX Runtime's CPU provider takes, from reading the file to the end of the first run.

What a process holds at most is not weights plus activations: the file's tensors are copied more than once while the
session opens, and glibc's malloc keeps what is freed in the middle of its heap. Each step below was seen by watching
VmHWM and VmRSS of one process (onnxruntime 1.32, Linux x86-64) with each level of graph optimisation, and again with
MALLOC_MMAP_THRESHOLD_ set low, so that freed memory goes back at once: the difference is what the heap keeps.

1. Reading: every tensor of the protobuf is copied into a buffer and then dropped, one after the other: weights + the
   largest tensor. Tensors of under 128 KiB lie in the heap, where the protobuf's copies leave holes: + all of those.
2. Layout: a Conv's weights are written in blocks of channels (NCHWc), first into a new tensor of the graph, then into
   the session's own buffer; the originals are freed too late for the heap to give them back: + 2 x Conv weights.
3. Packing: a Gemm's or MatMul's weights are packed into a new buffer one by one, the original freed after each. A
   tensor of over 32 MiB (mallopt(3): the most that M_MMAP_THRESHOLD grows to) goes back to the system. A smaller one
   leaves a hole in the heap, which the next packed copy, longer by its alignment, need not fit: + all of these (seen:
   0.7 of them in an encoder's trial, none in a process that freed nothing large before; the most is predicted).
4. First run: activations lie in an arena (plan/arena.py) beside the weights, and the tensors are those that are left
   after fusion, with copies between layouts (plan/layout.py). Holes that opening left are used as far as they are
   long enough: twice the largest Conv's weights, since its two copies lie side by side.
"""

from __future__ import annotations

from dataclasses import dataclass

from wavefit.plan.arena import first_run, writes_over
from wavefit.plan.layout import as_run
from wavefit.plan.liveness import liveness
from wavefit.plan.trace import Trace

MMAP_MOST_BYTES = (
    32 << 20
)  # mallopt(3), M_MMAP_THRESHOLD: the dynamic threshold's upper limit on 64-bit systems
MMAP_LEAST_BYTES = 128 << 10  # and where that threshold starts
NODE_BYTES = (
    6 << 10
)  # a node, its kernel and its names: light_resnet50 with optimisation off, less its weights

# Of a model with activations: what malloc keeps at the top of its heap and for each thread. Without it a trial of
# squeezenet at batch 1 took 5 MiB more than the steps above say.
SLACK_BYTES = 4 << 20

_PACKED = ("Gemm", "MatMul")


@dataclass(frozen=True)
class Host:
    """Where the peak comes from, in bytes. ``copies`` are those of steps 1 to 3, ``heap`` what stays of them.

    Args:
        weights: as stored.
        copies: held beside the weights at the worst moment of opening.
        heap: of them still held when the first run starts.
        holes: of ``heap``, long enough for the arena to use.
        activations: alive at the worst moment of a run, written over in place where that is possible.
        arena: pages that the first run writes to.
        graph: nodes and kernels, what the protobuf's small tensors leave behind, and malloc's slack.
    """

    weights: int
    copies: int
    heap: int
    holes: int
    activations: int
    arena: int
    graph: int

    @property
    def run(self) -> int:
        """New memory that the first run takes beyond the holes that opening left."""
        return max(0, self.arena - self.holes)

    @property
    def peak(self) -> int:
        return self.weights + self.graph + max(self.copies, self.heap + self.run)


def host(trace: Trace, weight_bytes: int) -> Host:
    """The CPU provider's memory for one model and batch, without the process's own and the caller's arrays."""
    sizes = trace.weights
    kernels = [sizes[name] for name in _read_by(trace, ("Conv",))]
    packed = [sizes[name] for name in _read_by(trace, _PACKED)]
    holes = sum(size for size in packed if size < MMAP_MOST_BYTES)
    heap = max(2 * sum(kernels), holes)
    mapped = max((size for size in packed if size >= MMAP_MOST_BYTES), default=0)
    reading = max(sizes.values(), default=0)
    small = sum(size for size in sizes.values() if size < MMAP_LEAST_BYTES)
    run = as_run(trace)
    return Host(
        weights=weight_bytes,
        copies=max(reading, heap + mapped),
        heap=heap,
        holes=min(heap, 2 * max(kernels, default=0)),
        activations=liveness(run, in_place=writes_over(run), count_inputs=False).peak_bytes,
        arena=first_run(run),
        graph=NODE_BYTES * len(trace.steps) + small + SLACK_BYTES,
    )


def _read_by(trace: Trace, kinds: tuple[str, ...]) -> list[str]:
    """The second input of such nodes, where it is a weight: the matrix or the kernels. Each once."""
    found = (step.weights[0] for step in trace.steps if step.op in kinds and step.weights)
    return list(dict.fromkeys(found))
