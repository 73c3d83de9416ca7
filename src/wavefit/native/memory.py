"""One arena for all intermediate tensors: which may share bytes, by when each is alive, and where each lies."""

from __future__ import annotations

from collections.abc import Sequence

from wavefit.schema import Struct

ALIGNMENT = 512
"""Bytes. Sub-buffers must begin at a multiple of CL_DEVICE_MEM_BASE_ADDR_ALIGN: 4096 bits on NVIDIA, 2048 on AMD."""

_CLIMBS = 20  # arrangements tried from one start, where the first is not the least possible
_Offsets = tuple[list[int], int]
"""Where each stretch lies, and where the last ends."""


class Life(Struct, frozen=True, kw_only=True):
    """A stretch of memory that is needed from one step to another, both inclusive."""

    bytes: int
    first: int
    last: int


class Arena(Struct, frozen=True, kw_only=True):
    """Where each stretch lies.

    ``bound_bytes`` is the most that is alive at any one step, which no arrangement can go below.
    """

    offsets: tuple[int, ...]
    bytes: int
    bound_bytes: int


def arrange(lives: Sequence[Life]) -> Arena:
    """Offsets such that stretches that are alive together do not overlap.

    The largest is placed first, each at the lowest offset that is free during its life ("greedy by size": Pisarchyk and
    Lee, Efficient Memory Management for Deep Neural Net Inference, 2020). Where that leaves holes, the order of the
    steps' own breadth is tried too, then either with what came to lie on top placed first; the smallest is kept.
    """
    sizes = [aligned(life.bytes) for life in lives]
    least = bound(lives)
    by_size = sorted(range(len(lives)), key=lambda one: (-sizes[one], lives[one].first))
    starts = (by_size, _by_breadth(lives, sizes))
    best = min((_placed(lives, sizes, order) for order in starts), key=_end)
    for order in starts:
        if _end(best) > least:
            best = min(best, _climbed(lives, sizes, order, least), key=_end)
    return Arena(offsets=tuple(best[0]), bytes=_end(best), bound_bytes=least)


def _climbed(lives: Sequence[Life], sizes: Sequence[int], order: list[int], least: int) -> _Offsets:
    """The best of some arrangements, each of which places first what lay on top in the one before."""
    best = _placed(lives, sizes, order)
    placed = best
    for _ in range(_CLIMBS):
        if _end(best) == least:
            break
        top = max(range(len(lives)), key=lambda one: placed[0][one] + sizes[one])
        order = [top, *(one for one in order if one != top)]
        placed = _placed(lives, sizes, order)
        best = min(best, placed, key=_end)
    return best


def _end(placed: _Offsets) -> int:
    return placed[1]


def bound(lives: Sequence[Life]) -> int:
    """The most bytes that are alive at one step, each rounded up to :data:`ALIGNMENT`."""
    steps = 1 + max((life.last for life in lives), default=-1)
    alive = [0] * (steps + 1)
    for life in lives:
        alive[life.first] += aligned(life.bytes)
        alive[life.last + 1] -= aligned(life.bytes)
    most = now = 0
    for change in alive:
        now += change
        most = max(most, now)
    return most


def aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _placed(lives: Sequence[Life], sizes: Sequence[int], order: Sequence[int]) -> _Offsets:
    offsets = [0] * len(lives)
    done: list[int] = []
    end = 0
    for one in order:
        taken = sorted(
            (offsets[other], offsets[other] + sizes[other])
            for other in done
            if lives[other].first <= lives[one].last and lives[one].first <= lives[other].last
        )
        offset = 0
        for start, stop in taken:
            if offset + sizes[one] <= start:
                break
            offset = max(offset, stop)
        offsets[one] = offset
        end = max(end, offset + sizes[one])
        done.append(one)
    return offsets, end


def _by_breadth(lives: Sequence[Life], sizes: Sequence[int]) -> list[int]:
    """Those alive at the fullest step first, then those of the next fullest ("greedy by breadth" of the same paper)."""
    steps = 1 + max((life.last for life in lives), default=-1)
    alive: list[list[int]] = [[] for _ in range(steps)]
    for one, life in enumerate(lives):
        for step in range(life.first, life.last + 1):
            alive[step].append(one)
    order: dict[int, None] = {}
    for step in sorted(range(steps), key=lambda step: -sum(sizes[one] for one in alive[step])):
        order.update(dict.fromkeys(sorted(alive[step], key=lambda one: -sizes[one])))
    return list(order)
