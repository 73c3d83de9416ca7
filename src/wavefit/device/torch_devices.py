"""What PyTorch says of the GPUs. For a child process: its import takes seconds, and starts a driver."""

from __future__ import annotations

import re
from typing import Any

from wavefit.child.main import Reporter
from wavefit.device.hip import compute_units
from wavefit.device.seen import Question, Seen
from wavefit.schema import Device, Pool, Runtime


def ask(payload: Question, say: Reporter) -> Seen:
    """The GPUs that PyTorch sees through HIP or CUDA, in its order, and the CPU."""
    say.stage("import PyTorch")
    try:
        import torch
    except (ImportError, OSError) as error:
        return Seen(runtime="torch", note=f"PyTorch cannot be imported: {error}")
    say.stage("ask PyTorch")
    version = str(torch.__version__)  # its own class of str
    cpu = Device(id="", kind="cpu", runtimes=(Runtime(name="torch", version=version),))
    try:
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        found = [(index, torch.cuda.get_device_properties(index)) for index in range(count)]
        memory = [_memory(torch, index) for index in range(count)]
    except (RuntimeError, AssertionError) as error:
        return Seen(runtime="torch", version=version, devices=(cpu,), note=f"PyTorch: {error}")
    amd = torch.version.hip is not None
    gpus = [
        describe(properties, Runtime(name="torch", version=version, index=index), amd, pool)
        for (index, properties), pool in zip(found, memory, strict=True)
    ]
    built = torch.version.hip or torch.version.cuda
    note = "PyTorch finds no GPU that it can use" if built and not gpus else None
    return Seen(runtime="torch", version=version, devices=(cpu, *gpus), note=note)


def describe(properties: Any, runtime: Runtime, amd: bool, pool: Pool | None = None) -> Device:
    """A Device from torch.cuda.get_device_properties. Builds before 2.8 tell no PCI address."""
    found = re.match(r"gfx[0-9a-f]+", getattr(properties, "gcnArchName", ""))
    gfx = found[0] if amd and found else None
    units = properties.multi_processor_count
    integrated = getattr(properties, "is_integrated", None)
    return Device(
        id="",
        kind="gpu",
        vendor="amd" if amd else "nvidia",
        name=properties.name or None,
        gfx=gfx,
        integrated=None if integrated is None else bool(integrated),
        pci_address=_address(properties),
        compute_units=compute_units(gfx, units) if amd else units,
        wave_sizes=(properties.warp_size,) if getattr(properties, "warp_size", 0) else (),
        memory=() if pool is None else (pool,),
        runtimes=(runtime,),
    )


def _address(properties: Any) -> str | None:
    parts = [getattr(properties, f"pci_{part}_id", None) for part in ("domain", "bus", "device")]
    numbers = [part for part in parts if isinstance(part, int) and part >= 0]
    return "{:04x}:{:02x}:{:02x}.0".format(*numbers) if len(numbers) == 3 else None


def _memory(torch: Any, index: int) -> Pool:
    free, total = torch.cuda.mem_get_info(index)
    return Pool(name="torch", total_bytes=total, free_bytes=free, source="torch.cuda.mem_get_info")
