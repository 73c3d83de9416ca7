"""Does a variable hide every AMD GPU from ROCm?"""

from __future__ import annotations

from wavefit.doctor import kernel
from wavefit.doctor.machine import Machine
from wavefit.schema import Finding, Fix

_VARIABLES = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")


def check(machine: Machine) -> list[Finding]:
    """A list ends at the first index that no GPU has: -1, or a number from another machine, in front hides all.

    Sources: ROCm docs, "GPU isolation techniques"; SwarmUI issue 565 (both variables at 1 left no GPU of two, since HIP
    counts only what ROCr shows). Ids ("GPU-4b2c...") are left alone: only ROCm knows them.
    """
    gpus = [gpu for gpu in kernel.gpus(machine) if kernel.computes(machine, gpu)]
    if not gpus or machine.process is None:
        return []
    environ, seen = machine.process.environ, sum(max(1, len(gpu.partitions)) for gpu in gpus)
    for name in _VARIABLES:
        first, *rest = environ.get(name, "").split(",")
        number = _number(first)
        if number is not None and not 0 <= number < seen:
            return [_finding(name, environ[name], seen)]
        if name == "ROCR_VISIBLE_DEVICES" and number is not None:
            seen = 1 + len(rest)  # HIP numbers what is left anew
    return []


def _number(text: str) -> int | None:
    text = text.strip()
    return int(text) if text.removeprefix("-").isdecimal() else None


def _finding(name: str, value: str, seen: int) -> Finding:
    last = f"the last index is {seen - 1}" if seen > 1 else "the only index is 0"
    return Finding(
        check="visible_devices",
        layer="environment",
        status="problem",
        title=f"{name}={value} hides every AMD GPU",
        evidence=(f"environment: {name}={value}", f"GPUs to choose from: {seen}, {last}"),
        cause="ROCm shows only the GPUs that the variable lists, and the list ends at an index that no GPU has",
        fixes=(
            Fix(command=f"unset {name}", why="and take it out of the file that sets it, such as ~/.profile"),
        ),
        verify="rocminfo | grep gfx" if name.startswith("ROCR") else "wavefit devices",
    )
