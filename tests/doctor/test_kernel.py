"""The kernel's release, modules and log, as checks read them."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes import linux, sysfs

from wavefit.doctor import kernel
from wavefit.doctor.machine import Machine


@pytest.mark.parametrize(
    ("release", "numbers"),
    [
        ("6.14.0-29-generic", (6, 14, 0)),
        ("6.10-rc3", (6, 10, 0)),
        ("5.14.0-570.el9.x86_64", (5, 14, 0)),
        ("4.18.0-553.el8_10.x86_64", (4, 18, 0)),
        ("10.0.26100", (10, 0, 26100)),
        ("unknown", None),
        (None, None),
    ],
)
def test_version(release: str | None, numbers: tuple[int, int, int] | None) -> None:
    assert kernel.version(release) == numbers


def test_a_recorded_machines_log_is_its_own(tmp_path: Path) -> None:
    assert kernel.log(Machine(tmp_path)) is None
    sysfs.write(tmp_path, {"var/log/dmesg": "[ 0.0] from the start"})
    found = kernel.log(Machine(tmp_path))
    assert found == kernel.Log("[ 0.0] from the start", "/var/log/dmesg")
    linux.log(tmp_path, "[ 1.0] amdgpu A\n[ 2.0] other")
    found = kernel.log(Machine(tmp_path))
    assert found is not None
    assert found.source == "/wavefit/dmesg.txt"
    assert found.lines("AMDGPU a") == ["[ 1.0] amdgpu A"]


def test_this_machines_log_is_whole_records_where_it_may_be_read() -> None:
    found = kernel.log(Machine())
    if found is None:
        pytest.skip("this machine lets nobody read its kernel's log")
    assert all(";" not in line[:6] or not line[:1].isdigit() for line in found.text.splitlines())


def test_a_recording_without_modules_does_not_say_that_one_is_missing(tmp_path: Path) -> None:
    assert kernel.module_loaded(Machine(tmp_path)) is None
    (tmp_path / "sys/module").mkdir(parents=True)
    assert kernel.module_loaded(Machine(tmp_path)) is False
