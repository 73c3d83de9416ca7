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


@dataclass
class Pool:
    """All segments of a device. ``stream`` is where buffers are taken; ``peak`` is the most ever reserved."""

    reserved: int = 0
    peak: int = 0
    stream: int = 0
    _segments: list[Segment] = field(default_factory=list)
    _count: int = 0

    def take(self, size: int) -> int:
        """Takes a buffer; returns its handle, 0 for one of no bytes."""
        if size <= 0:
            return 0
        size = -(-size // _ROUND) * _ROUND
        small = size <= _SMALL
        fits = [
            (block[0], number, index)
            for number, segment in enumerate(self._segments)
            if segment.small == small and segment.stream == self.stream
            for index, block in enumerate(segment.blocks)
            if not block[1] and block[0] >= size
        ]
        if fits:
            _, number, index = min(fits)
            blocks = self._segments[number].blocks
        else:
            blocks, index = self._segment(size, small).blocks, 0
        self._count += 1
        rest = blocks[index][0] - size
        if rest >= _ROUND if small else rest > _SMALL:
            blocks[index : index + 1] = [[size, self._count], [rest, 0]]
        else:
            blocks[index][1] = self._count
        return self._count

    def give(self, handle: int) -> None:
        """Gives a buffer back; its segment stays."""
        for segment in self._segments if handle else ():
            for index, block in enumerate(segment.blocks):
                if block[1] == handle:
                    block[1] = 0
                    _join(segment.blocks, index)
                    return

    def touch(self, size: int) -> None:
        """Takes a buffer and gives it back at once."""
        self.give(self.take(size))

    def empty(self) -> None:
        """Gives segments that are wholly free back to the driver."""
        free = [segment for segment in self._segments if [block[1] for block in segment.blocks] == [0]]
        self.reserved -= sum(segment.bytes for segment in free)
        self._segments = [segment for segment in self._segments if all(segment is not each for each in free)]

    def _segment(self, size: int, small: bool) -> Segment:
        if small:
            whole = _SMALL_SEGMENT
        elif size < _LARGE:
            whole = _LARGE_SEGMENT
        else:
            whole = -(-size // _ROUND_LARGE) * _ROUND_LARGE
        self.reserved += whole
        self.peak = max(self.peak, self.reserved)
        self._segments.append(Segment(self.stream, small, whole, [[whole, 0]]))
        return self._segments[-1]


def _join(blocks: list[list[int]], index: int) -> None:
    for near in (index, index - 1):
        if 0 <= near < len(blocks) - 1 and not blocks[near][1] and not blocks[near + 1][1]:
            blocks[near : near + 2] = [[blocks[near][0] + blocks[near + 1][0], 0]]
