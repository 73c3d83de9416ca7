"""What native libraries print while a session opens, and what it means.

A provider that cannot load raises nothing in some versions: the true reason is only a line on standard output or
standard error, written below Python.
"""

from __future__ import annotations

import os
import re
import stat
import sys
import tempfile
from pathlib import Path
from typing import IO

_MISSING = re.compile(r"(lib[\w+.-]+?\.so(?:\.\d+)*): cannot open shared object file")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_JOIN_GROUPS = "sudo usermod -aG render,video $USER, then log out and in"


class NativeOutput:
    """Keeps what is written to file descriptors 1 and 2 while the block runs, in :attr:`text`.

    A descriptor that is a plain file (the log of a child process) is only read back, never redirected: were it
    redirected, a crash would take its own reason with it. Another descriptor is redirected to a file, and what was
    written is passed on at the end.
    """

    def __init__(self) -> None:
        self.text = ""
        self._logs: dict[int, int] = {}  # descriptor -> size before
        self._redirected: list[tuple[int, int, IO[bytes]]] = []  # descriptor, its copy, the file instead

    def __enter__(self) -> NativeOutput:
        _flush()
        seen = set()
        for descriptor in (1, 2):
            try:
                status = os.fstat(descriptor)
            except OSError:  # closed: nothing can be written there
                continue
            if not stat.S_ISREG(status.st_mode) or not os.access(f"/proc/self/fd/{descriptor}", os.R_OK):
                self._redirect(descriptor)
            elif status.st_ino not in seen:
                seen.add(status.st_ino)
                self._logs[descriptor] = status.st_size
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        _flush()
        parts = [_read_from(descriptor, start) for descriptor, start in self._logs.items()]
        for descriptor, copy, sink in self._redirected:
            os.dup2(copy, descriptor)
            os.close(copy)
            sink.seek(0)
            written = sink.read()
            sink.close()
            with os.fdopen(descriptor, "wb", closefd=False) as out:
                out.write(written)
            parts.append(written)
        self.text = _COLOUR.sub("", b"\n".join(parts).decode(errors="replace"))

    def _redirect(self, descriptor: int) -> None:
        sink = tempfile.TemporaryFile()  # noqa: SIM115
        self._redirected.append((descriptor, os.dup(descriptor), sink))
        os.dup2(sink.fileno(), descriptor)


def explain(text: str) -> tuple[str, str] | None:
    """The cause that a runtime's own words name, and the fix; None where none is known."""
    missing = _MISSING.search(text)
    if missing:
        return f"the library {missing[1]} is missing", _package_of(missing[1])
    for pattern, reason, fix in _CAUSES:
        if re.search(pattern, text):
            return reason, fix
    return None


def first_line(error: BaseException) -> str:
    """The first line of a message, without ONNX Runtime's source position and status ("1 : FAIL : ")."""
    text = str(error).strip().splitlines() or [type(error).__name__]
    return re.sub(r"^.*\[ONNXRuntimeError\] : (\d+ : [A-Z_]+ : )?", "", text[0]).removesuffix(".")


def _package_of(library: str) -> str:
    """How to get a library. A soname's number is ROCm's major version for libamdhip64."""
    if library.startswith("libvulkan"):
        return "sudo apt install libvulkan1 mesa-vulkan-drivers"
    if library.startswith("libmigraphx"):
        return "sudo apt install amdrocm10-migraphx, with ROCm up to 7.2 migraphx (after ROCm: https://rocm.docs.amd.com)"
    if library.startswith("libamdhip64.so."):
        return f"install ROCm {library.rpartition('.')[2]} or newer: https://rocm.docs.amd.com"
    if library.startswith(("libhip", "libroc", "libMIOpen", "libhsa")):
        return "install ROCm in the version that this package was built for: https://rocm.docs.amd.com"
    return f"install the system package that holds {library}"


_CAUSES = (
    (
        r"Failed to get a WebGPU adapter",
        "WebGPU found no GPU",
        "install the GPU's Vulkan driver: see vulkaninfo",
    ),
    (
        r"hipErrorNoDevice|no ROCm-capable device|hipErrorInvalidDevice",
        "the HIP runtime sees no GPU",
        _JOIN_GROUPS,
    ),
    (
        r"hipErrorNoBinaryForGpu|no kernel image is available",
        "ROCm has no kernels for this GPU",
        "use --route ort_webgpu",
    ),
    (r"GLIBC_[\d.]+' not found", "this Linux is older than the package needs", "use a newer distribution"),
    (
        r"[Ee]rror 126\b",
        "a DLL that the provider needs is missing",
        "install the GPU vendor's current driver",
    ),
)


def _read_from(descriptor: int, start: int) -> bytes:
    with Path(f"/proc/self/fd/{descriptor}").open("rb") as log:
        log.seek(start)
        return log.read()


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not stream.closed:
            stream.flush()
