"""Measured figures in the user's cache folder, one file a device and driver."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from wavefit.device.user_cache import user_cache
from wavefit.errors import InputError
from wavefit.schema import Device, Figure, Struct, decode, fingerprint, pretty


class Kept(Struct, frozen=True, kw_only=True):
    """One file: for whom, and what."""

    device: str  # for people who look into the folder
    figures: dict[str, Figure]


def measured(device: Device, folder: Path | None = None) -> Device:
    """The device with the peaks that were measured on it with this driver in place of published ones."""
    try:
        text = _path(device, folder).read_bytes()
        figures = decode(text, Kept, "measured figures").figures
    except (OSError, InputError):  # none, or a file that is torn: measure again
        return device
    return with_figures(device, figures)


def with_figures(device: Device, figures: dict[str, Figure]) -> Device:
    """The device with measured peaks in place of others.

    A measured product also stands for the matrix units' peak: it was run on them where the device has some.
    """
    matrix = {f"{name}_matrix": figures[name] for name in ("fp32", "fp16") if name in figures}
    return msgspec.structs.replace(device, peaks={**device.peaks, **figures, **matrix})


def keep(device: Device, figures: dict[str, Figure], folder: Path | None = None) -> None:
    """Writes the figures whole, or not at all."""
    path = _path(device, folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.{os.getpid()}")
    new.write_text(
        pretty(Kept(device=f"{device.id} {device.name or device.gfx or ''}".strip(), figures=figures))
    )
    new.replace(path)


def _path(device: Device, folder: Path | None) -> Path:
    return (folder or user_cache() / "devices") / f"{device_key(device)}.json"


def device_key(device: Device) -> str:
    """What a device's speed hangs on, of what the system says of it: the runtimes' words come and go with them."""
    of_system = (device.pci_address,) if device.sysfs else ()
    of_cpu = (device.name, device.threads) if device.kind == "cpu" else ()
    return fingerprint(
        device.id, device.kind, device.vendor, device.pci_id, device.driver, device.machine, of_system, of_cpu
    )
