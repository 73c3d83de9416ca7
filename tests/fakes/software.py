"""Fake machines with software on them: a recorded tree with packages, ROCm and an environment."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec
from fakes import sysfs

from wavefit.doctor.machine import Machine, Process

CUDA = "__version__ = '2.9.0+cu128'\ncuda: Optional[str] = '12.8'\nhip: Optional[str] = None"
ROCM = "__version__ = '2.9.0+rocm6.4'\ncuda: Optional[str] = None\nhip: Optional[str] = '6.4.43484'"
CPU = "__version__ = '2.9.0+cpu'\ncuda: Optional[str] = None\nhip: Optional[str] = None"


def machine(
    root: Path,
    gpus: str = "card",
    environ: Mapping[str, str] | None = None,
    packages: Mapping[str, str] | None = None,
    installed: Mapping[str, object] | None = None,
    files: Mapping[str, object] | None = None,
) -> Machine:
    """A Linux machine.

    Args:
        gpus: words of "card" (gfx1100), "apu" (gfx1103).
        installed: fields of ``wavefit/installed.json``.
        files: more files, below the root.
    """
    sysfs.linux(root)
    sysfs.cpu_node(root)
    for word in gpus.split():
        {"card": sysfs.card, "apu": sysfs.apu}[word](root)
    facts = {"wavefit/installed.json": msgspec.json.encode(installed or {}).decode()}
    sysfs.write(root, {**facts, **(files or {})})
    process = Process(1000, (1000,), dict(environ or {"PATH": "/usr/bin"}), dict(packages or {}), "3.12.3")
    (root / "wavefit/process.json").write_bytes(msgspec.json.encode(process))
    return Machine(root, process)


def gpu(root: Path, gfx_target_version: int, address: str = "0000:03:00.0", node: int = 1) -> None:
    """Another card, of a target of one's choice."""
    properties = sysfs.gpu_properties(
        address, simd_count=64, simd_per_cu=2, gfx_target_version=gfx_target_version, device_id=0x1
    )
    sysfs.kfd_node(root, node, properties, 8 * sysfs.GIB)
    sysfs.pci(root, address, {"vendor": "0x1002", "device": "0x0001", "class": "0x030000"})


def kernels(*targets: str) -> dict[str, str]:
    """rocBLAS's kernel files below /opt/rocm."""
    return {f"opt/rocm/lib/rocblas/library/TensileLibrary_lazy_{name}.dat": "" for name in targets}
