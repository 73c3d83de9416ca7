"""Does the slot pass PCIe atomics, which compute on most cards needs?"""

from __future__ import annotations

import re

from wavefit.doctor import kernel
from wavefit.doctor.machine import Machine
from wavefit.schema import Device, Finding, Fix

# "skipped device 1002:67df, PCI rejects atomics 730<0": the firmware's version, and the first that does without
# atomics, 0 where there is none. Source: kgd2kfd_device_init() in drivers/gpu/drm/amd/amdkfd/kfd_device.c.
_REJECTED = r"skipped device ([0-9a-f]{4}:[0-9a-f]{4}), PCI rejects atomics(?:\s+(\d+)<(\d+))?"


def check(machine: Machine) -> list[Finding]:
    """A GPU that the compute driver lists has what it needs. Of others the kernel's log tells."""
    gpus = [gpu for gpu in kernel.gpus(machine) if not gpu.integrated and kernel.driver(gpu) == "amdgpu"]
    left_out = [gpu for gpu in gpus if kernel.computes(machine, gpu) is False]
    listed = [gpu for gpu in gpus if kernel.computes(machine, gpu)]
    findings = []
    if listed and not left_out:
        findings.append(
            Finding(
                check="pcie_atomics",
                layer="hardware",
                status="ok",
                title="the compute driver took every card, so its slot suffices",
                evidence=tuple(f"/sys/class/kfd lists {kernel.called(gpu)}" for gpu in listed),
            )
        )
    log = kernel.log(machine) if left_out else None
    for gpu in left_out if log is not None else ():
        findings += _rejected(gpu, log)
    return findings


def _rejected(gpu: Device, log: kernel.Log | None) -> list[Finding]:
    assert log is not None
    for line in log.lines(_REJECTED):
        match = re.search(_REJECTED, line, re.IGNORECASE)
        if match is None or match[1].lower() != gpu.pci_id:
            continue
        firmware, needed = (int(match[2] or 0), int(match[3] or 0))
        return [_problem(gpu, f"{log.source}: {line}", firmware, needed)]
    return []


def _problem(gpu: Device, evidence: str, firmware: int, needed: int) -> Finding:
    slot = Fix(
        command="sudo lspci -vv | grep -E '^[0-9a-f]|AtomicOps'",
        why="use a slot that the CPU itself drives, PCIe 3 or later: one behind the chipset often lacks atomics",
        safe=True,
    )
    update = Fix(
        command="sudo apt install --only-upgrade linux-firmware && sudo update-initramfs -u && sudo reboot",
        why=f"firmware {needed} or later does without atomics",
    )
    return Finding(
        check="pcie_atomics",
        layer="hardware",
        status="problem",
        title=f"the compute driver left {kernel.called(gpu)} out: its slot passes no PCIe atomics",
        evidence=(evidence,),
        cause=f"the card's firmware {firmware} needs PCIe atomics, firmware from {needed} on does not"
        if needed
        else "this chip cannot compute without PCIe atomics, and a bridge between it and the CPU does not pass them",
        fixes=(update, slot) if needed else (slot,),
        verify="sudo dmesg | grep -i kfd",
    )
