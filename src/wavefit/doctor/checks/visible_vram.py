"""Does the CPU reach all of a card's memory (resizable BAR)?"""

from __future__ import annotations

from wavefit.doctor import kernel
from wavefit.doctor.machine import Machine
from wavefit.schema import Device, Finding, Fix


def check(machine: Machine) -> list[Finding]:
    """Sources: Documentation/gpu/amdgpu/driver-misc.rst, mem_info_vis_vram_total; for several cards,
    amdgpu_device_is_peer_accessible() in drivers/gpu/drm/amd/amdgpu/amdgpu_device.c, which wants all of it visible.
    """
    cards = [gpu for gpu in kernel.gpus(machine) if not gpu.integrated]
    return [found for gpu in cards if (found := _visible(gpu, len(cards))) is not None]


def _visible(gpu: Device, cards: int) -> Finding | None:
    sizes = {pool.name: pool.total_bytes for pool in gpu.memory}
    vram, visible = sizes.get("vram"), sizes.get("vis_vram")
    if vram is None or visible is None:
        return None
    evidence = (f"{kernel.folder(gpu)}/mem_info_vis_vram_total: {visible / 2**20:.0f} MiB",)
    if visible >= vram // 2:  # a chip keeps some for itself
        title = f"the CPU reaches all of the memory of {kernel.called(gpu)}"
        return Finding(check="visible_vram", layer="hardware", status="ok", title=title, evidence=evidence)
    several = "; cards cannot copy to one another directly" if cards > 1 else ""
    return Finding(
        check="visible_vram",
        layer="hardware",
        status="note",
        title=f"the CPU reaches {visible / 2**20:.0f} MiB of the {vram / 2**30:.1f} GiB of {kernel.called(gpu)}",
        evidence=evidence,
        cause=f"resizable BAR is off, or the mainboard or the card has none: everything runs{several}",
        fixes=(
            Fix(
                command="sudo systemctl reboot --firmware-setup",
                why="there: Above 4G Decoding and Re-Size BAR on, CSM off; gains little where models stay on the card",
            ),
        ),
        verify=f"cat {kernel.folder(gpu)}/mem_info_vis_vram_total",
    )
