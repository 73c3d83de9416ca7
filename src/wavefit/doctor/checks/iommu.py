"""With several cards: does the IOMMU let them reach each other and the memory?"""

from __future__ import annotations

from pathlib import Path

from wavefit.device.files import children, read_text
from wavefit.doctor import kernel
from wavefit.doctor.machine import Machine
from wavefit.schema import Device, Finding, Fix

# Documentation/ABI/testing/sysfs-kernel-iommu_groups: "identity" is passthrough, "DMA" and "DMA-FQ" translate.
_PASSES = "identity"


def check(machine: Machine) -> list[Finding]:
    """An IOMMU that translates makes programs on several GPUs hang or copy wrongly; iommu=pt lets it pass.

    Sources: ROCm installation FAQ, "Issue #5: Application hangs on Multi-GPU systems"; kernel-parameters.txt, iommu=pt
    and iommu.passthrough.
    """
    cards = [gpu for gpu in kernel.gpus(machine) if not gpu.integrated and kernel.driver(gpu) == "amdgpu"]
    if len(cards) < 2:
        return []
    kinds = {gpu.id: _kind(gpu) for gpu in cards}
    words = kernel.command_line(machine)
    passing = [
        word for word in words if word in ("iommu=pt", "iommu.passthrough=1", "iommu=off", "amd_iommu=off")
    ]
    evidence = [f"{kernel.folder(gpu)}/iommu_group/type: {kinds[gpu.id]}" for gpu in cards if kinds[gpu.id]]
    evidence += [f"/proc/cmdline has {word}" for word in passing]
    translated = [kind for kind in kinds.values() if kind is not None and kind != _PASSES]
    if translated or (not passing and not any(kinds.values()) and _on(machine)):
        return [_note(len(cards), evidence)]
    if not evidence:
        return []
    title = "the IOMMU lets the cards' memory accesses pass"
    return [Finding(check="iommu", layer="driver", status="ok", title=title, evidence=tuple(evidence))]


def _kind(gpu: Device) -> str | None:
    return read_text(Path(gpu.sysfs) / "iommu_group/type") if gpu.sysfs is not None else None


def _on(machine: Machine) -> bool:
    return any(True for _ in children(machine.root / "sys/class/iommu", r".+"))


def _note(cards: int, evidence: list[str]) -> Finding:
    return Finding(
        check="iommu",
        layer="driver",
        status="note",
        title=f"{cards} cards work behind an IOMMU that translates: programs on several of them may hang",
        evidence=tuple(evidence) or ("/sys/class/iommu has an IOMMU, /proc/cmdline has no iommu=pt",),
        cause="AMD asks for iommu=pt where one program uses several GPUs; one GPU alone works without",
        fixes=(
            Fix(command="sudoedit /etc/default/grub", why="add iommu=pt to GRUB_CMDLINE_LINUX"),
            Fix(
                command="sudo update-grub && sudo reboot",
                why="on Fedora and RHEL: sudo grubby --update-kernel=ALL --args=iommu=pt",
            ),
        ),
        verify="cat /sys/bus/pci/devices/*/iommu_group/type | sort | uniq -c",
    )
