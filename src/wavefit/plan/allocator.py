"""What PyTorch's caching allocator takes from the driver for a sequence of buffers.

Its rules, from c10/cuda/CUDACachingAllocator.cpp (the same file, hipified, serves ROCm): sizes are rounded up to 512
bytes; buffers of up to 1 MiB come out of 2 MiB segments, up to 10 MiB out of 20 MiB segments, larger ones have a
segment of their own rounded up to 2 MiB; the best-fitting free block is taken and split where what is left over is
512 bytes or more (in a small segment) or over 1 MiB (in a large one); free neighbours are joined; segments are kept
until they are asked for back. Streams and graphs do not share segments.
"""

from __future__ import annotations

from dataclasses import dataclass, field

_ROUND = 512
_SMALL = 1 << 20
_SMALL_SEGMENT = 2 << 20
_LARGE = 10 << 20
_LARGE_SEGMENT = 20 << 20
_ROUND_LARGE = 2 << 20


@dataclass
class Segment:
    """Blocks are [size, handle], handle 0 where it is free."""

    stream: int
    small: bool
    bytes: int
    blocks: list[list[int]]
    largest: int  # free block


@dataclass
class Pool:
    """All segments of a device. ``stream`` is where buffers are taken; ``peak`` is the most ever reserved."""

    reserved: int = 0
    peak: int = 0
    stream: int = 0
    _segments: list[Segment] = field(default_factory=list)
    _held: dict[int, Segment] = field(default_factory=dict)
    _count: int = 0

    def take(self, size: int) -> int:
        """Takes a buffer; returns its handle, 0 for one of no bytes."""
        if size <= 0:
            return 0
        size = -(-size // _ROUND) * _ROUND
        small = size <= _SMALL
        segment = self._best(size, small) or self._segment(size, small)
        blocks = segment.blocks
        index = min((block[0], at) for at, block in enumerate(blocks) if not block[1] and block[0] >= size)[1]
        self._count += 1
        rest = blocks[index][0] - size
        if rest >= _ROUND if small else rest > _SMALL:
            blocks[index : index + 1] = [[size, self._count], [rest, 0]]
        else:
            blocks[index][1] = self._count
        self._held[self._count] = segment
        _measure(segment)
        return self._count

    def _best(self, size: int, small: bool) -> Segment | None:
        """The segment with the smallest free block that is large enough; of equal ones the oldest."""
        found, least = None, 0
        for segment in self._segments:
            if segment.largest < size or segment.small != small or segment.stream != self.stream:
                continue
            block = min(block[0] for block in segment.blocks if not block[1] and block[0] >= size)
            if found is None or block < least:
                found, least = segment, block
        return found

    def give(self, handle: int) -> None:
        """Gives a buffer back; its segment stays."""
        segment = self._held.pop(handle, None)
        if segment is not None:
            index = next(at for at, block in enumerate(segment.blocks) if block[1] == handle)
            segment.blocks[index][1] = 0
            _join(segment.blocks, index)
            _measure(segment)

    def touch(self, size: int) -> None:
        """Takes a buffer and gives it back at once."""
        self.give(self.take(size))

    def empty(self) -> None:
        """Gives segments that are wholly free back to the driver."""
        self.reserved -= sum(segment.bytes for segment in self._segments if segment.largest == segment.bytes)
        self._segments = [segment for segment in self._segments if segment.largest < segment.bytes]

    def _segment(self, size: int, small: bool) -> Segment:
        if small:
            whole = _SMALL_SEGMENT
        elif size < _LARGE:
            whole = _LARGE_SEGMENT
        else:
            whole = -(-size // _ROUND_LARGE) * _ROUND_LARGE
        self.reserved += whole
        self.peak = max(self.peak, self.reserved)
        self._segments.append(Segment(self.stream, small, whole, [[whole, 0]], whole))
        return self._segments[-1]


def _join(blocks: list[list[int]], index: int) -> None:
    for near in (index, index - 1):
        if 0 <= near < len(blocks) - 1 and not blocks[near][1] and not blocks[near + 1][1]:
            blocks[near : near + 2] = [[blocks[near][0] + blocks[near + 1][0], 0]]


def _measure(segment: Segment) -> None:
    segment.largest = max((block[0] for block in segment.blocks if not block[1]), default=0)
