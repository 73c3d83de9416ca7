from __future__ import annotations

from pathlib import Path

from fakes import linux, sysfs

from wavefit.doctor.checks import wsl
from wavefit.schema import Finding


def only(root: Path, **files: object) -> Finding:
    sysfs.write(root, {"proc/sys/kernel/osrelease": "6.6.87.2-microsoft-standard-WSL2", **files})
    (finding,) = wsl.check(linux.machine(root))
    return finding


def test_without_a_gpu(tmp_path: Path) -> None:
    found = only(tmp_path)
    assert (found.status, "/dev/dxg is missing" in found.title) == ("note", True)
    assert not any(fix.safe for fix in found.fixes), "an update ends what runs in WSL"


def test_with_a_gpu_and_without_rocms_library(tmp_path: Path) -> None:
    found = only(tmp_path, **{"dev/dxg": ""})
    assert found.status == "note"
    assert "librocdxg" in linux.commands(found)
    assert "HSA_ENABLE_DXG_DETECTION=1" in linux.commands(found)


def test_with_both(tmp_path: Path) -> None:
    found = only(tmp_path, **{"dev/dxg": "", "opt/rocm-7.2.1/lib/librocdxg.so.1.2.0": ""})
    assert found.status == "ok"
    assert "/opt/rocm-7.2.1/lib/librocdxg.so.1.2.0" in found.evidence


def test_plain_linux_is_none(tmp_path: Path) -> None:
    assert wsl.check(linux.machine(linux.healthy(tmp_path))) == []
