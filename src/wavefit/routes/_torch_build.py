"""Whether the PyTorch that is installed can run on a GPU, and which one to install where it cannot."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from typing import NamedTuple

from wavefit.device.torch_build import ROCM_INSTALL, ROCM_NEWER
from wavefit.device.torch_build import Build as Build
from wavefit.device.torch_build import installed as installed
from wavefit.device.torch_build import read as read
from wavefit.schema import Device


class Refusal(NamedTuple):
    reason: str
    fix: str


_LINUX_ROCM = f"{ROCM_INSTALL}, {ROCM_NEWER}"
_WINDOWS_ROCM = (
    "install AMD's ROCm wheels for Windows and the Python they name: "
    "https://rocm.docs.amd.com/projects/radeon-ryzen/en/latest/"
)
_CUDA = "pip install torch, choosing CUDA at https://pytorch.org/get-started/locally"


def refusal(build: Build | None, device: Device) -> Refusal | None:
    """Why that build cannot run on that GPU, None where it may."""
    if device.vendor not in ("amd", "nvidia"):
        maker = device.vendor or "an unknown maker"
        return Refusal(
            f"PyTorch's GPU builds run on AMD and NVIDIA, {device.id} is from {maker}",
            "use --route ort_webgpu, which runs on any GPU with Vulkan or D3D12",
        )
    needed = "ROCm" if device.vendor == "amd" else "CUDA"
    if build is None:
        return Refusal("PyTorch is not installed", _install(device))
    if build.kind != needed:
        what = f"PyTorch {build.version} is a {build.kind} build, {device.id} needs a {needed} build"
        return Refusal(what, f"pip uninstall torch triton, then {_install(device)}")
    return None


def compiler_refusal() -> Refusal | None:
    """Why torch.compile cannot work here: its GPU code goes through Triton, whose launchers a C compiler builds."""
    if importlib.util.find_spec("triton") is None:
        return Refusal(
            "torch.compile needs Triton, which is not installed",
            "install PyTorch again from its wheel index with its dependencies",
        )
    if not any(map(shutil.which, ("cc", "gcc", "clang", "cl"))):
        return Refusal("torch.compile needs a C compiler for Triton's launchers", "install gcc or clang")
    return None


def _install(device: Device) -> str:
    if device.vendor == "nvidia":
        return _CUDA
    return _WINDOWS_ROCM if sys.platform == "win32" else _LINUX_ROCM
