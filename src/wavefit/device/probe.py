"""What this machine is: every source asked once, merged into Devices."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec

from wavefit.device import amdgpu, kfd, nvidia, pci, rocm_smi, windows
from wavefit.device.catalogue import fill
from wavefit.device.cpu import cpu
from wavefit.device.gfx import gfx_of_pci_id, is_integrated
from wavefit.device.system import machine
from wavefit.schema import Device

SOURCES: tuple[Callable[[Path], list[Device]], ...] = (
    nvidia.gpus,
    amdgpu.gpus,
    pci.gpus,
    kfd.gpus,
    rocm_smi.gpus,
    windows.gpus,
)
"""Each says what it knows of every GPU; of what two say, the earlier one's word is taken."""


def probe(root: Path = Path("/")) -> tuple[Device, ...]:
    """The devices of a machine: the CPU first, then GPUs in PCI order. What no source knows stays None.

    Args:
        root: "/" for this machine; any other folder is a recorded tree, and nothing outside it is asked.
    """
    root = root.absolute()
    system = machine(root)
    merged = _merge(source(root) for source in SOURCES)
    ordered = sorted(filter(_is_known, merged), key=_pci_order)
    gpus = [_finish(device, f"gpu{number}", system) for number, device in enumerate(ordered)]
    return (cpu(root), *gpus)


def _merge(sources: Iterable[list[Device]]) -> list[Device]:
    """One Device a GPU: where two sources give the same PCI address it is the same GPU. Within a source each stands
    for itself, and so does one without an address.
    """
    found: list[Device] = []
    for devices in sources:
        others = [device.pci_address for device in found]
        for device in devices:
            if device.pci_address is not None and device.pci_address in others:
                index = others.index(device.pci_address)
                others[index] = None
                found[index] = merge(found[index], device)
            else:
                found.append(device)
    return found


def merge(first: Device, second: Device) -> Device:
    """The first, with what it lacks from the second; memory pools and runtimes by name."""
    known: dict[str, Any] = {}
    for name in Device.__struct_fields__:
        mine, other = getattr(first, name), getattr(second, name)
        known[name] = other if mine is None else mine
    known["memory"] = first.memory + tuple(
        each for each in second.memory if each.name not in _names(first.memory)
    )
    known["runtimes"] = first.runtimes + tuple(
        each for each in second.runtimes if each.name not in _names(first.runtimes)
    )
    known["caches"] = second.caches | first.caches
    known["wave_sizes"] = first.wave_sizes or second.wave_sizes
    known["partitions"] = first.partitions or second.partitions
    return Device(**known)


def _names(entries: Iterable[Any]) -> set[str]:
    return {entry.name for entry in entries}


def _is_known(device: Device) -> bool:
    """Whether a source said that this is a GPU at all: amdgpu's folder alone may be that of a bridge."""
    return device.vendor is not None


def _finish(device: Device, name: str, system: str | None) -> Device:
    """What follows from all sources together."""
    gfx = device.gfx or gfx_of_pci_id(device.pci_id)
    integrated = device.integrated if device.integrated is not None else is_integrated(gfx, device.pci_id)
    finished = msgspec.structs.replace(
        device,
        id=name,
        gfx=gfx,
        integrated=integrated,
        link=None if integrated else device.link,  # an APU's link is inside the chip
        machine=system,
    )
    return fill(finished)


def _pci_order(device: Device) -> tuple[bool, list[int]]:
    address = device.pci_address or ""
    return not address, [int(part, 16) for part in address.replace(".", ":").split(":") if part]
