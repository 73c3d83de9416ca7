"""Which gfx targets ROCm's libraries here have kernels for, and which target's kernels a GPU may borrow.

A list of "supported" GPUs ages; the kernel files that lie on this machine do not: ROCm's rocBLAS has a file a target
(ROCm issue 3059: ``ls /opt/rocm/lib/rocblas/library``).
"""

from __future__ import annotations

import re

from wavefit.doctor.installed import installed, system_targets
from wavefit.doctor.machine import Machine
from wavefit.schema import Device

# The target whose code the others of its family run too. Source: LLVM, lib/Target/AMDGPU/AMDGPU.td: each has all the
# instructions of the first. (The generic targets of docs/AMDGPUUsage.rst are wider: code for gfx9-generic avoids what
# gfx900 and gfx906 do not share.) gfx904 to gfx90a have no lender: theirs are other mixed-precision instructions.
_FAMILIES = {
    "gfx900": "gfx902 gfx909 gfx90c",
    "gfx1010": "gfx1011 gfx1012 gfx1013",
    "gfx1030": "gfx1031 gfx1032 gfx1033 gfx1034 gfx1035 gfx1036",
    "gfx1100": "gfx1101 gfx1102 gfx1103 gfx1150 gfx1151 gfx1152 gfx1153",
    "gfx1200": "gfx1201",
}
_LENDER = {member: lender for lender, members in _FAMILIES.items() for member in members.split()}


def kernels(machine: Machine) -> tuple[str, ...]:
    """The targets that have kernels here, in PyTorch's wheel or in the system's ROCm; empty where neither is here."""
    return tuple(sorted({*installed(machine).targets, *system_targets(machine)}))


def lender(gfx: str, known: tuple[str, ...]) -> str | None:
    """The target whose kernels a GPU without its own may run, where they are here."""
    found = _LENDER.get(gfx)
    return found if found in known else None


def version_of(gfx: str) -> str:
    """A target as the override spells it: gfx1100 is 11.0.0, gfx90a is 9.0.10."""
    digits = gfx.removeprefix("gfx")
    return f"{int(digits[:-2])}.{int(digits[-2], 16)}.{int(digits[-1], 16)}"


def major(gfx: str) -> int:
    """The generation: 11 of gfx1103, 9 of gfx90c, 8 of gfx803."""
    match = re.fullmatch(r"gfx(\d{1,2})[0-9a-f]{2}", gfx)
    return int(match[1]) if match else 0


def spare(gpu: Device, machine: Machine, known: tuple[str, ...]) -> bool:
    """Whether an integrated GPU stands beside a card that has kernels: nobody needs it then."""
    others = [device for device in machine.amd_gpus if device.id != gpu.id and not device.integrated]
    return bool(gpu.integrated) and any(device.gfx in known for device in others)
