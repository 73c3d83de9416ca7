"""Pages that ONNX Runtime's arena for activations has written to by the end of a first run.

Its rules, from onnxruntime/core/framework/bfc_arena.cc and allocator.h: sizes are rounded up to 256 bytes; the smallest
free chunk that fits is taken, of equal ones that at the lowest address, and split where it is at least twice as large
or 128 MiB larger; where none fits, a region is added whose size doubles from 1 MiB until the request fits; free
neighbours are joined. In the first run of a session there is no memory pattern yet, so every tensor is asked for by
itself, and holes between tensors of unlike sizes stay. A region is memory of the process as far as it was written to.
LRN squares its input into a buffer of its own for a moment (core/providers/cpu/nn/lrn.cc).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from wavefit.plan.liveness import events
from wavefit.plan.trace import Trace

_ROUND = 256
_FIRST_REGION = 1 << 20
_MAX_DEAD = 128 << 20

# Of the arena, added on top. ONNX Runtime orders and fuses nodes in ways that are not followed here, and the holes
# between chunks hang on that: densenet121 took 1.27 times what is simulated, ten other models at most 1.1 times. A plan
# that is said to fit must fit, so the prediction is rather too high.
MARGIN = 1 / 4


@dataclass
class Chunk:
    start: int
    size: int
    free: bool = True


@dataclass
class Region:
    size: int
    written: int = 0
    chunks: list[Chunk] = field(default_factory=list)


@dataclass
class Arena:
    """Regions of chunks; ``written`` is what counts as the process's memory."""

    next_region: int = _FIRST_REGION
    regions: list[Region] = field(default_factory=list)

    @property
    def written(self) -> int:
        return sum(region.written for region in self.regions)

    def take(self, size: int) -> tuple[Region, Chunk] | None:
        """Takes a chunk and writes to all of the buffer; None for a buffer of no bytes."""
        if size <= 0:
            return None
        rounded = -(-size // _ROUND) * _ROUND
        fits = [
            (chunk.size, -number, chunk.start)  # Linux maps a later region at a lower address
            for number, region in enumerate(self.regions)
            for chunk in region.chunks
            if chunk.free and chunk.size >= rounded
        ]
        if not fits:
            self._extend(rounded)
            return self.take(size)
        _, number, start = min(fits)
        region = self.regions[-number]
        index = next(index for index, chunk in enumerate(region.chunks) if chunk.start == start)
        chunk = region.chunks[index]
        if chunk.size >= 2 * rounded or chunk.size - rounded >= _MAX_DEAD:
            region.chunks.insert(index + 1, Chunk(start + rounded, chunk.size - rounded))
            chunk.size = rounded
        chunk.free = False
        region.written = max(region.written, start + rounded)
        return region, chunk

    def give(self, taken: tuple[Region, Chunk] | None) -> None:
        if taken is None:
            return
        region, chunk = taken
        chunk.free = True
        index = next(index for index, each in enumerate(region.chunks) if each is chunk)
        for near in (index, index - 1):
            pair = region.chunks[near : near + 2] if near >= 0 else []
            if len(pair) == 2 and pair[0].free and pair[1].free:
                pair[0].size += pair[1].size
                del region.chunks[near + 1]

    def _extend(self, rounded: int) -> None:
        grown = False
        while rounded > self.next_region:
            self.next_region *= 2
            grown = True
        self.regions.append(Region(self.next_region, chunks=[Chunk(0, self.next_region)]))
        if not grown:
            self.next_region *= 2


def first_run(trace: Trace) -> int:
    """Bytes that one run has written to, a share more for what is not known of the order of nodes.

    Inputs are the caller's own arrays. Weights are reserved beside the arena, which starts empty.
    """
    arena = Arena()
    taken: dict[str, tuple[Region, Chunk] | None] = {}
    for event in events(trace, in_place=writes_over(trace), count_inputs=False):
        if event.take:
            taken[event.name] = arena.take(event.bytes)
            if trace.steps[event.step].op == "LRN":
                arena.give(arena.take(event.bytes))
        else:
            arena.give(taken.pop(event.name))
    return round(arena.written * (1 + MARGIN))


def writes_over(trace: Trace) -> bool:
    """Whether element-wise nodes write over their inputs.

    The planner of memory does so only where both shapes are known to be the same; behind a product of tensors of three
    or more dimensions it no longer knows a symbolic batch (seen: the same encoder takes half with its batch fixed).
    """
    products = (step for step in trace.steps if step.op == "MatMul")
    return all(len(trace.shapes.get(name, ())) < 3 for step in products for name in step.outputs)
