"""HSA_OVERRIDE_GFX_VERSION: needed, needless, malformed, or set in a shell but not exported.

Sources: ROCr, libhsakmt/src/topology.c: the value is MAJOR.MINOR.STEPPING, also with "_NODE" at the variable's end,
anything else is an error; rocm-systems pull request 5686 (a target of another generation crashes the GPU) and 3461
(so does one on a GPU with kernels of its own); ollama issue 3107: HIP on Windows does not read it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping

from wavefit.doctor.installed import OVERRIDE, installed
from wavefit.doctor.machine import Machine
from wavefit.doctor.targets import kernels, lender, major, spare, version_of
from wavefit.schema import Device, Finding, Fix

_NAME = "override_gfx"
_VERIFY = "rocminfo | grep gfx"


def check(machine: Machine) -> list[Finding]:
    gpus = [device for device in machine.amd_gpus if device.gfx]
    values = _values(machine)
    if not gpus:
        return []
    if machine.live and sys.platform == "win32":
        return [_on_windows(values)] if values else []
    wrong = [_malformed(name, value) for name, value in values.items() if not _is_version(value)]
    if wrong:
        return wrong
    known = kernels(machine)
    found = [finding for gpu in gpus for finding in _of_gpu(gpu, values, known, machine)]
    return found + _not_exported(machine, values)


def _values(machine: Machine) -> Mapping[str, str]:
    environ = machine.process.environ if machine.process is not None else {}
    return {name: environ[name] for name in sorted(environ) if re.fullmatch(rf"{OVERRIDE}(_\d+)?", name)}


def _is_version(value: str) -> bool:
    parts = re.fullmatch(r"(\d{1,3})\.(\d{1,3})\.(\d{1,3})", value)
    return parts is not None and int(parts[1]) <= 63 and int(parts[2]) <= 255 and int(parts[3]) <= 255


def _of_gpu(
    gpu: Device, values: Mapping[str, str], known: tuple[str, ...], machine: Machine
) -> list[Finding]:
    """The verdict on one GPU. A variable for one node is taken as meant: which GPU that is, only ROCm knows."""
    gfx, value = gpu.gfx or "", values.get(OVERRIDE)
    if value is not None and int(value.split(".")[0]) != major(gfx):
        return [_other_generation(gpu, value)]
    if gfx in known:
        return [_needless(gpu, value)] if value is not None else []
    loan = lender(gfx, known)
    if loan is None:
        return []  # unsupported_gfx says what is left
    if value is None and not values:
        return [_needed(gpu, loan, known, spare(gpu, machine, known))]
    if value is not None and value not in map(version_of, known):
        return [_without_kernels(gpu, value, loan, known)]
    return [_in_use(gpu, values)]


def _set(value: str) -> tuple[Fix, ...]:
    return (
        Fix(
            command=f"export {OVERRIDE}={value}",
            why="in the shell that starts the program, and in ~/.profile to keep it",
        ),
    )


def _unset() -> tuple[Fix, ...]:
    return (
        Fix(command=f"unset {OVERRIDE}", why="and take it out of the file that sets it, such as ~/.profile"),
    )


def _label(gpu: Device) -> str:
    return f"{gpu.id} ({gpu.gfx})"


def _needed(gpu: Device, loan: str, known: tuple[str, ...], is_spare: bool) -> Finding:
    value = version_of(loan)
    return Finding(
        check=_NAME,
        layer="environment",
        status="note" if is_spare else "problem",
        title=f"{_label(gpu)} needs {OVERRIDE}={value}",
        evidence=(f"rocBLAS here has kernels for {', '.join(known)}", f"{OVERRIDE} is not set"),
        cause=f"ROCm here has no kernels for {gpu.gfx}, which can run those of {loan}. AMD does not support that.",
        fixes=_set(value),
        verify=_VERIFY,
    )


def _without_kernels(gpu: Device, value: str, loan: str, known: tuple[str, ...]) -> Finding:
    return Finding(
        check=_NAME,
        layer="environment",
        status="problem",
        title=f"{OVERRIDE}={value} names a target that has no kernels here",
        evidence=(f"rocBLAS here has kernels for {', '.join(known)}", f"the GPU is {_label(gpu)}"),
        cause=f"{gpu.gfx} can run the kernels of {loan}, and these are installed.",
        fixes=_set(version_of(loan)),
        verify=_VERIFY,
    )


def _needless(gpu: Device, value: str) -> Finding:
    same = value == version_of(gpu.gfx or "")
    cause = (
        "It changes nothing."
        if same
        else "It makes ROCm run another target's kernels, slower ones or wrong ones."
    )
    return Finding(
        check=_NAME,
        layer="environment",
        status="note",
        title=f"{OVERRIDE}={value} is needless: {_label(gpu)} has kernels of its own",
        evidence=(f"rocBLAS here has kernels for {gpu.gfx}",),
        cause=f"{cause} Where another GPU needs it, {OVERRIDE}_NODE sets it for that node of rocminfo alone.",
        fixes=_unset(),
        verify=_VERIFY,
    )


def _other_generation(gpu: Device, value: str) -> Finding:
    return Finding(
        check=_NAME,
        layer="environment",
        status="problem",
        title=f"{OVERRIDE}={value} is of another generation than {_label(gpu)}",
        evidence=(
            f"environment: {OVERRIDE}={value}",
            f"the GPU's own version is {version_of(gpu.gfx or '')}",
        ),
        cause="Code of another generation does not run on this GPU: it crashes, or hangs the GPU.",
        fixes=_unset(),
        verify=_VERIFY,
    )


def _in_use(gpu: Device, values: Mapping[str, str]) -> Finding:
    return Finding(
        check=_NAME,
        layer="environment",
        status="ok",
        title=f"{_label(gpu)} runs another target's kernels, as it must here",
        evidence=tuple(f"environment: {name}={value}" for name, value in values.items()),
    )


def _malformed(name: str, value: str) -> Finding:
    return Finding(
        check=_NAME,
        layer="environment",
        status="problem",
        title=f"{name}={value!r} is no version",
        evidence=(f"environment: {name}={value!r}",),
        cause="ROCm wants three numbers with dots, without quotes and without gfx: 11.0.0 stands for gfx1100.",
        fixes=(Fix(command=f"unset {name}"),),
        verify=_VERIFY,
    )


def _on_windows(values: Mapping[str, str]) -> Finding:
    return Finding(
        check=_NAME,
        layer="environment",
        status="note",
        title=f"{OVERRIDE} has no effect on Windows",
        evidence=tuple(f"environment: {name}={value}" for name, value in values.items()),
        cause="Only ROCm's runtime on Linux reads it.",
    )


def _not_exported(machine: Machine, values: Mapping[str, str]) -> list[Finding]:
    lines = [line for line in installed(machine).shell if "export " not in line]
    if not lines or values:
        return []
    return [
        Finding(
            check=_NAME,
            layer="environment",
            status="note",
            title=f"{OVERRIDE} is set in a shell's file but not exported",
            evidence=tuple(lines),
            cause="Without export a shell keeps the variable to itself, and the programs it starts do not see it.",
            fixes=tuple(
                Fix(command="export " + line.partition(": ")[2], why="so in that file") for line in lines
            ),
            verify=f"env | grep {OVERRIDE}",
        )
    ]
