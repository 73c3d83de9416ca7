from __future__ import annotations

from pathlib import Path

import pytest
from fakes import linux

from wavefit.doctor.checks import kernel_version, pcie_atomics

# Lines that machines printed: the first on a Westmere Xeon, the second with a Radeon Pro W5500 on an X58 board,
# the third by kernels of 2019, which gave no numbers (ROCm-docker issues)
LINES = {
    "kfd kfd: amdgpu: skipped device 1002:744c, PCI rejects atomics 730<0": "cannot compute without",
    "kfd kfd: amdgpu: skipped device 1002:744c, PCI rejects atomics 123<145": "firmware from 145 on",
    "kfd kfd: skipped device 1002:744c, PCI rejects atomics": "cannot compute without",
}


@pytest.mark.parametrize("line", LINES)
def test_slot_or_firmware_is_told_by_the_two_numbers(tmp_path: Path, line: str) -> None:
    linux.without_compute(linux.healthy(tmp_path))
    linux.log(tmp_path, line)
    (found,) = pcie_atomics.check(linux.machine(tmp_path))
    assert found.status == "problem"
    assert LINES[line] in found.cause
    assert ("linux-firmware" in linux.commands(found)) == ("<145" in line)
    assert "sudo lspci -vv" in linux.commands(found), "only root sees capabilities"
    assert kernel_version.check(linux.machine(tmp_path)) == []  # one state, one problem


def test_another_cards_message_is_not_this_ones(tmp_path: Path) -> None:
    linux.without_compute(linux.healthy(tmp_path))
    linux.log(tmp_path, "kfd kfd: skipped device 1002:67df, PCI rejects atomics 730<0")
    assert pcie_atomics.check(linux.machine(tmp_path)) == []


def test_an_old_message_does_not_count_against_a_card_that_is_listed(tmp_path: Path) -> None:
    linux.log(linux.healthy(tmp_path), "kfd kfd: skipped device 1002:744c, PCI rejects atomics 730<0")
    (found,) = pcie_atomics.check(linux.machine(tmp_path))
    assert found.status == "ok"


def test_an_integrated_gpu_has_no_slot(tmp_path: Path) -> None:
    assert pcie_atomics.check(linux.machine(linux.healthy(tmp_path, apu=True))) == []
