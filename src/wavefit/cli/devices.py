"""wavefit devices: what this machine is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import typer

from wavefit.errors import InputError
from wavefit.schema import Device, Figure, Pool, pretty

_NARROWEST = 80


def command(
    root: Path = typer.Option(
        Path("/"),
        "--root",
        help="A recorded machine, .tar.gz, folder or rocm-smi's JSON, instead of this one.",
    ),
    measure: bool = typer.Option(
        False, "--measure", help="Measure copies, transfers, products and launches on every device."
    ),
    files_only: bool = typer.Option(
        False, "--files-only", help="Ask no runtime (HIP, OpenCL, PyTorch): read the system's files alone."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print Device records as JSON."),
) -> None:
    """List the CPU and the GPUs of this machine: target, memory, link, driver, runtimes, measured speed."""
    if measure and (files_only or root != Path("/")):
        raise InputError("--measure runs programs on this machine", "leave out --root and --files-only")
    if root != Path("/"):
        devices = _recorded(root)
    else:
        devices = _here(files_only, measure)
    if as_json:
        typer.echo(pretty(devices))
    else:
        _show(devices)


def _recorded(root: Path) -> tuple[Device, ...]:
    from wavefit.doctor.unpack import open_machine

    with open_machine(root) as machine:
        return machine.devices


def _here(files_only: bool, measure: bool) -> tuple[Device, ...]:
    """This machine's devices with the figures that were measured on them, now or before."""
    from wavefit.cli._progress import TerminalProgress
    from wavefit.device.measure import measured
    from wavefit.device.probe import probe
    from wavefit.device.runtimes import with_runtimes

    devices = probe()
    if not files_only:
        with TerminalProgress() as progress:
            devices = with_runtimes(devices, progress.say)
            if measure:
                return tuple(_measure(device, progress.say) for device in devices)
    return tuple(measured(device) for device in devices)


def _measure(device: Device, say: Callable[[str], None]) -> Device:
    from wavefit.device.measure import measure

    answer = measure(device, say)
    if isinstance(answer, Device):
        return answer
    fix = f"; {answer.fix}" if answer.fix else ""
    typer.echo(f"wavefit: {device.id} is not measured: {answer.reason}{fix}", err=True)
    return device


def _show(devices: Sequence[Device]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from wavefit.device.files import printable

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
        table.add_row(*(Text(printable(cell)) for cell in cells))
    console.print(table)
    for speed in filter(None, map(_speed, devices)):
        console.print(Text(speed))
    console.print(Text(printable(devices[0].machine or "operating system unknown")))
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
        if device.sensors is not None and device.sensors.power_cap_w is not None:
            cap = f"{device.sensors.power_cap_w:g}"
            most = (
                f"/{device.sensors.power_cap_max_w:g}" if device.sensors.power_cap_max_w is not None else ""
            )
            lines.append(f"power cap {cap}{most} W")
    return "\n".join(line for line in lines if line)


def _units(device: Device) -> str:
    if device.kind == "cpu":
        cores = f"{device.compute_units} cores" if device.compute_units else "cores unknown"
        return f"{cores}\n{device.threads} threads" if device.threads else cores
    units = f"{device.compute_units} CUs" if device.compute_units else "unknown"
    mode = f"\nmode {device.partition_mode}" if device.partition_mode else ""
    parts = f"\n{len(device.partitions)} partitions" if device.partitions else ""
    return units + mode + parts


def _memory(device: Device) -> str:
    sizes = {pool.name: pool.total_bytes for pool in device.memory}
    all_visible = sizes.get("vis_vram") == sizes.get("vram")
    shown = [pool for pool in device.memory if pool.name != "vis_vram" or not all_visible]
    return "\n".join(map(_pool, shown)) or "unknown"


def _pool(pool: Pool) -> str:
    if pool.total_bytes is None:
        return f"{pool.name} unknown"
    free = "" if pool.free_bytes is None else f"{pool.free_bytes / 2**30:.1f}/"
    return f"{pool.name} {free}{pool.total_bytes / 2**30:.1f} GiB"


def _software(device: Device) -> str:
    lines = [device.driver or ("" if device.kind == "cpu" else "no driver")]
    for runtime in device.runtimes:
        index = "" if runtime.index is None else f" (index {runtime.index})"
        part = "" if runtime.partition is None else f", partition {runtime.partition}"
        lines.append(f"{runtime.name} {runtime.version or ''}".strip() + index + part)
        lines += [text for text in (runtime.platform, runtime.note) if text]
    return "\n".join(line for line in lines if line)


_SPEEDS = {
    "bandwidth": "memory",
    "h2d": "to device",
    "h2d_pinned": "to device pinned",
    "d2h": "from device",
    "d2h_pinned": "from device pinned",
    "fp32": "fp32",
    "fp16": "fp16",
    "launch_s": "launch",
    "graph_node_s": "launch in a graph",
    "dispatch_s": "PyTorch's dispatch",
    "dispatch_matmul_s": "of a product",
    "dispatch_conv_s": "of a convolution",
    "round_trip_s": "round trip",
}


def _speed(device: Device) -> str:
    """One line of what was measured on a device, "" where nothing was."""
    found = {name: device.peaks[name] for name in _SPEEDS if name in device.peaks}
    ours = {name: figure for name, figure in found.items() if figure.source.startswith("measured")}
    if not ours:
        return ""
    texts = [f"{_SPEEDS[name]} {_quantity(figure)}" for name, figure in ours.items()]
    how = next(iter(ours.values())).source.partition(":")[0]
    return f"{device.id} {how}: {', '.join(texts)}"


def _quantity(figure: Figure) -> str:
    if figure.unit == "s":
        return f"{figure.value * 1e6:.3g} \N{MICRO SIGN}s"
    for factor, prefix in ((1e12, "T"), (1e9, "G")):
        if figure.value >= factor:
            return f"{figure.value / factor:.3g} {prefix}{figure.unit}"
    return f"{figure.value / 1e6:.3g} M{figure.unit}"
