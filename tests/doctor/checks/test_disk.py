from __future__ import annotations

import os
from pathlib import Path

import pytest
from fakes import linux

from wavefit.doctor.checks import disk


def test_room_is_that_of_the_nearest_folder_that_exists(tmp_path: Path) -> None:
    found = disk.examine(tmp_path / "not/yet/there", least_bytes=1)
    assert found.status == "ok"


def test_too_little_room(tmp_path: Path) -> None:
    """No disk has 2^80 bytes."""
    found = disk.examine(tmp_path, least_bytes=1 << 80)
    assert found.status == "note"
    assert "GiB are free" in found.title


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    found = disk.examine(tmp_path)
    tmp_path.chmod(0o700)
    assert "cannot be written" in found.title


def test_another_machines_disk_is_not_known(tmp_path: Path) -> None:
    assert disk.check(linux.machine(linux.healthy(tmp_path))) == []
