from __future__ import annotations

from pathlib import Path

import pytest
from fakes import software

from wavefit.doctor import installed
from wavefit.doctor.checks import wheels_onnxruntime
from wavefit.schema import Finding

MIGRAPHX = "libonnxruntime_providers_migraphx.so"
NEEDED = ("libamdhip64.so.7", "libmigraphx_c.so.3")
LOADER = {"etc/ld.so.conf.d/rocm.conf": "/opt/rocm/lib # AMD's"}


def migraphx(root: Path, *libraries: str, providers: dict[str, tuple[str, ...]] | None = None) -> Finding:
    files = {f"opt/rocm/lib/{name}": "" for name in libraries} | LOADER
    found = {"providers": {MIGRAPHX: NEEDED} if providers is None else providers}
    packages = {"onnxruntime-migraphx": "1.27.1"}
    (finding,) = wheels_onnxruntime.check(
        software.machine(root, packages=packages, installed=found, files=files)
    )
    return finding


def test_several_builds_share_one_folder(tmp_path: Path) -> None:
    packages = {"onnxruntime": "1.32.0", "onnxruntime_migraphx": "1.27.1"}
    (finding,) = wheels_onnxruntime.check(software.machine(tmp_path, packages=packages))
    assert finding.status == "problem"
    assert finding.fixes[0].command == "pip uninstall -y onnxruntime onnxruntime-migraphx"
    assert finding.fixes[1].command == "pip install 'wavefit[migraphx]'"
    assert not any(fix.safe for fix in finding.fixes)


def test_without_a_gpu_two_builds_are_no_problem_of_a_gpu(tmp_path: Path) -> None:
    packages = {"onnxruntime": "1.32.0", "onnxruntime-gpu": "1.32.0"}
    (finding,) = wheels_onnxruntime.check(software.machine(tmp_path, gpus="", packages=packages))
    assert finding.status == "note"


def test_a_build_without_a_provider_for_amd(tmp_path: Path) -> None:
    (finding,) = wheels_onnxruntime.check(
        software.machine(tmp_path / "cpu", packages={"onnxruntime": "1.32.0"})
    )
    assert finding.status == "note"
    assert [fix.command for fix in finding.fixes if fix.safe] == ["pip install 'wavefit[webgpu]'"]
    (finding,) = wheels_onnxruntime.check(
        software.machine(tmp_path / "cuda", packages={"onnxruntime-gpu": "1.32.0"})
    )
    assert finding.fixes[0].command == "pip uninstall -y onnxruntime-gpu"
    assert not any(fix.safe for fix in finding.fixes), "they would overwrite each other"


def test_the_plug_in_gives_the_plain_build_its_provider(tmp_path: Path) -> None:
    packages = {"onnxruntime": "1.32.0", "onnxruntime-ep-webgpu": "0.4.0"}
    (finding,) = wheels_onnxruntime.check(software.machine(tmp_path, packages=packages))
    assert finding.status == "ok"


def test_a_package_that_finds_its_rocm(tmp_path: Path) -> None:
    assert migraphx(tmp_path, *NEEDED).status == "ok"


def test_a_package_built_for_another_rocm(tmp_path: Path) -> None:
    finding = migraphx(tmp_path, "libamdhip64.so.6", "libmigraphx_c.so.3")
    assert finding.status == "problem"
    assert "libamdhip64.so.7 is missing" in finding.title
    assert "built for ROCm 7" in finding.cause
    assert "needed: libamdhip64.so.7; found: /opt/rocm/lib/libamdhip64.so.6" in finding.evidence


def test_migraphx_itself_is_missing(tmp_path: Path) -> None:
    finding = migraphx(tmp_path, "libamdhip64.so.7")
    assert finding.status == "problem"
    assert finding.fixes[0].command == "sudo apt install amdrocm10-migraphx"


@pytest.mark.parametrize(
    ("rocm", "package"),
    [
        ("7.2.4-42", "migraphx"),
        ("6.4.1", "migraphx"),
        ("7.14.0", "amdrocm-migraphx"),
        ("10.0.0", "amdrocm-migraphx"),
        ("10.2.0", "amdrocm10-migraphx"),
    ],
)
def test_migraphxs_package_changed_its_name(tmp_path: Path, rocm: str, package: str) -> None:
    """AMD's "Install MIGraphX" of each of these versions."""
    machine = software.machine(tmp_path, files={"opt/rocm/.info/version": rocm})
    assert installed.migraphx_package(machine) == package


def test_the_provider_was_overwritten(tmp_path: Path) -> None:
    finding = migraphx(tmp_path, *NEEDED, providers={"libonnxruntime_providers_shared.so": ()})
    assert finding.status == "problem"
    assert MIGRAPHX in finding.title


def test_nothing_recorded_of_the_folder_is_nothing_said(tmp_path: Path) -> None:
    machine = software.machine(tmp_path, packages={"onnxruntime-migraphx": "1.27.1"})
    assert wheels_onnxruntime.check(machine) == []
