from __future__ import annotations

from pathlib import Path

import pytest
from fakes import linux

from wavefit.doctor.checks import power


def test_readable(tmp_path: Path) -> None:
    (found,) = power.check(linux.machine(linux.healthy(tmp_path)))
    assert found.status == "ok"
    assert found.evidence == ("amdgpu hwmon power1_average (PPT)",)


@pytest.mark.parametrize("value", ["N/A", "65535", "0", None])
def test_what_firmware_does_not_know_is_a_note(tmp_path: Path, value: str | None) -> None:
    path = linux.healthy(tmp_path) / "sys/bus/pci/devices" / linux.CARD / "hwmon/hwmon8/power1_average"
    path.unlink() if value is None else path.write_text(f"{value}\n")
    (found,) = power.check(linux.machine(tmp_path))
    assert found.status == "note"
