from __future__ import annotations

from pathlib import Path

import pytest
from fakes import linux

from wavefit.doctor.checks import paths


@pytest.mark.parametrize("name", ["VIRTUAL_ENV", "ROCM_PATH", "TMPDIR", "HOME"])
def test_a_blank_in_a_folder_is_named(tmp_path: Path, name: str) -> None:
    (found,) = paths.check(linux.machine(linux.healthy(tmp_path), **{name: "/home/ada/My Models/env"}))
    assert found.status == "note"
    assert found.evidence == (f"{name}=/home/ada/My Models/env",)


def test_without_blanks(tmp_path: Path) -> None:
    (found,) = paths.check(linux.machine(linux.healthy(tmp_path), VIRTUAL_ENV="/home/ada/env"))
    assert found.status == "ok"
