"""The operating system and its kernel."""

from __future__ import annotations

import platform
from pathlib import Path

from wavefit.device.files import exists, read_pairs, read_text


def is_machine(root: Path) -> bool:
    """Whether a root is this machine's own, not a recorded tree."""
    return root.resolve() == Path(root.resolve().anchor)


def kernel(root: Path) -> str | None:
    """The kernel's release, "6.14.0-29-generic"; on Windows its build, "10.0.26100"."""
    release = read_text(root / "proc/sys/kernel/osrelease")
    if release is None and is_machine(root):
        release = platform.version() if platform.system() == "Windows" else platform.release()
    return release or None


def machine(root: Path) -> str | None:
    """Operating system and kernel, "Ubuntu 24.04.3 LTS, Linux 6.14.0-29-generic"; WSL is said where it is."""
    name = read_pairs(root / "etc/os-release", "=").get("PRETTY_NAME", "").strip("\"'")
    system = platform.system() if is_machine(root) else "Linux"
    release = kernel(root)
    if system == "Windows":
        return f"Windows {platform.release()} ({release})"
    parts = [part for part in (name, f"{system} {release}" if release else "") if part]
    if is_wsl(root):
        parts.append("WSL with /dev/dxg" if exists(root / "dev/dxg") else "WSL without /dev/dxg")
    return ", ".join(parts) or None


def is_wsl(root: Path) -> bool:
    """Whether this is the Windows Subsystem for Linux: its kernels carry Microsoft's name."""
    return "microsoft" in (kernel(root) or "").lower()
