"""Compilers for AMD GPUs that may be installed here: PyPI's ziglang (pip alone), or a system's clang."""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from wavefit.schema import Struct

HEADER = Path(__file__).with_name("opencl_c.h")
INSTALL = "pip install 'wavefit[kernels]'"

_CLANGS = tuple(f"clang-{version}" for version in range(24, 18, -1))  # 19: the oldest that was tried
_LIBCLC = (Path("/usr/lib/clc/amdgcn--amdhsa.bc"), Path("/usr/share/clc/amdgcn--amdhsa.bc"))
_ANSWER_S = 20.0


class Toolchain(Struct, frozen=True, kw_only=True):
    """A compiler with the AMDGPU target, and its linker."""

    name: str  # "zig", "clang-19"
    version: str  # "clang 22.1.8 (zig 0.17.1)"
    clang: tuple[str, ...]  # the command up to its options
    lld: tuple[str, ...]
    library: str | None = None  # path of libclc's bitcode; None: our own header stands in for it


class Missing(Struct, frozen=True, kw_only=True):
    """Why nothing can be compiled here."""

    reason: str
    fix: str


def find(name: str | None = None) -> Toolchain | Missing:
    """The toolchain of that name, or the first that is installed."""
    have = available()
    if not have:
        reason = "no compiler for AMD GPUs is installed (ziglang, or clang 19 or later with lld)"
        return Missing(reason=reason, fix=INSTALL)
    found = next((each for each in have if name in (None, each.name)), None)
    if found is None:
        return Missing(
            reason=f"there is no toolchain {name!r} here", fix=f"it has {', '.join(t.name for t in have)}"
        )
    return found


@cache
def available() -> tuple[Toolchain, ...]:
    """All toolchains that are installed, ziglang's first: it is the same on every machine."""
    return tuple(each for each in (_zig(), *map(_clang, _CLANGS)) if each is not None)


def _zig() -> Toolchain | None:
    spec = find_spec("ziglang")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent
    zig = next((str(path) for path in (folder / "zig", folder / "zig.exe") if path.exists()), None)
    if zig is None:
        return None
    clang, own = _version((zig, "clang", "--version")), _answer((zig, "version"))
    if clang is None or own is None:
        return None
    version = f"clang {clang} (zig {own.strip()})"
    return Toolchain(name="zig", version=version, clang=(zig, "clang"), lld=(zig, "ld.lld"))


def _clang(name: str) -> Toolchain | None:
    clang, lld = shutil.which(name), shutil.which(name.replace("clang", "ld.lld"))
    if clang is None or lld is None:
        return None
    targets, version = _answer((clang, "--print-targets")), _version((clang, "--version"))
    if targets is None or "amdgcn" not in targets or version is None:
        return None
    library = next((str(path) for path in _LIBCLC if path.exists()), None)
    return Toolchain(name=name, version=f"clang {version}", clang=(clang,), lld=(lld,), library=library)


def _version(command: tuple[str, ...]) -> str | None:
    found = re.search(r"clang version (\S+)", _answer(command) or "")
    return found[1] if found else None


def _answer(command: tuple[str, ...]) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_ANSWER_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
