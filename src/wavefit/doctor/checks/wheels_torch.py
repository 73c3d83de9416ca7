"""PyTorch's build: a CUDA or CPU wheel cannot use an AMD GPU, and pip takes one of them by default."""

from __future__ import annotations

import sys

from wavefit.device.torch_build import ROCM_INSTALL, ROCM_NEWER, Build
from wavefit.doctor.installed import installed, packages
from wavefit.doctor.machine import Machine
from wavefit.schema import Finding, Fix

_NAME = "wheels_torch"
_VERIFY = 'python -c "import torch; print(torch.version.hip, torch.cuda.is_available())"'
_OTHER_WAYS = (
    "onnxruntime-migraphx",
    "onnxruntime-rocm",
    "onnxruntime-webgpu",
    "onnxruntime-ep-webgpu",
    "onnxruntime-directml",
)


def check(machine: Machine) -> list[Finding]:
    build = installed(machine).build
    if (
        build is None
        or not machine.amd_gpus
        or (machine.live and sys.platform == "win32" and _directml(machine))
    ):
        return []
    if build.hip:
        return [_finding("ok", f"PyTorch {build.version} is built for ROCm {build.hip}", build)]
    if build.kind == "CUDA" and any(device.vendor == "nvidia" for device in machine.devices):
        return [
            _finding("note", "PyTorch is a CUDA build: it uses the NVIDIA GPU and not the AMD GPU", build)
        ]
    status = "note" if build.kind == "CPU-only" and _other_way(machine) else "problem"
    title = f"PyTorch {build.version} is a {build.kind} build, which cannot use the AMD GPU"
    return [_finding(status, title, build, _cause(build), _fixes(machine))]


def _directml(machine: Machine) -> bool:
    return "torch-directml" in packages(machine)


def _other_way(machine: Machine) -> bool:
    return any(name in packages(machine) for name in _OTHER_WAYS)


def _cause(build: Build) -> str:
    if build.kind == "CUDA":
        return "On Linux `pip install torch` gets the build for NVIDIA unless another wheel index is named."
    return "The wheel that was installed has no GPU support at all."


def _fixes(machine: Machine) -> tuple[Fix, ...]:
    if machine.live and sys.platform == "win32":
        where = "https://rocm.docs.amd.com/projects/radeon-ryzen/en/latest/"
        return (Fix(command=f"start {where}", why="AMD's ROCm wheels for Windows, and the Python they name"),)
    return (
        Fix(
            command="pip uninstall -y torch torchvision torchaudio triton",
            why="the builds overwrite each other",
        ),
        Fix(command=ROCM_INSTALL, why=ROCM_NEWER),
    )


def _finding(status: str, title: str, build: Build, cause: str = "", fixes: tuple[Fix, ...] = ()) -> Finding:
    return Finding(
        check=_NAME,
        layer="framework",
        status=status,  # type: ignore[arg-type]
        title=title,
        evidence=(f"torch/version.py: version {build.version}, hip {build.hip}, cuda {build.cuda}",),
        cause=cause,
        fixes=fixes,
        verify=_VERIFY if fixes else "",
    )
