"""Is there room for the caches of compiled kernels?"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from wavefit.doctor import kernel
from wavefit.doctor.machine import Machine
from wavefit.schema import Finding, Fix

_LEAST_BYTES = 2 << 30
"""MIOpen's and PyTorch's caches of a few models take hundreds of MiB, and a compiled model that much again: a guess,
with room. Where they lie: MIOpen docs, "Cache" (~/.cache/miopen); PyTorch docs, TORCHINDUCTOR_CACHE_DIR (below TMPDIR).
"""


def check(machine: Machine) -> list[Finding]:
    """Only this machine's disks can be asked."""
    if not machine.live or not kernel.gpus(machine) or machine.process is None:
        return []
    home = machine.process.environ.get("HOME", "")
    cache = Path(machine.process.environ.get("XDG_CACHE_HOME") or (f"{home}/.cache" if home else "/tmp"))
    return [examine(cache)]


def examine(cache: Path, least_bytes: int = _LEAST_BYTES) -> Finding:
    """Free space and the right to write, for a folder that need not be there yet."""
    there = next(path for path in (cache, *cache.parents) if path.is_dir())
    if not os.access(there, os.W_OK):
        return _note(
            cache, f"the caches' folder {there} cannot be written", "each start compiles its kernels anew"
        )
    free = shutil.disk_usage(there).free
    if free < least_bytes:
        title = f"only {free / (1 << 30):.1f} GiB are free for caches"
        return _note(cache, title, "caches of compiled kernels may fill the disk")
    return Finding(
        check="disk",
        layer="environment",
        status="ok",
        title=f"{free / (1 << 30):.0f} GiB are free for caches",
        evidence=(str(cache),),
    )


def _note(cache: Path, title: str, cause: str) -> Finding:
    return Finding(
        check="disk",
        layer="environment",
        status="note",
        title=title,
        evidence=(str(cache),),
        cause=cause,
        fixes=(
            Fix(command="export XDG_CACHE_HOME=/PATH/WITH/ROOM", why="and MIOPEN_CUSTOM_CACHE_DIR likewise"),
        ),
        verify=f"df -h {cache}",
    )
