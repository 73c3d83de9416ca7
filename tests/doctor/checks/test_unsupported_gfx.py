from __future__ import annotations

from pathlib import Path

from fakes import software

from wavefit.doctor.checks import unsupported_gfx
from wavefit.schema import Finding


def findings(root: Path, version: int, *known: str, **packages: str) -> list[Finding]:
    machine = software.machine(root, gpus="", packages=packages, files=software.kernels(*known))
    software.gpu(root, version)
    return unsupported_gfx.check(machine)


def test_polaris_has_webgpu_left(tmp_path: Path) -> None:
    (finding,) = findings(tmp_path / "bare", 80003, "gfx1100")
    assert finding.status == "problem"
    assert finding.fixes[0].command == "pip install 'wavefit[webgpu]'"
    (finding,) = findings(tmp_path / "ready", 80003, **{"onnxruntime-ep-webgpu": "0.4.0"})
    assert finding.status == "note"
    assert "ort_webgpu" in finding.verify
    assert finding.fixes == ()


def test_another_build_is_not_overwritten_by_a_fix_that_is_run(tmp_path: Path) -> None:
    (finding,) = findings(tmp_path / "alone", 80003, onnxruntime="1.32.0")
    assert [fix.safe for fix in finding.fixes if "pip" in fix.command] == [True]
    (finding,) = findings(tmp_path / "other", 80003, **{"onnxruntime-gpu": "1.32.0"})
    assert finding.fixes[0].command == "pip uninstall -y onnxruntime-gpu"
    assert not any(fix.safe for fix in finding.fixes)


def test_a_target_that_nobody_lends_kernels_to(tmp_path: Path) -> None:
    (finding,) = findings(tmp_path, 90006, "gfx900", "gfx1100")
    assert "gfx906" in finding.title


def test_covered_or_unknown_is_not_unsupported(tmp_path: Path) -> None:
    assert findings(tmp_path / "own", 110003, "gfx1103") == []
    assert findings(tmp_path / "lent", 110003, "gfx1100") == []
    assert findings(tmp_path / "unknown", 110003) == []


def test_without_rocm_here_its_own_lists_decide(tmp_path: Path) -> None:
    (finding,) = findings(tmp_path / "renoir", 90012)
    assert "gfx90c" in finding.title
    assert findings(tmp_path / "mi300", 90402) == []
    assert findings(tmp_path / "future", 130000) == [], "no source names it"


def test_kernels_for_another_target_alone_are_the_wrong_packages(tmp_path: Path) -> None:
    """ROCm 10 has gfx1100 on its list: what was installed is for an MI210."""
    (finding,) = findings(tmp_path, 110000, "gfx90a")
    assert finding.title == "ROCm here has no kernels for gpu0 (gfx1100); ROCm 10.0 has them"
    assert "install-on-linux" in finding.fixes[0].command
    assert "ROCm 10.0: official" in finding.evidence, "without what is said of other targets"
