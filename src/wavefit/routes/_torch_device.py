"""Which of PyTorch's GPUs a Device is, and whether this PyTorch has kernels for it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import torch

from wavefit.errors import RouteError
from wavefit.routes._torch_errors import translated
from wavefit.schema import Device


def find(device: Device) -> torch.device:
    """PyTorch's device for that GPU, made the current one.

    Raises:
        RouteError: PyTorch sees no GPU, not this one, or has no kernels for it.
    """
    with translated("PyTorch could not start the GPU"):
        if not torch.cuda.is_available():
            raise RouteError("PyTorch finds no GPU that it can use", _no_gpu_fix())
        seen = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
        index = match(device, seen)
        check_kernels(getattr(seen[index], "gcnArchName", ""), torch.cuda.get_arch_list())
        found = torch.device("cuda", index)
        torch.cuda.set_device(found)
        torch.empty(1, device=found)
        return found


def match(device: Device, seen: Sequence[Any]) -> int:
    """The index of that GPU among torch.cuda.get_device_properties's: by PCI address, since indices move with
    HIP_VISIBLE_DEVICES; else by the runtime's index; else the only one there is.

    Raises:
        RouteError: it is not among them, or cannot be told.
    """
    addresses = [_address(properties) for properties in seen]
    wanted = _parsed(device.pci_address)
    if wanted is not None and all(address is not None for address in addresses):
        if wanted in addresses:
            return addresses.index(wanted)
        raise RouteError(
            f"PyTorch does not see {device.id} at {device.pci_address}, only {len(seen)} other GPUs",
            "check HIP_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES and CUDA_VISIBLE_DEVICES",
        )
    for runtime in device.runtimes:
        if (
            runtime.name in ("torch", "hip", "cuda")
            and runtime.index is not None
            and runtime.index < len(seen)
        ):
            return runtime.index
    if len(seen) == 1:
        return 0
    raise RouteError(f"PyTorch sees {len(seen)} GPUs, and none can be told to be {device.id}")


def _address(properties: Any) -> tuple[int, int, int] | None:
    """Domain, bus and device; PyTorch before 2.8 or so does not tell."""
    parts = [getattr(properties, f"pci_{part}_id", None) for part in ("domain", "bus", "device")]
    numbers = [part for part in parts if isinstance(part, int)]
    return (numbers[0], numbers[1], numbers[2]) if len(numbers) == 3 else None


def _parsed(address: str | None) -> tuple[int, int, int] | None:
    found = re.fullmatch(r"([0-9a-f]+):([0-9a-f]+):([0-9a-f]+)(?:\.\d)?", (address or "").lower())
    return (int(found[1], 16), int(found[2], 16), int(found[3], 16)) if found else None


def check_kernels(arch: str, built_for: Sequence[str]) -> None:
    """Holds an AMD GPU's target ("gfx1103", "gfx90a:sramecc+:xnack-") against those that PyTorch was built for.

    Raises:
        RouteError: it is not among them. Kernels would fail with "invalid device function".
    """
    target = arch.split(":")[0]
    names = {name.split(":")[0] for name in built_for}
    if (
        not target.startswith("gfx")
        or not names
        or target in names
        or any("generic" in name for name in names)
    ):
        return
    raise RouteError(
        f"this PyTorch has no kernels for {target}, only for {', '.join(sorted(names))}", _kernels_fix(target)
    )


def _kernels_fix(target: str) -> str:
    fix = f"install a build for {target}: https://rocm.docs.amd.com, Install PyTorch"
    # The members of these families share an instruction set, so the override works; AMD does not support it.
    family = {"gfx103": "10.3.0", "gfx110": "11.0.0"}.get(target[:6])
    return f"{fix}, or, unsupported by AMD, set HSA_OVERRIDE_GFX_VERSION={family}" if family else fix


def _no_gpu_fix() -> str:
    if torch.version.hip:
        return "check that you may open /dev/kfd and /dev/dri/renderD* (groups render and video) and `wavefit devices`"
    return "check the driver with nvidia-smi"
