"""Shared libraries of ROCm, where the dynamic loader looks for them.

Source of the order: ld.so(8): LD_LIBRARY_PATH, then the folders of /etc/ld.so.conf, then /lib and /usr/lib.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from wavefit.device.files import children, exists, read_text
from wavefit.doctor.machine import Machine

_ROCM = ("/opt/rocm/lib", "/opt/rocm/lib64", "/opt/rocm/core/lib")
# The number in HIP's soname is HIP's own major version, which was ROCm's until 7. Sources: Ubuntu's package
# libamdhip64-7, version 10.0; GPUOpen, Orochi pull request 149 (libamdhip64.so.7 and .so.8 below core-10).
_HIP_OF_ROCM = {"5": ("5",), "6": ("6",), "7": ("7",), "10": ("7", "8")}
_SYSTEM = ("/usr/lib", "/usr/lib64", "/lib", "/lib64", "/usr/local/lib")


def rocm(machine: Machine) -> tuple[str, ...]:
    """ROCm's own folders of libraries; those of each version where nothing made the link /opt/rocm.

    Source of the last: AMD, "Transition guide from legacy ROCm release stream": from 7.14 on below /opt/rocm/core-N.
    """
    if machine.exists("/opt/rocm"):
        cores = children(machine.root / "opt/rocm", r"core-\d[\w.-]*")
        return (*_ROCM, *(f"/opt/rocm/{path.name}/lib" for path in cores))
    return tuple(f"/opt/{path.name}/lib" for path in children(machine.root / "opt", r"rocm-\d[\w.-]*"))


def find(machine: Machine, soname: str) -> str | None:
    """The folder of a library that the loader finds, None where it finds none."""
    return next((folder for folder in searched(machine) if exists(_below(machine, folder) / soname)), None)


def versions(machine: Machine, stem: str) -> tuple[str, ...]:
    """The libraries "libamdhip64.so.N" of a stem "libamdhip64.so", each with its folder, in ROCm's folder too."""
    folders = dict.fromkeys((*searched(machine), *rocm(machine)))
    pattern = re.escape(stem) + r"\.\d+"
    found = [
        f"{folder}/{path.name}" for folder in folders for path in children(_below(machine, folder), pattern)
    ]
    return tuple(found)


def hip_of(rocm: str) -> tuple[str, ...]:
    """The numbers that libamdhip64.so may carry in a ROCm of this major version; none where that is not known."""
    return _HIP_OF_ROCM.get(rocm, ())


def rocm_of(hip: str) -> str:
    """Which ROCm has a HIP of this soname, for people: "7 or 10"."""
    return " or ".join(rocm for rocm, numbers in _HIP_OF_ROCM.items() if hip in numbers) or f"with HIP {hip}"


def searched(machine: Machine) -> tuple[str, ...]:
    """The loader's folders, in its order."""
    environ = machine.process.environ if machine.process is not None else {}
    given = [part for part in environ.get("LD_LIBRARY_PATH", "").split(":") if part.startswith("/")]
    multiarch = [f"/usr/lib/{path.name}" for path in children(machine.root / "usr/lib", r"\w+-linux-gnu")]
    return tuple(dict.fromkeys((*given, *_configured(machine), *multiarch, *_SYSTEM)))


def recorded(machine: Machine) -> bool:
    """Whether anything is known of the software here: some recordings hold the hardware alone."""
    return machine.live or machine.exists("/etc")


def _configured(machine: Machine) -> Iterator[str]:
    for path in children(machine.root / "etc/ld.so.conf.d", r".*\.conf"):
        for line in (read_text(path) or "").splitlines():
            folder = line.partition("#")[0].strip()
            if folder.startswith("/"):
                yield folder


def _below(machine: Machine, folder: str) -> Path:
    return machine.root / folder.lstrip("/")
