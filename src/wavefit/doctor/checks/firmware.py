"""Did the GPU get its firmware?"""

from __future__ import annotations

import re

from wavefit.doctor import driver, kernel
from wavefit.doctor.machine import Machine
from wavefit.schema import Finding, Fix

_CODES = {-2: "the file is missing", -22: "the file is not what the driver expects"}


def check(machine: Machine) -> list[Finding]:
    """amdgpu asks for files of /lib/firmware/amdgpu and gives a GPU up where one that it needs is missing; others,
    like vega20_ta.bin, it can do without. Sources: drivers/base/firmware_loader/main.c for the message; ROCm issues
    912 (not needed) and 1357 (fatal).
    """
    if not kernel.gpus(machine):
        return []
    without = driver.unbound(machine)
    log = kernel.log(machine)
    if log is None:
        return []  # a GPU that has its driver has its firmware; of one that has none, amdgpu_module tells
    failed = log.lines(driver.FIRMWARE_FAILED)
    if not failed:
        return [
            Finding(
                check="firmware",
                layer="driver",
                status="ok",
                title="the kernel's log has no firmware that failed to load",
                evidence=(f"{log.source}, as far back as it reaches",),
            )
        ]
    cause = driver.cause(machine)
    fatal = bool(without) and cause is not None and cause.kind == "firmware"
    return [_finding(machine, log, failed, fatal)]


def _finding(machine: Machine, log: kernel.Log, lines: list[str], fatal: bool) -> Finding:
    names = list(dict.fromkeys(match[1] for line in lines if (match := _match(line))))
    codes = {int(match[2]) for line in lines if (match := _match(line))}
    evidence = [f"{log.source}: {line}" for line in lines[:4]]
    lies = [name for name in names if _lies_there(machine, name)]
    evidence += [f"/lib/firmware/{name} is there: the start image has an older state" for name in lies]
    if fatal:
        title = f"the GPU has no driver because firmware did not load: {', '.join(names)}"
    else:
        title = f"firmware did not load, and the driver went on without it: {', '.join(names)}"
    return Finding(
        check="firmware",
        layer="driver",
        status="problem" if fatal else "note",
        title=title,
        evidence=tuple(evidence),
        cause="; ".join(_CODES.get(code, f"error {code}") for code in sorted(codes)),
        fixes=(
            Fix(
                command="sudo apt install --only-upgrade linux-firmware",
                why="on Debian firmware-amd-graphics, on Fedora amd-gpu-firmware; ROCm's DKMS brings its own",
            ),
            Fix(command="sudo update-initramfs -u && sudo reboot", why="on Fedora and RHEL: sudo dracut -f"),
        ),
        verify="sudo dmesg | grep -i firmware",
    )


def _match(line: str) -> re.Match[str] | None:
    return re.search(driver.FIRMWARE_FAILED, line, re.IGNORECASE)


def _lies_there(machine: Machine, name: str) -> bool:
    return any(machine.exists(f"/lib/firmware/{name}{packed}") for packed in ("", ".zst", ".xz"))
