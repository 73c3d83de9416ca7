"""The memory that a device offers, and the largest batch that fits."""

from __future__ import annotations

import pytest

from wavefit.plan.batch import RESERVE_BYTES, budget, largest_batch
from wavefit.schema import Device, Pool

GIB = 2**30


def pool(name: str, total: int | None, free: int | None = None) -> Pool:
    return Pool(name=name, total_bytes=total, free_bytes=free, source="invented")


def gpu(integrated: bool | None, *pools: Pool) -> Device:
    return Device(id="gpu0", kind="gpu", integrated=integrated, memory=pools)


CPU = Device(id="cpu", kind="cpu", memory=(pool("ram", 32 * GIB, 20 * GIB),))


def test_a_card_offers_its_free_vram_alone() -> None:
    card = gpu(
        False, pool("vram", 24 * GIB, 22 * GIB), pool("gtt", 16 * GIB, 16 * GIB), pool("kfd", 24 * GIB)
    )
    assert budget(card, CPU).bytes == 22 * GIB


def test_a_card_that_is_not_here_offers_its_total() -> None:
    found = budget(gpu(False, pool("vram", 24 * GIB)), None)
    assert found.bytes == 24 * GIB
    assert "total" in found.source


def test_an_apu_is_held_to_what_the_runtime_may_map() -> None:
    apu = gpu(True, pool("vram", 4 * GIB, 4 * GIB), pool("gtt", 14 * GIB, 14 * GIB), pool("kfd", 14 * GIB))
    assert budget(apu, CPU).bytes == 14 * GIB  # never 18


def test_an_apu_is_held_to_what_the_system_has_left() -> None:
    cpu = Device(id="cpu", kind="cpu", memory=(pool("ram", 32 * GIB, 6 * GIB),))
    apu = gpu(True, pool("vram", GIB, GIB), pool("gtt", 14 * GIB, 14 * GIB))
    assert budget(apu, cpu).bytes == 6 * GIB - RESERVE_BYTES


def test_the_cpu_keeps_a_reserve() -> None:
    assert budget(CPU, CPU).bytes == 20 * GIB - RESERVE_BYTES


def test_a_full_machine_offers_nothing() -> None:
    full = Device(id="cpu", kind="cpu", memory=(pool("ram", 32 * GIB, 0),))
    assert budget(full, full).bytes == 0


@pytest.mark.parametrize("device", [gpu(False), gpu(True), gpu(None), Device(id="cpu", kind="cpu")])
def test_unknown_memory_is_none(device: Device) -> None:
    assert budget(device, None).bytes is None


@pytest.mark.parametrize("item", [1, 3, 1000])
@pytest.mark.parametrize("limit", [1001, 5000, 123_457])
def test_the_largest_batch_fits_and_the_next_does_not(item: int, limit: int) -> None:
    def need(batch: int) -> int:
        return 1000 + item * batch

    found = largest_batch(need, limit, most=10**6)
    assert need(found) <= limit if found else need(1) > limit
    assert need(found + 1) > limit


def test_steps_in_the_need_are_followed() -> None:
    def need(batch: int) -> int:
        return 64 * -(-batch // 10)  # blocks of ten

    assert largest_batch(need, 64 * 7) == 70


def test_nothing_fits() -> None:
    assert largest_batch(lambda batch: 100 * batch, 99) == 0


def test_a_need_that_never_grows_ends_at_the_most() -> None:
    assert largest_batch(lambda batch: 5, 10, most=1000) == 1000


def test_more_memory_never_gives_a_smaller_batch() -> None:
    found = [largest_batch(lambda batch: 777 + 13 * batch, limit) for limit in range(700, 2000, 50)]
    assert found == sorted(found)


@pytest.mark.parametrize("limit", [5_000, 123_456, 10_000_000])
def test_a_need_that_bends_is_found_in_few_calls(limit: int) -> None:
    asked: list[int] = []

    def need(batch: int) -> int:
        asked.append(batch)
        return 1000 + round(100 * batch**0.7) + batch // 32 * 50

    found = largest_batch(need, limit)
    assert need(found) <= limit
    assert found == 1 << 16 or need(found + 1) > limit
    assert len(asked) <= 30


def test_few_calls_are_made() -> None:
    asked: list[int] = []

    def need(batch: int) -> int:
        asked.append(batch)
        return 10**8 + 10**6 * batch

    assert largest_batch(need, 20 * 10**9) == 19_900
    assert len(set(asked)) <= 6
