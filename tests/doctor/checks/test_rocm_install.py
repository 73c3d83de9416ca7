from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from fakes import software

from wavefit.doctor.checks import rocm_install
from wavefit.schema import Finding

GOOD = {
    "opt/rocm/.info/version": "7.1.0-42",
    "opt/rocm/lib/libamdhip64.so.7": "",
    "opt/rocm/bin/rocminfo": "",
    "etc/ld.so.conf.d/10-rocm.conf": "/opt/rocm/lib",
}
PATH = {"PATH": "/usr/bin:/opt/rocm/bin"}
MIGRAPHX = {"onnxruntime-migraphx": "1.27.1"}


def findings(root: Path, files: Mapping[str, str], **more: Mapping[str, str]) -> list[Finding]:
    return rocm_install.check(software.machine(root, files=files, **{"environ": PATH, **more}))


def test_a_good_installation(tmp_path: Path) -> None:
    (finding,) = findings(tmp_path, GOOD)
    assert (finding.status, finding.title) == ("ok", "ROCm 7.1.0-42 is installed")


def test_absent_is_a_note_and_a_problem_for_who_needs_it(tmp_path: Path) -> None:
    (finding,) = findings(tmp_path / "note", {})
    assert finding.status == "note"
    (finding,) = findings(tmp_path / "problem", {}, packages=MIGRAPHX)
    assert finding.status == "problem"
    (finding,) = findings(tmp_path / "wheel", {}, installed={"torch": software.ROCM})
    assert finding.status == "ok"
    assert "brings ROCm 6.4" in finding.title


def test_the_version_file_and_the_library_disagree(tmp_path: Path) -> None:
    files = {**GOOD, "opt/rocm/.info/version": "6.4.1-83"}
    (finding,) = findings(tmp_path, files)
    assert finding.status == "problem"
    assert "6.4.1-83" in finding.title
    assert "/opt/rocm/lib/libamdhip64.so.7" in finding.evidence


@pytest.mark.parametrize(("rocm", "hip", "fits"), [
    ("10.0.0", "7", True), ("10.2.0", "8", True), ("10.0.0", "6", False), ("7.2.4-42", "6", False),
    ("12.0.0", "9", True),
])  # fmt: skip
def test_hips_own_number_is_not_rocms_since_10(tmp_path: Path, rocm: str, hip: str, fits: bool) -> None:
    """Ubuntu's libamdhip64-7 is of ROCm 10.0. Of a ROCm that is not known nothing is said."""
    files = {name: text for name, text in GOOD.items() if "amdhip64" not in name}
    files |= {"opt/rocm/.info/version": rocm, f"opt/rocm/lib/libamdhip64.so.{hip}": ""}
    (finding,) = findings(tmp_path, files)
    assert (finding.status == "ok") is fits


def test_rocm_10_below_a_folder_of_its_version(tmp_path: Path) -> None:
    """AMD's transition guide: /opt/rocm/core-10.0, with or without links to it."""
    files = {
        "opt/rocm/core-10.0/.info/version": "10.0.0",
        "opt/rocm/core-10.0/lib/libamdhip64.so.7": "",
        "etc/ld.so.conf.d/10-rocm.conf": "/opt/rocm/core-10.0/lib",
    }
    (finding,) = findings(tmp_path / "one", files)
    assert (finding.status, finding.title) == ("ok", "ROCm 10.0.0 is installed")
    (finding,) = findings(tmp_path / "two", {**files, "opt/rocm/core-10.2/.info/version": "10.2.0"})
    assert finding.evidence == ("/opt/rocm/core-10.0", "/opt/rocm/core-10.2")


def test_a_distributions_hip_beside_amds(tmp_path: Path) -> None:
    (finding,) = findings(tmp_path, {**GOOD, "usr/lib/x86_64-linux-gnu/libamdhip64.so.5": ""})
    assert finding.status == "note"
    assert "5 and 7" in finding.title


def test_the_loader_was_not_told(tmp_path: Path) -> None:
    files = {name: text for name, text in GOOD.items() if not name.startswith("etc")}
    (finding,) = findings(tmp_path / "note", files)
    assert finding.status == "note"
    (finding,) = findings(tmp_path / "problem", files, packages=MIGRAPHX)
    assert finding.status == "problem"
    assert "tee /etc/ld.so.conf.d/rocm.conf" in finding.fixes[0].command
    environ = {**PATH, "LD_LIBRARY_PATH": "/opt/rocm/lib"}
    (finding,) = findings(tmp_path / "told", files, environ=environ)
    assert finding.status == "ok"


def test_tools_not_on_path(tmp_path: Path) -> None:
    (finding,) = findings(tmp_path, GOOD, environ={"PATH": "/usr/bin:relative"})
    assert finding.status == "note"
    assert "PATH" in finding.fixes[0].command


def test_several_versions(tmp_path: Path) -> None:
    more = {"opt/rocm-6.4.1/.info/version": "6.4.1-83", "opt/rocm-7.1.0/.info/version": "7.1.0-42"}
    (finding,) = findings(tmp_path, {**GOOD, **more})
    assert finding.status == "note"
    assert finding.evidence == ("/opt/rocm-6.4.1", "/opt/rocm-7.1.0")


def test_no_amd_gpu_no_word(tmp_path: Path) -> None:
    assert rocm_install.check(software.machine(tmp_path, gpus="")) == []


def test_a_rocm_without_hip(tmp_path: Path) -> None:
    files = {"opt/rocm/.info/version": "7.1.0-42"}
    (finding,) = findings(tmp_path / "note", files)
    assert (finding.status, "without HIP" in finding.title) == ("note", True)
    (finding,) = findings(tmp_path / "problem", files, packages=MIGRAPHX)
    assert finding.status == "problem"


def test_a_rocm_that_no_link_leads_to_is_found(tmp_path: Path) -> None:
    files = {
        "opt/rocm-7.1.0/.info/version": "7.1.0-42",
        "opt/rocm-7.1.0/lib/libamdhip64.so.7": "",
        "etc/ld.so.conf.d/10-rocm.conf": "/etc",
    }
    (finding,) = findings(tmp_path, files)
    assert finding.title == "the loader does not look in /opt/rocm-7.1.0/lib"
