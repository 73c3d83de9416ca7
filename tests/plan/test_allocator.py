"""PyTorch's caching allocator, against the rules of c10/cuda/CUDACachingAllocator.cpp."""

from __future__ import annotations

import pytest

from wavefit.plan.allocator import Pool

MIB = 2**20


@pytest.mark.parametrize(
    ("size", "reserved"),
    [
        (1, 2 * MIB),  # small: a segment of 2 MiB
        (MIB, 2 * MIB),
        (MIB + 1, 20 * MIB),  # up to 10 MiB: a segment of 20 MiB
        (10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB),  # from 10 MiB: its own, rounded up to 2 MiB
        (11 * MIB, 12 * MIB),
        (0, 0),
    ],
)
def test_one_buffer(size: int, reserved: int) -> None:
    pool = Pool()
    pool.take(size)
    assert pool.reserved == reserved


def test_small_buffers_share_a_segment() -> None:
    pool = Pool()
    for _ in range(4096):
        pool.take(100)  # rounded up to 512 bytes
    assert pool.reserved == 2 * MIB
    pool.take(100)
    assert pool.reserved == 4 * MIB


def test_what_is_given_back_is_taken_again() -> None:
    pool = Pool()
    first = pool.take(64 * MIB)
    pool.give(first)
    pool.take(60 * MIB)
    assert pool.reserved == 64 * MIB


def test_free_neighbours_are_joined() -> None:
    pool = Pool()
    handles = [pool.take(5 * MIB) for _ in range(4)]
    assert pool.reserved == 20 * MIB
    for handle in handles:
        pool.give(handle)
    pool.take(9 * MIB)
    pool.take(9 * MIB)
    assert pool.reserved == 20 * MIB


def test_a_buffer_between_two_free_ones_keeps_them_apart() -> None:
    pool = Pool()
    handles = [pool.take(5 * MIB) for _ in range(4)]
    pool.give(handles[0])
    pool.give(handles[2])
    pool.take(9 * MIB)
    assert pool.reserved == 40 * MIB


def test_the_smallest_block_that_fits_is_taken() -> None:
    pool = Pool()
    large, small = pool.take(100 * MIB), pool.take(50 * MIB)
    pool.give(large)
    pool.give(small)
    pool.take(40 * MIB)
    pool.take(100 * MIB)
    assert pool.reserved == 150 * MIB
