"""Which PyTorch is installed, read from its files: importing it may take seconds or hang on a broken driver."""

from __future__ import annotations

import importlib.util
import re
import shutil
import sys
from pathlib import Path
from typing import NamedTuple

from wavefit.schema import Device


class Build(NamedTuple):
    """A PyTorch build: at most one of ``hip`` and ``cuda`` is set, neither in a CPU-only build."""

    version: str
    hip: str | None
    cuda: str | None

    @property
    def kind(self) -> str:
        return "ROCm" if self.hip else "CUDA" if self.cuda else "CPU-only"


class Refusal(NamedTuple):
    reason: str
    fix: str


_LINUX_ROCM = (
    "pip install torch --index-url https://download.pytorch.org/whl/rocm6.4, or the newer ROCm that "
    "https://pytorch.org/get-started/locally offers"
)
_WINDOWS_ROCM = (
    "install AMD's ROCm wheels for Windows and the Python they name: "
    "https://rocm.docs.amd.com/projects/radeon-ryzen/en/latest/"
)
_CUDA = "pip install torch, choosing CUDA at https://pytorch.org/get-started/locally"


def installed() -> Build | None:
    """The PyTorch that ``import torch`` would import, None where there is none."""
    spec = importlib.util.find_spec("torch")
    folders = spec.submodule_search_locations if spec else None
    return read(Path(next(iter(folders))) / "version.py") if folders else None


def read(version_file: Path) -> Build | None:
    """What a ``torch/version.py`` says (torch.version.hip and torch.version.cuda); None without a version."""
    text = version_file.read_text() if version_file.is_file() else ""
    version = _assigned("__version__", text)
    return Build(version, _assigned("hip", text), _assigned("cuda", text)) if version else None


def _assigned(name: str, text: str) -> str | None:
    found = re.search(rf"^{name}\s*(?::[^=]+)?=\s*['\"]([^'\"]+)['\"]", text, re.MULTILINE)
    return found.group(1) if found else None


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
