"""ROCm as the ONNX Runtime routes need to know it: its version, the GPUs it drives, their index in HIP."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path

from wavefit.device import kfd
from wavefit.device import versions as versions_below
from wavefit.errors import RouteError
from wavefit.routes._packages import version
from wavefit.schema import Device

_ROOT = Path("/")
_RENUMBERING = ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")
"""https://rocm.docs.amd.com/en/latest/conceptual/gpu-isolation.html"""


def rocm_version(root: Path = _ROOT) -> str | None:
    """The installed ROCm's version, "7.2.4"; None where none of AMD's packages tells (a distribution's own do not)."""
    found = versions_below.rocm(root)
    return found.partition("-")[0] if found else version("rocm-sdk-core")  # ROCm as pip installs it


def driver_version(root: Path = _ROOT) -> str | None:
    """The amdgpu kernel module's version, where it is AMD's own build; None for the kernel's."""
    path = root / "sys/module/amdgpu/version"
    return path.read_text().strip() if path.is_file() else None


def versions() -> dict[str, str]:
    """ROCm and the driver, as far as they are known."""
    found = {"rocm": rocm_version(), "amdgpu": driver_version()}
    return {name: value for name, value in found.items() if value is not None}


def amd_gpus(devices: Sequence[Device]) -> list[Device]:
    return [device for device in devices if device.kind == "gpu" and device.vendor == "amd"]


def no_gpu(devices: Sequence[Device]) -> tuple[str, str] | None:
    """Why no AMD GPU can be used through ROCm here, and the fix; None where one may be."""
    if platform.system() != "Linux":
        instead = "ort_directml" if platform.system() == "Windows" else "ort_webgpu"
        return f"ROCm's provider runs on Linux only, this is {platform.system()}", f"use --route {instead}"
    if not amd_gpus(devices):
        return (
            "no AMD GPU is among the devices",
            "needs an AMD GPU that `wavefit devices` lists",
        )
    return None


def hip_index(device: Device, devices: Sequence[Device], root: Path = _ROOT) -> int:
    """The number by which HIP calls a GPU: as the runtime reported it, else its place in the compute driver's list.

    Args:
        device: an AMD GPU.
        devices: all of this machine's, in PCI order: the order that is left where the driver's list has not the GPU.
        root: where that list lies.

    Raises:
        RouteError: neither is known, so that another GPU might be used in its place.
    """
    for runtime in device.runtimes:
        if runtime.name == "hip" and runtime.index is not None:
            return runtime.index
    addresses: list[str | None] = [*kfd.order(root)]
    if device.pci_address not in addresses:
        addresses = [gpu.pci_address for gpu in amd_gpus(devices)]
    if device.pci_address in addresses:
        return _renumbered(device, addresses.index(device.pci_address), len(addresses), os.environ)
    if len(addresses) <= 1:
        return 0
    raise RouteError(
        f"which of {len(addresses)} AMD GPUs is {device.id} in HIP is not known", "check rocminfo"
    )


def _renumbered(device: Device, place: int, count: int, environment: Mapping[str, str]) -> int:
    """HIP's number of the GPU at that place where a variable leaves only some GPUs, in an order of its own."""
    found = [name for name in _RENUMBERING if environment.get(name)]
    if not found or count == 1:
        return place
    order = [part.strip() for part in environment[found[0]].split(",")]
    if len(found) > 1 or not all(part.isdecimal() for part in order):
        raise RouteError(
            f"with {' and '.join(found)} set, which GPU is {device.id} in HIP is not known",
            f"unset {' '.join(found)}",
        )
    if str(place) not in order:
        raise RouteError(f"{found[0]}={environment[found[0]]} hides {device.id}", f"unset {found[0]}")
    return order.index(str(place))
