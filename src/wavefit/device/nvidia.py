"""NVIDIA GPUs, for comparison: from NVML where its package is installed, else from the driver's files in /proc."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from wavefit.device.files import children, read_pairs
from wavefit.device.pci import ADDRESS
from wavefit.device.system import is_machine
from wavefit.device.versions import nvidia_driver
from wavefit.schema import Device, Pool, Runtime


def gpus(root: Path) -> list[Device]:
    """One Device a GPU that NVIDIA's driver runs."""
    devices = _from_nvml() if is_machine(root) else []
    return devices or _from_proc(root)


def _from_proc(root: Path) -> list[Device]:
    version = nvidia_driver(root)
    return [
        Device(
            id="",
            kind="gpu",
            vendor="nvidia",
            name=read_pairs(folder / "information", ":").get("Model"),
            pci_address=folder.name,
            driver=f"nvidia {version}" if version else "nvidia",
        )
        for folder in children(root / "proc/driver/nvidia/gpus", ADDRESS)
    ]


def _from_nvml() -> list[Device]:
    try:
        import pynvml
    except ImportError:
        return []
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        names = [_text(pynvml.nvmlDeviceGetName(handle)) for handle in handles]
        indices = cuda_indices(names, os.environ.get("CUDA_VISIBLE_DEVICES"))
        return [_describe(pynvml, *each) for each in zip(handles, names, indices, strict=True)]
    except pynvml.NVMLError:
        return []  # the driver went away in between; /proc may still tell
    finally:
        pynvml.nvmlShutdown()


def _describe(nvml: Any, handle: Any, name: str, index: int | None) -> Device:
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    version = _text(nvml.nvmlSystemGetDriverVersion())
    cuda = nvml.nvmlSystemGetCudaDriverVersion_v2()
    runtime = Runtime(name="cuda", version=f"{cuda // 1000}.{cuda % 1000 // 10}", index=index)
    return Device(
        id="",
        kind="gpu",
        vendor="nvidia",
        name=name,
        integrated=False,
        pci_address=short_address(_text(nvml.nvmlDeviceGetPciInfo(handle).busId)),
        memory=(Pool(name="vram", total_bytes=memory.total, free_bytes=memory.free, source="NVML"),),
        driver=f"nvidia {version}",
        runtimes=(runtime,),
    )


def cuda_indices(names: list[str], visible: str | None) -> list[int | None]:
    """The index by which CUDA calls each GPU of NVML's list; None where it is hidden or cannot be told.

    NVML lists in PCI order, CUDA the fastest first: they agree where all GPUs are of one kind. CUDA_VISIBLE_DEVICES
    hides and renumbers. Source: CUDA C++ Programming Guide, "CUDA Environment Variables".
    """
    if len(set(names)) > 1:
        return [None] * len(names)
    if visible is None:
        return list(range(len(names)))
    order = [part.strip() for part in visible.split(",")]
    return [order.index(str(number)) if str(number) in order else None for number in range(len(names))]


def short_address(bus_id: str) -> str | None:
    """NVML's "00000000:65:00.0" as sysfs writes it, "0000:65:00.0"."""
    match = re.fullmatch(r"([0-9a-f]{4,8}):([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])", bus_id.lower())
    return f"{int(match[1], 16):04x}:{match[2]}" if match else None


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
