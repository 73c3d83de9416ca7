"""A card in partitions: an MI300X in CPX mode is one card of eight parts."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes import sysfs
from fakes.sysfs import GIB

from wavefit.device import kfd
from wavefit.device.probe import probe
from wavefit.device.runtimes import merge_seen
from wavefit.device.seen import Seen
from wavefit.schema import Device, Runtime

ADDRESS = "0000:05:00.0"


def cpx(root: Path, shift: int) -> tuple[Device, ...]:
    """AMD's partitioning guide: CPX gives 8 parts of 38 CUs; NPS4 a quarter of the memory to two of them."""
    sysfs.linux(root)
    files = {
        "vendor": "0x1002",
        "device": "0x74a1",
        "class": "0x120000",
        "mem_info_vram_total": 192 * GIB,
        "current_compute_partition": "CPX",
        "current_memory_partition": "NPS4",
    }
    sysfs.pci(root, ADDRESS, files)
    for part in range(8):
        properties = sysfs.gpu_properties(ADDRESS, simd_count=152, simd_per_cu=4, gfx_target_version=90402)
        properties["location_id"] |= part << shift
        more = {"device_id": 0x74A1, "unique_id": 0xA0B1}
        sysfs.kfd_node(root, 1 + part, properties | more, heap=24 * GIB)
    return probe(root)


@pytest.mark.parametrize("shift", [28, 0], ids=["bits 28 to 31", "the function"])
def test_parts_of_one_card(tmp_path: Path, shift: int) -> None:
    _, card = cpx(tmp_path, shift)
    assert [part.number for part in card.partitions] == list(range(8))
    assert {part.compute_units for part in card.partitions} == {38}
    assert {part.memory_bytes for part in card.partitions} == {24 * GIB}
    assert {part.unique_id for part in card.partitions} == {"a0b1"}
    assert (card.partition_mode, card.compute_units) == ("CPX/NPS4", 304)


@pytest.mark.parametrize("functions", [True, False], ids=["function", "place"])
def test_each_hip_index_is_a_partition_of_the_card(tmp_path: Path, functions: bool) -> None:
    known = cpx(tmp_path, 28)
    seen = hip([f"0000:05:00.{part if functions else 0}" for part in range(8)])
    _, card = merge_seen(known, [seen])
    assert [(runtime.index, runtime.partition) for runtime in card.runtimes] == [(n, n) for n in range(8)]
    assert card.compute_units == 304


def test_which_parts_are_hidden_is_not_guessed(tmp_path: Path) -> None:
    known = cpx(tmp_path, 28)
    _, card = merge_seen(known, [hip(["0000:05:00.0"] * 3)])
    assert [(runtime.index, runtime.partition) for runtime in card.runtimes] == [(n, None) for n in range(3)]
    _, card = merge_seen(known, [hip(["0000:05:00.6", "0000:05:00.7"])])
    assert [runtime.partition for runtime in card.runtimes] == [6, 7]


def test_a_whole_card_has_no_partitions(tmp_path: Path) -> None:
    sysfs.linux(tmp_path)
    sysfs.card(tmp_path)
    _, card = probe(tmp_path)
    assert (card.partitions, card.partition_mode) == ((), None)


def hip(addresses: list[str]) -> Seen:
    devices = tuple(
        Device(
            id="",
            kind="gpu",
            vendor="amd",
            gfx="gfx942",
            pci_address=address,
            compute_units=38,
            runtimes=(Runtime(name="hip", index=index),),
        )
        for index, address in enumerate(addresses)
    )
    return Seen(runtime="hip", devices=devices)


def test_in_the_compute_drivers_order_each_part_takes_a_place(tmp_path: Path) -> None:
    """HIP's index of a card behind one in eight parts is 8."""
    cpx(tmp_path, 28)
    sysfs.kfd_node(tmp_path, 9, sysfs.gpu_properties("0000:03:00.0", simd_count=192, simd_per_cu=2))
    order = kfd.order(tmp_path)
    assert (order.index("0000:05:00.0"), order.index("0000:03:00.0"), len(order)) == (0, 8, 9)
