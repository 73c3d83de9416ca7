"""Versions of what lies below the runtimes: kernel, GPU driver, ROCm."""

from __future__ import annotations

import re
from pathlib import Path

from wavefit.device.files import children, exists, read_text
from wavefit.device.system import kernel


def versions(root: Path = Path("/")) -> dict[str, str]:
    """What is known of "kernel", "amdgpu", "rocm" and "nvidia": file reads only, for a Record's versions."""
    found = {
        "kernel": kernel(root),
        "amdgpu": _amdgpu(root),
        "rocm": rocm(root),
        "nvidia": nvidia_driver(root),
    }
    return {name: version for name, version in found.items() if version is not None}


def rocm(root: Path) -> str | None:
    """The version of the ROCm below /opt, "7.1.0-42"; of several, that which /opt/rocm points to, or the newest."""
    for folder in (root / "opt/rocm", *reversed(list(children(root / "opt", r"rocm-\d.*")))):
        for path in (
            folder / ".info/version",
            *reversed([c / ".info/version" for c in children(folder, r"core.*")]),
        ):
            text = read_text(path)
            if text is not None and re.match(r"\d+\.\d+", text):
                return text.split()[0]
    return None


def amdgpu_driver(root: Path) -> str | None:
    """The driver for people: "amdgpu 6.12.12" where it came with ROCm (DKMS), else "amdgpu in-tree"."""
    if not exists(root / "sys/module/amdgpu"):
        return None
    return f"amdgpu {_amdgpu(root) or 'in-tree'}"


def nvidia_driver(root: Path) -> str | None:
    """The version of NVIDIA's kernel module, "580.65.06"."""
    text = read_text(root / "sys/module/nvidia/version")
    if text is None:
        match = re.search(
            r"Kernel Module\s+(?:for \S+\s+)?(\d[\d.]+)", read_text(root / "proc/driver/nvidia/version") or ""
        )
        text = match[1] if match else None
    return text


def _amdgpu(root: Path) -> str | None:
    """The module's own version. The kernel's in-tree module has none: the kernel's release stands for it."""
    return read_text(root / "sys/module/amdgpu/version")
