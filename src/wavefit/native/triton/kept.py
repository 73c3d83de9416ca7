"""Code objects in a folder that may be moved, and opened on another machine: what a bundle carries.

Triton's own cache is no such folder: it names its files by their whole paths, and is keyed by where Triton lies. Here a
kernel has a folder of its own, named by its text, types and options, the target and Triton's version, with the code
object and Triton's description of it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

from wavefit.native.operation import Kernel
from wavefit.native.triton.compile import Target, typed
from wavefit.native.triton.versions import triton_version
from wavefit.schema import fingerprint

_DESCRIBED = "kernel.json"


def identity(kernel: Kernel) -> str:
    """What a kernel's code object depends on beside target and compiler."""
    return fingerprint(kernel.source, kernel.types, kernel.options)


def place(kernel: Kernel, target: Target, cache: Path) -> Path:
    """The folder of a kernel's code object."""
    return cache / "kept" / f"{identity(kernel)}-{target.name}-{triton_version()}"


def is_kept(kernel: Kernel, target: Target, cache: Path) -> bool:
    """Whether a folder holds a kernel's code object for a target, made by the Triton that is installed."""
    return (place(kernel, target, cache) / _DESCRIBED).exists()


def keep(compiled: Any, kernel: Kernel, target: Target, cache: Path) -> None:
    """Keeps what Triton compiled. Several processes may keep the same at once.

    Args:
        compiled: Triton's CompiledKernel.
    """
    folder = place(kernel, target, cache)
    folder.mkdir(parents=True, exist_ok=True)
    described = next(Path(path) for name, path in compiled.metadata_group.items() if name.endswith(".json"))
    binary = "hsaco" if target.backend == "hip" else "cubin"
    _write(folder / f"kernel.{binary}", compiled.asm[binary])
    _write(folder / _DESCRIBED, described.read_bytes())  # last: with it the kernel is there


def load(kernel: Kernel, target: Target, cache: Path) -> Any:
    """Triton's CompiledKernel of one that is kept, without its compiler."""
    from triton.compiler import CompiledKernel

    group = {path.name: str(path) for path in place(kernel, target, cache).glob("kernel.*")}
    return CompiledKernel(typed(kernel), group, identity(kernel))


def _write(path: Path, content: bytes) -> None:
    """The whole file or none."""
    part = path.with_name(f"{uuid4().hex}.part")
    part.write_bytes(content)
    part.replace(path)
