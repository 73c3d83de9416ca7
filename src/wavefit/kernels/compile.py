"""OpenCL C for an AMD GPU that is not here: a code object and its assembly, made by a compiler in a child process."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Literal

from wavefit.kernels.toolchain import HEADER, Toolchain
from wavefit.schema import Struct

OPTIONS = ("-cl-std=CL1.2", "-cl-mad-enable")
"""As the engine gives them to a driver."""

DEADLINE_S = 120.0


class Compiled(Struct, frozen=True, kw_only=True):
    """What the compiler made."""

    target: str
    toolchain: str  # Toolchain.version
    elf: bytes  # the code object
    assembly: str


class Failed(Struct, frozen=True, kw_only=True):
    """Why there is no code object."""

    kind: Literal["refused", "timeout", "crash"]
    reason: str


def compile_source(
    source: str,
    target: str,
    toolchain: Toolchain,
    options: tuple[str, ...] = OPTIONS,
    deadline_s: float = DEADLINE_S,
) -> Compiled | Failed:
    """Compiles OpenCL C.

    Args:
        source: of one or several kernels.
        target: "gfx1103".
        toolchain: which compiler.
        options: as for clBuildProgram.
        deadline_s: of the whole; the compiler is ended after it.
    """
    with tempfile.TemporaryDirectory(prefix="wavefit-kernel-") as folder:
        place = Path(folder)
        (place / "kernel.cl").write_text(source, "utf-8")
        machine = ("-target", "amdgcn-amd-amdhsa", f"-mcpu={target}")
        steps = (
            (
                *toolchain.clang,
                "-S",
                *machine,
                *_language(toolchain),
                *options,
                "kernel.cl",
                "-o",
                "kernel.s",
            ),
            (*toolchain.clang, "-c", *machine, "-x", "assembler", "kernel.s", "-o", "kernel.o"),
            (*toolchain.lld, "-shared", "kernel.o", "-o", "kernel.hsaco"),
        )
        for step in steps:
            failed = _run(step, place, deadline_s, target)
            if failed is not None:
                return failed
        elf, assembly = (place / "kernel.hsaco").read_bytes(), (place / "kernel.s").read_text("utf-8")
    return Compiled(target=target, toolchain=toolchain.version, elf=elf, assembly=assembly)


def _language(toolchain: Toolchain) -> tuple[str, ...]:
    common = ("-x", "cl", "-O3", "-nogpulib", "-w")
    if toolchain.library is None:
        return (*common, "-cl-no-stdinc", "-include", str(HEADER))
    passed = ("-finclude-default-header", "-mlink-builtin-bitcode", toolchain.library)
    return (*common, *(word for each in passed for word in ("-Xclang", each)))


def _run(command: tuple[str, ...], place: Path, deadline_s: float, target: str) -> Failed | None:
    process = subprocess.Popen(
        command,
        cwd=place,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        _, errors = process.communicate(timeout=deadline_s)
    except subprocess.TimeoutExpired:
        _end(process)
        return Failed(kind="timeout", reason=f"the compiler took longer than {deadline_s:g} s for {target}")
    if process.returncode == 0:
        return None
    text = errors.decode("utf-8", "replace")
    if process.returncode < 0:
        name = signal.Signals(-process.returncode).name
        return Failed(kind="crash", reason=f"the compiler was ended by {name} for {target}")
    return Failed(kind="refused", reason=_complaint(text))


def _end(process: subprocess.Popen[bytes]) -> None:
    """The compiler and what it started."""
    if sys.platform == "win32":
        process.kill()
    else:
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def _complaint(text: str) -> str:
    """The compiler's first error: "line 3: use of undeclared identifier 'x'"."""
    found = re.search(r"kernel\.cl:(\d+):\d+: (?:fatal )?error: (.+)", text)
    if found:
        return f"line {found[1]}: {found[2]}"
    found = re.search(r"error: (.+)", text)
    return found[1] if found else " ".join(text.split())[-200:] or "the compiler failed without a word"
