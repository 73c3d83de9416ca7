"""What PyTorch's caching allocator takes from the driver for a sequence of buffers.

Its rules, from c10/cuda/CUDACachingAllocator.cpp (the same file, hipified, serves ROCm): sizes are rounded up to 512
bytes; buffers of up to 1 MiB come out of 2 MiB segments, up to 10 MiB out of 20 MiB segments, larger ones have a
segment of their own rounded up to 2 MiB; the best-fitting free block is taken and split where what is left over is
512 bytes or more (in a small segment) or over 1 MiB (in a large one); free neighbours are joined; segments are kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from wavefit.plan.liveness import events
from wavefit.plan.trace import Trace

_ROUND = 512
_SMALL = 1 << 20
_SMALL_SEGMENT = 2 << 20
_LARGE = 10 << 20
_LARGE_SEGMENT = 20 << 20
_ROUND_LARGE = 2 << 20


def reserved(trace: Trace) -> int:
    """Bytes taken from the driver at most: every weight, then the inputs, then each node's outputs in turn."""
    pool = Pool()
    for size in trace.weights.values():
        pool.take(size)
    taken: dict[str, int] = {}
    for event in events(trace):
        if event.take:
            taken[event.name] = pool.take(event.bytes)
        else:
            pool.give(taken.pop(event.name))
    return pool.reserved


@dataclass
class Pool:
    """The segments of one stream, as lists of blocks [size, handle], handle 0 where it is free."""

    reserved: int = 0
    _segments: list[tuple[bool, list[list[int]]]] = field(default_factory=list)
    _count: int = 0

    def take(self, size: int) -> int:
        """Takes a buffer; returns its handle, 0 for one of no bytes."""
        if size <= 0:
            return 0
        size = -(-size // _ROUND) * _ROUND
        small = size <= _SMALL
        fits = [
            (block[0], blocks, index)
            for is_small, blocks in self._segments
            if is_small == small
            for index, block in enumerate(blocks)
            if not block[1] and block[0] >= size
        ]
        if fits:
            _, blocks, index = min(fits, key=lambda fit: fit[0])
        else:
            blocks, index = self._segment(size, small), 0
        self._count += 1
        rest = blocks[index][0] - size
        if rest >= _ROUND if small else rest > _SMALL:
            blocks[index : index + 1] = [[size, self._count], [rest, 0]]
        else:
            blocks[index][1] = self._count
        return self._count

    def give(self, handle: int) -> None:
        """Gives a buffer back; its segment stays."""
        for _, blocks in self._segments if handle else ():
            for index, block in enumerate(blocks):
                if block[1] == handle:
                    block[1] = 0
                    _join(blocks, index)
                    return

    def _segment(self, size: int, small: bool) -> list[list[int]]:
        if small:
            whole = _SMALL_SEGMENT
        elif size < _LARGE:
            whole = _LARGE_SEGMENT
        else:
            whole = -(-size // _ROUND_LARGE) * _ROUND_LARGE
        self.reserved += whole
        blocks = [[whole, 0]]
        self._segments.append((small, blocks))
        return blocks


def _join(blocks: list[list[int]], index: int) -> None:
    for near in (index, index - 1):
        if 0 <= near < len(blocks) - 1 and not blocks[near][1] and not blocks[near + 1][1]:
            blocks[near : near + 2] = [[blocks[near][0] + blocks[near + 1][0], 0]]
