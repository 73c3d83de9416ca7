"""The facts of a machine that the meaning of an error message depends on."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from wavefit.device import system
from wavefit.device.versions import rocm
from wavefit.doctor import kernel
from wavefit.doctor.container import container
from wavefit.doctor.installed import OVERRIDE, Installed, installed, system_targets
from wavefit.doctor.known_errors import When
from wavefit.doctor.machine import Machine, Process
from wavefit.doctor.nodes import nodes
from wavefit.doctor.targets import lender, version_of

_KFD = "/dev/kfd"
_LENDERS = (
    "gfx900",
    "gfx1030",
    "gfx1100",
)  # what builds mostly have, where the one that is meant is not here


@dataclass(frozen=True)
class Facts:
    """What is known; None where it is not."""

    gfx: tuple[str, ...]
    integrated: tuple[bool | None, ...]  # one an AMD GPU
    container: bool
    wsl: bool
    group: int | None  # the numeric id of the group of /dev/kfd
    member: bool | None
    override: str | None  # HSA_OVERRIDE_GFX_VERSION, "" where it is known not to be set
    torch: str | None  # "ROCm", "CUDA", "CPU-only", "none"
    compiled: tuple[str, ...]  # the targets that rocBLAS here has kernels for; empty where there is none
    rocm: str | None
    card: int | None  # the index by which HIP calls the first card

    def hold(self, when: When) -> bool:
        """Whether every condition that is given is known to hold."""
        truths = {
            "gpu": bool(self.integrated),
            "integrated": _same(self.integrated),
            "mixed": {True, False} <= set(self.integrated),
            "several": len(self.integrated) > 1,
            "container": self.container,
            "wsl": self.wsl,
            "member": self.member,
            "override": None if self.override is None else bool(self.override),
            "compiled": self._has_kernels(),
            "lender": self._lender() is not None,
            "rocm": self.rocm is not None,
        }
        given = {name: getattr(when, name) for name in truths if getattr(when, name) is not None}
        return (
            all(truths[name] is wanted for name, wanted in given.items())
            and (not when.gfx or any(gfx in when.gfx for gfx in self.gfx))
            and (not when.torch or self.torch in when.torch)
            and (not when.rocm_before or _older(self.rocm, when.rocm_before))
        )

    def words(self) -> dict[str, str]:
        """What stands for ``<name>`` in a text, as far as it is known."""
        loan = self._lender()
        known = {
            "gfx": ", ".join(dict.fromkeys(self.gfx)),
            "override": version_of(loan) if loan else "",
            "set": self.override or "",
            "compiled": ", ".join(self.compiled),
            "group": "" if self.group is None else str(self.group),
            "rocm": (self.rocm or "").partition("-")[0],
            "card": "" if self.card is None else str(self.card),
        }
        return {name: text for name, text in known.items() if text}

    def _has_kernels(self) -> bool | None:
        if not self.compiled or not self.gfx:
            return None
        return all(gfx in self.compiled for gfx in self.gfx)

    def _lender(self) -> str | None:
        """The target whose kernels a GPU without its own may run."""
        known = self.compiled or _LENDERS
        loans = (lender(gfx, known) for gfx in self.gfx if gfx not in known)
        return next((loan for loan in loans if loan), None)


def gather(machine: Machine) -> Facts:
    """Reads them: files, and /dev/kfd opened in a child with a deadline."""
    gpus, process, python = machine.amd_gpus, machine.process, installed(machine)
    node = nodes(machine, [_KFD]).get(_KFD)
    group = node.gid if node is not None else None
    return Facts(
        gfx=tuple(gpu.gfx for gpu in gpus if gpu.gfx),
        integrated=tuple(gpu.integrated for gpu in gpus),
        container=container(machine) is not None,
        wsl=system.is_wsl(machine.root),
        group=group,
        member=_is_member(process, group),
        override=process.environ.get(OVERRIDE, "") if process else None,
        torch=_torch(machine, python),
        compiled=python.targets or system_targets(machine),
        rocm=rocm(machine.root),
        card=_card(machine),
    )


def as_said(facts: Facts, line: str) -> Facts:
    """With the targets that a line names, where this machine has no AMD GPU: the line is another machine's then."""
    said = tuple(dict.fromkeys(re.findall(r"\bgfx[0-9a-f]{3,4}\b", line)))
    if facts.integrated or not said:
        return facts
    return replace(facts, gfx=said, compiled=(), rocm=None)


def _card(machine: Machine) -> int | None:
    card = next((gpu for gpu in machine.amd_gpus if gpu.integrated is False), None)
    return kernel.hip_index(machine, card) if card is not None else None


def _torch(machine: Machine, python: Installed) -> str | None:
    if python.build is not None:
        return python.build.kind
    return "none" if machine.live else None


def _is_member(process: Process | None, group: int | None) -> bool | None:
    if process is None or group is None:
        return None
    return process.uid == 0 or group in process.groups


def _same(values: tuple[bool | None, ...]) -> bool | None:
    """True where all are, False where none is, else None."""
    return values[0] if values and len(set(values)) == 1 else None


def _older(version: str | None, than: str) -> bool:
    return version is not None and _number(version) < _number(than)


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])
