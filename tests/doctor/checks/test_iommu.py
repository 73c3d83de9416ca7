from __future__ import annotations

from pathlib import Path

import pytest
from fakes import linux, sysfs

from wavefit.doctor.checks import iommu


def two_cards(root: Path, kind: str | None = None) -> Path:
    linux.healthy(root)
    address = "0000:83:00.0"
    files = {
        "vendor": "0x1002",
        "device": "0x744c",
        "class": "0x030000",
        "hwmon/hwmon9/name": "amdgpu",
        "hwmon/hwmon9/freq2_label": "mclk",
    }
    second = sysfs.pci(root, address, files)
    if kind is not None:
        for folder in (second, root / "sys/bus/pci/devices" / linux.CARD):
            sysfs.write(folder, {"iommu_group/type": kind})
    return root


@pytest.mark.parametrize(("kind", "status"), [("DMA-FQ", "note"), ("DMA", "note"), ("identity", "ok")])
def test_the_groups_type_decides(tmp_path: Path, kind: str, status: str) -> None:
    (found,) = iommu.check(linux.machine(two_cards(tmp_path, kind)))
    assert found.status == status
    assert any(kind in line for line in found.evidence)
    assert not any(fix.safe for fix in found.fixes)


@pytest.mark.parametrize(("words", "status"), [("ro quiet", "note"), ("ro iommu=pt", "ok")])
def test_without_the_type_the_command_line_does(tmp_path: Path, words: str, status: str) -> None:
    sysfs.write(two_cards(tmp_path), {"proc/cmdline": words, "sys/class/iommu/ivhd0/uevent": ""})
    (found,) = iommu.check(linux.machine(tmp_path))
    assert found.status == status


def test_one_card_or_no_iommu_needs_nothing(tmp_path: Path) -> None:
    one = linux.healthy(tmp_path / "one")
    sysfs.write(one / "sys/bus/pci/devices" / linux.CARD, {"iommu_group/type": "DMA"})
    assert iommu.check(linux.machine(one)) == []
    assert iommu.check(linux.machine(two_cards(tmp_path / "two"))) == []
