"""Sources made programs by the driver, and its binaries kept.

pyopencl's own cache is not used. On drivers that keep nothing themselves (AMD's, rusticl) it holds a lock file while it
writes, which a process that is killed leaves behind: every later build then waits a minute for it, and fails. A folder
that cannot be written is a KeyError there. Both were seen in 2026.1.4.

PoCL's binaries are not kept. It keeps what it makes itself, and to hand out a binary compiles every kernel once more,
for any work-group: three products of matrices were built in 7.2 s instead of 2.3 (3.0 on 2 cores), to save 0.2 s later.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from pathlib import Path
from typing import Any

from wavefit.schema import fingerprint

_DIGEST = hashlib.sha256().digest_size
_POCL = "Portable Computing Language"


def options(device: Any) -> list[str]:
    """OpenCL C 1.2; 3.0 where integer dot products are offered, which are known to no earlier version."""
    new = "cl_khr_integer_dot_product" in device.extensions.split()
    return ["-cl-std=CL3.0" if new else "-cl-std=CL1.2", "-cl-mad-enable"]


def has_binaries(device: Any) -> bool:
    """Whether a ``pyopencl.Device`` has them ready once a source is built."""
    return bool(device.platform.name.strip() != _POCL)


def build(context: Any, source: str, folder: Path | None = None) -> Any:
    """A built ``pyopencl.Program``. May be called from several threads at once.

    Args:
        context: a ``pyopencl.Context`` of one device.
        source: OpenCL C.
        folder: where binaries are kept; where it cannot be written, the source is compiled again next time.

    Raises:
        pyopencl.Error: it does not compile.
    """
    (device,) = context.devices
    if folder is None or not has_binaries(device):
        return _compiled(context, source)
    import pyopencl as cl

    path = folder / f"{_key(context, source)}.bin"
    binary = _read(path)
    if binary is not None:
        try:
            return load(context, binary)
        except cl.Error:  # of a driver that has changed and bears the same version: made anew
            pass
    program = _compiled(context, source)
    _keep(path, program.get_info(cl.program_info.BINARIES)[0])
    return program


def load(context: Any, binary: bytes) -> Any:
    """A program of what a driver compiled before.

    Raises:
        pyopencl.Error: the driver does not take it.
    """
    import pyopencl as cl

    (device,) = context.devices
    return cl.Program(context, [device], [binary]).build(options(device))


def _compiled(context: Any, source: str) -> Any:
    import pyopencl as cl

    (device,) = context.devices
    return cl.Program(context, source).build(options(device), cache_dir=False)


def _key(context: Any, source: str) -> str:
    (device,) = context.devices
    driver = (device.platform.version, device.version, device.driver_version)
    return fingerprint(source, options(device), device.name, driver)


def _read(path: Path) -> bytes | None:
    """None where there is none, or it is damaged: a driver that is given such a one may crash."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    digest, binary = content[:_DIGEST], content[_DIGEST:]
    return binary if hashlib.sha256(binary).digest() == digest else None


def _keep(path: Path, binary: bytes) -> None:
    part = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(hashlib.sha256(binary).digest() + binary)
        part.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            part.unlink()
