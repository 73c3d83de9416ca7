from __future__ import annotations

from pathlib import Path

import pytest
from fakes import software

from wavefit.doctor.checks import wheels_torch


@pytest.mark.parametrize(
    ("torch", "status", "says"),
    [
        (software.CUDA, "problem", "2.9.0+cu128 is a CUDA build"),
        (software.CPU, "problem", "2.9.0+cpu is a CPU-only build"),
        (software.ROCM, "ok", "built for ROCm 6.4.43484"),
    ],
)
def test_the_build_beside_an_amd_gpu(torch: str, status: str, says: str, tmp_path: Path) -> None:
    (finding,) = wheels_torch.check(software.machine(tmp_path, installed={"torch": torch}))
    assert finding.status == status
    assert says in finding.title
    if status == "problem":
        assert any("download.pytorch.org/whl/rocm" in fix.command for fix in finding.fixes)
        assert not any(fix.safe for fix in finding.fixes), "an uninstall is never run"
        assert finding.verify


def test_a_cpu_build_is_a_note_where_another_package_uses_the_gpu(tmp_path: Path) -> None:
    packages = {"onnxruntime-migraphx": "1.27.1"}
    (finding,) = wheels_torch.check(
        software.machine(tmp_path, packages=packages, installed={"torch": software.CPU})
    )
    assert finding.status == "note"


def test_a_cuda_build_uses_the_nvidia_gpu_beside(tmp_path: Path) -> None:
    files = {"proc/driver/nvidia/gpus/0000:81:00.0/information": "Model: \t NVIDIA H200"}
    (finding,) = wheels_torch.check(
        software.machine(tmp_path, installed={"torch": software.CUDA}, files=files)
    )
    assert finding.status == "note"


def test_without_an_amd_gpu_or_without_torch_there_is_nothing_to_say(tmp_path: Path) -> None:
    assert (
        wheels_torch.check(software.machine(tmp_path / "a", gpus="", installed={"torch": software.CUDA}))
        == []
    )
    assert wheels_torch.check(software.machine(tmp_path / "b")) == []
