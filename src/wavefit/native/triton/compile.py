"""Kernels made code objects by Triton's own compiler, for a GPU that is here or one that is not; kept in a folder.

What Triton keeps is keyed by its version, the text, the target and the options, and names its files by their whole
paths: :mod:`kept` holds code objects that may be moved.
"""

from __future__ import annotations

import hashlib
import linecache
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from wavefit.native.operation import Kernel
from wavefit.schema import Struct

_POINTERS = {
    "float32": "*fp32",
    "float16": "*fp16",
    "bfloat16": "*bf16",
    "int64": "*i64",
    "int32": "*i32",
    "int16": "*i16",
    "int8": "*i8",
    "uint8": "*u8",
    "uint16": "*u16",
    "uint32": "*u32",
    "uint64": "*u64",
    "bool": "*i8",
}
_ALIGNED = [["tt.divisibility", 16]]  # buffers begin at multiples of memory.ALIGNMENT


class Target(Struct, frozen=True, kw_only=True):
    """What code is made for."""

    backend: str  # "hip", "cuda"
    arch: str  # "gfx942", "90"
    wave: int

    @property
    def name(self) -> str:
        return self.arch if self.backend == "hip" else f"sm_{self.arch}"


def of_gfx(gfx: str) -> Target:
    """The target of an AMD GPU: Triton takes waves of 64 on GCN and CDNA, of 32 on RDNA."""
    return Target(backend="hip", arch=gfx, wave=64 if gfx.startswith("gfx9") else 32)


def function(kernel: Kernel) -> Any:
    """The kernel as Triton's decorator makes it: a JITFunction, or the interpreter's."""
    return namespace(kernel)[kernel.name]


def namespace(kernel: Kernel) -> dict[str, Any]:
    """What a kernel's text defines. The text is found again by tracebacks, and by Triton's parser."""
    digest = hashlib.sha256(kernel.source.encode()).hexdigest()[:16]
    name = f"<wavefit {kernel.name} {digest}>"
    linecache.cache[name] = (len(kernel.source), None, kernel.source.splitlines(keepends=True), name)
    found: dict[str, Any] = {"__name__": f"wavefit_kernel_{digest}"}
    exec(compile(kernel.source, name, "exec"), found)
    return found


def typed(kernel: Kernel) -> Any:
    """Triton's ASTSource of a kernel: its function, with the types of its arguments."""
    from triton.compiler import ASTSource

    made = function(kernel)
    return ASTSource(
        fn=made,
        signature={name: _POINTERS[dtype] for name, dtype in zip(made.arg_names, kernel.types, strict=True)},
        constexprs={},
        attrs={(number,): _ALIGNED for number in range(len(kernel.types))},
    )


def compile_kernel(kernel: Kernel, target: Target, cache: Path) -> Any:
    """The code object of a kernel, from the cache where it is in it.

    Returns:
        Triton's CompiledKernel: ``asm``, ``metadata``, and on the GPU's machine ``[grid](*arguments)``.

    Raises:
        Whatever Triton's compiler raises: it has no common base class. Callers run it in a child process or catch
        what they know.
    """
    import triton
    from triton.backends.compiler import GPUTarget

    source = typed(kernel)
    arch: str | int = target.arch if target.backend == "hip" else int(target.arch)
    with caching(cache):
        options = {"enable_fp_fusion": True, **kernel.options}  # a * b + c in one instruction, rounded once
        return triton.compile(source, target=GPUTarget(target.backend, arch, target.wave), options=options)


@contextmanager
def caching(folder: Path) -> Iterator[None]:
    """Has Triton keep what it compiles in a folder."""
    import triton

    with triton.knobs.cache.scope():
        triton.knobs.cache.dir = str(folder)
        yield
