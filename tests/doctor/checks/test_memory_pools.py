from __future__ import annotations

from pathlib import Path

import pytest
from fakes import linux, sysfs

from wavefit.doctor.checks import memory_pools
from wavefit.schema import Finding

GIB = 1 << 30
GTT = 31433977856


def apu(root: Path, release: str, offered: int | None, vram: int = 4 * GIB) -> list[Finding]:
    linux.healthy(root, apu=True)
    sysfs.write(root, {"proc/sys/kernel/osrelease": release})
    sysfs.write(root / "sys/bus/pci/devices" / linux.APU, {"mem_info_vram_total": vram})
    bank = root / "sys/class/kfd/kfd/topology/nodes/1/mem_banks/0/properties"
    if offered is None:
        bank.unlink()
    else:
        bank.write_text(f"heap_type 1\nsize_in_bytes {offered}\n")
    return memory_pools.check(linux.machine(root))


@pytest.mark.parametrize(
    ("release", "offered", "status"),
    [
        ("6.8.0-31-generic", 4 * GIB, "note"),
        ("6.14.0-29-generic", GTT, "ok"),
        ("6.8.0-31-generic", None, "note"),
        ("6.9.8", None, "note"),
        ("6.9.9", None, "ok"),
        ("6.10.0-rc1", None, "ok"),
        ("6.8.0-31-generic", GTT, "ok"),  # what the driver offers counts more than a version: backports
    ],
)
def test_carve_out_or_gtt(tmp_path: Path, release: str, offered: int | None, status: str) -> None:
    (found,) = apu(tmp_path, release, offered)
    assert found.status == status
    assert ("4.0 GiB" in found.title) == (status == "note")
    assert ("29.3 GiB" in found.title) == (status == "ok")
    assert any("mem_info_gtt_total" in line for line in found.evidence)


def test_a_carve_out_larger_than_the_gtt_is_used_by_every_kernel(tmp_path: Path) -> None:
    (found,) = apu(tmp_path, "6.14.0-29-generic", 48 * GIB, vram=48 * GIB)
    assert found.status == "ok"
    assert "48.0 GiB" in found.title


def test_a_card_has_memory_of_its_own(tmp_path: Path) -> None:
    assert memory_pools.check(linux.machine(linux.healthy(tmp_path))) == []
