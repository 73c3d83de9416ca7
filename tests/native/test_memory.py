"""The arena: what is alive together never overlaps, and no byte more than needed is taken where that is known."""

from __future__ import annotations

import numpy as np

from wavefit.native.memory import ALIGNMENT, Life, aligned, arrange, bound


def _overlaps(lives: list[Life], offsets: tuple[int, ...]) -> list[tuple[int, int]]:
    found = []
    for a in range(len(lives)):
        for b in range(a):
            together = lives[a].first <= lives[b].last and lives[b].first <= lives[a].last
            apart = offsets[a] + lives[a].bytes <= offsets[b] or offsets[b] + lives[b].bytes <= offsets[a]
            if together and not apart:
                found.append((a, b))
    return found


def test_a_chain_takes_two_buffers() -> None:
    lives = [Life(bytes=1024, first=step, last=step + 1) for step in range(10)]
    arena = arrange(lives)
    assert arena.bytes == arena.bound_bytes == 2048
    assert not _overlaps(lives, arena.offsets)


def test_random_lives_never_overlap_and_stay_near_the_bound() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        lives = []
        for _ in range(int(rng.integers(1, 60))):
            first = int(rng.integers(0, 40))
            size = int(rng.integers(1, 9)) * 1000
            lives.append(Life(bytes=size, first=first, last=first + int(rng.integers(0, 6))))
        arena = arrange(lives)
        assert not _overlaps(lives, arena.offsets)
        assert all(offset % ALIGNMENT == 0 for offset in arena.offsets)
        assert arena.bound_bytes <= arena.bytes <= 1.1 * arena.bound_bytes  # 1.27 by size and breadth alone
        assert arena.bound_bytes == _bound_by_hand(lives)


def _bound_by_hand(lives: list[Life]) -> int:
    steps = range(max(life.last for life in lives) + 1)
    return max(sum(aligned(one.bytes) for one in lives if one.first <= step <= one.last) for step in steps)


def test_nothing_takes_nothing() -> None:
    assert arrange([]).bytes == 0
    assert bound([]) == 0
