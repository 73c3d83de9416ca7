from __future__ import annotations

from pathlib import Path

import pytest
from fakes import linux, sysfs

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


def test_several_without_sensors_are_one_note(tmp_path: Path) -> None:
    linux.healthy(tmp_path)
    for bus in ("45", "65"):
        files = {"vendor": "0x1002", "device": "0x74a1", "class": "0x120000"}
        sysfs.pci(tmp_path, f"0000:{bus}:00.0", files)
    readable, note = power.check(linux.machine(tmp_path))
    assert (readable.status, note.status) == ("ok", "note")
    assert "0000:45:00.0" in note.title
    assert "0000:65:00.0" in note.title


@pytest.mark.parametrize(
    ("cap", "expected"), [(290, ["ok"]), (150, ["ok", "note"]), (333, ["ok"]), (0, ["ok"])]
)
def test_a_lowered_power_cap_is_a_note(tmp_path: Path, cap: int, expected: list[str]) -> None:
    """The caps are those of the recorded RX 7900 XTX, in microwatts; 0 is a second die's."""
    folder = linux.healthy(tmp_path) / "sys/bus/pci/devices" / linux.CARD / "hwmon/hwmon8"
    sysfs.write(folder, {"power1_cap": cap * 10**6, "power1_cap_default": 290 * 10**6})
    found = power.check(linux.machine(tmp_path))
    assert [each.status for each in found] == expected
    if "note" in expected:
        assert "may draw 150 W in place of 290 W" in found[-1].title
