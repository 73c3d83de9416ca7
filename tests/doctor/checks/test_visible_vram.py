from __future__ import annotations

from pathlib import Path

import pytest
from fakes import linux, software, sysfs

from wavefit.doctor.checks import visible_vram

GIB = 1 << 30


def seen(root: Path, vram: int, visible: int) -> Path:
    folder = linux.healthy(root) / "sys/bus/pci/devices" / linux.CARD
    sysfs.write(folder, {"mem_info_vram_total": vram, "mem_info_vis_vram_total": visible})
    return root


@pytest.mark.parametrize(
    ("vram", "visible", "status"),
    [
        (4 * GIB, 256 << 20, "note"),  # the recorded RX 580
        (12868124672, 256 << 20, "note"),  # the recorded RX 6700 XT
        (34342961152, 34342961152, "ok"),  # the recorded MI100
        (24 * GIB, 24 * GIB - (16 << 20), "ok"),
    ],
)
def test_a_bar_that_is_too_small(tmp_path: Path, vram: int, visible: int, status: str) -> None:
    (found,) = visible_vram.check(linux.machine(seen(tmp_path, vram, visible)))
    assert found.status == status
    if status == "note":
        assert "256 MiB" in found.title
        assert "resizable BAR" in found.cause
        assert "directly" not in found.cause, "it is the only card"
        assert not any(fix.safe for fix in found.fixes), "it reboots"


def test_two_cards_are_told_that_they_do_not_reach_each_other(tmp_path: Path) -> None:
    seen(tmp_path, 4 * GIB, 256 << 20)
    software.gpu(tmp_path, 110000, "0000:43:00.0", node=3)
    (found,) = visible_vram.check(linux.machine(tmp_path))
    assert "cannot copy to one another directly" in found.cause


def test_unknown_sizes_and_integrated_gpus_say_nothing(tmp_path: Path) -> None:
    assert visible_vram.check(linux.machine(linux.healthy(tmp_path / "card"))) == []
    root = linux.healthy(tmp_path / "apu", apu=True)
    sysfs.write(root / "sys/bus/pci/devices" / linux.APU, {"mem_info_vis_vram_total": 256 << 20})
    assert visible_vram.check(linux.machine(root)) == []
