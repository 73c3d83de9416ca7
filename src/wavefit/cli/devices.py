"""wavefit devices: what this machine is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import typer

from wavefit.errors import InputError
from wavefit.schema import Device, Pool, pretty

_NARROWEST = 80


def command(
    root: Path = typer.Option(
        Path("/"), "--root", help="Read a recorded tree (sys, proc, etc) instead of this machine."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print Device records as JSON."),
) -> None:
    """List the CPU and the GPUs of this machine: target, memory, link, driver, runtimes."""
    from wavefit.device.files import exists
    from wavefit.device.probe import probe

    if root != Path("/") and not any(exists(root / name) for name in ("sys", "proc")):
        raise InputError(
            f"--root {root} is no recorded machine", "give the folder that holds its sys and proc"
        )
    devices = probe(root)
    if as_json:
        typer.echo(pretty(devices))
    else:
        _show(devices)


def _show(devices: Sequence[Device]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    if console.width < _NARROWEST:
        console.width = _NARROWEST
    table = Table(box=None, pad_edge=False, padding=(0, 2, 1, 0), show_edge=False)
    for heading in ("id", "device", "units", "memory, free/total", "software"):
        table.add_column(
            heading,
            no_wrap=heading not in ("device", "software"),
            min_width=22 if heading == "device" else None,
        )
    for device in devices:
        cells = (device.id, _device(device), _units(device), _memory(device), _software(device))
        table.add_row(*(Text(cell) for cell in cells))
    console.print(table)
    console.print(Text(devices[0].machine or "operating system unknown"))
    if len(devices) == 1:
        console.print("No GPU is visible here.")


def _device(device: Device) -> str:
    lines = [device.name or f"{(device.vendor or '').upper()} {device.kind.upper()}, name unknown".strip()]
    if device.kind == "gpu":
        where = {True: "integrated", False: "discrete", None: "integrated or not: unknown"}[device.integrated]
        lines.append(f"{device.gfx}, {where}" if device.gfx else where)
        lines.append(" ".join(part for part in (device.pci_address, device.pci_id) if part))
        if device.link is not None and device.link.speed_gts is not None:
            lines.append(f"PCIe {device.link.speed_gts:g} GT/s x{device.link.width or '?'}")
    return "\n".join(line for line in lines if line)


def _units(device: Device) -> str:
    if device.kind == "cpu":
        cores = f"{device.compute_units} cores" if device.compute_units else "cores unknown"
        return f"{cores}\n{device.threads} threads" if device.threads else cores
    return f"{device.compute_units} CUs" if device.compute_units else "unknown"


def _memory(device: Device) -> str:
    return "\n".join(_pool(pool) for pool in device.memory) or "unknown"


def _pool(pool: Pool) -> str:
    if pool.total_bytes is None:
        return f"{pool.name} unknown"
    free = "" if pool.free_bytes is None else f"{pool.free_bytes / 2**30:.1f}/"
    return f"{pool.name} {free}{pool.total_bytes / 2**30:.1f} GiB"


def _software(device: Device) -> str:
    lines = [device.driver or ("" if device.kind == "cpu" else "no driver")]
    for runtime in device.runtimes:
        index = "" if runtime.index is None else f" (index {runtime.index})"
        lines.append(f"{runtime.name} {runtime.version or ''}".strip() + index)
    return "\n".join(line for line in lines if line)
