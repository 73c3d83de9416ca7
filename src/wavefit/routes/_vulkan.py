"""The adapters that Vulkan offers: asked for directly, since WebGPU does not tell which one it took."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from wavefit.errors import RouteError

Kind = Literal["other", "integrated", "discrete", "virtual", "cpu"]
_KINDS: tuple[Kind, ...] = ("other", "integrated", "discrete", "virtual", "cpu")  # VkPhysicalDeviceType
_PROPERTIES_BYTES = 4096  # VkPhysicalDeviceProperties has 824
_INSTALL = "sudo apt install libvulkan1 mesa-vulkan-drivers"


@dataclass(frozen=True)
class Adapter:
    name: str
    kind: Kind
    vendor_id: int  # PCI's, above 0xffff for software
    device_id: int

    @property
    def software(self) -> bool:
        return self.kind == "cpu" or self.vendor_id > 0xFFFF

    @property
    def pci_id(self) -> str:
        return f"{self.vendor_id:04x}:{self.device_id:04x}"


class _CreateInfo(ctypes.Structure):
    """VkInstanceCreateInfo."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("next", ctypes.c_void_p),
        ("flags", ctypes.c_uint32),
        ("application", ctypes.c_void_p),
        ("layers", ctypes.c_uint32),
        ("layer_names", ctypes.c_void_p),
        ("extensions", ctypes.c_uint32),
        ("extension_names", ctypes.c_void_p),
    )


class _Head(ctypes.Structure):
    """The first fields of VkPhysicalDeviceProperties."""

    _fields_ = (
        ("api", ctypes.c_uint32),
        ("driver", ctypes.c_uint32),
        ("vendor", ctypes.c_uint32),
        ("device", ctypes.c_uint32),
        ("kind", ctypes.c_int),
        ("name", ctypes.c_char * 256),
    )


def adapters() -> list[Adapter]:
    """Every adapter, in Vulkan's order. Loads each installed Vulkan driver: for a child process.

    Raises:
        RouteError: Vulkan is not installed, or no driver of it works.
    """
    name = "vulkan-1.dll" if sys.platform == "win32" else "libvulkan.so.1"
    try:
        vulkan = ctypes.CDLL(name)
    except OSError as error:
        raise RouteError(f"Vulkan is not installed: {name} is missing", _INSTALL) from error
    instance = ctypes.c_void_p()
    info = _CreateInfo(type=1)  # VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO
    status = vulkan.vkCreateInstance(ctypes.byref(info), None, ctypes.byref(instance))
    if status != 0:
        raise RouteError(f"Vulkan has no driver that works (vkCreateInstance gave {status})", _INSTALL)
    try:
        return _adapters_of(vulkan, instance)
    finally:
        vulkan.vkDestroyInstance(instance, None)


def _adapters_of(vulkan: ctypes.CDLL, instance: ctypes.c_void_p) -> list[Adapter]:
    count = ctypes.c_uint32(0)
    vulkan.vkEnumeratePhysicalDevices(instance, ctypes.byref(count), None)
    handles = (ctypes.c_void_p * count.value)()
    vulkan.vkEnumeratePhysicalDevices(instance, ctypes.byref(count), handles)
    return [_adapter(vulkan, handle) for handle in handles[: count.value]]


def _adapter(vulkan: ctypes.CDLL, handle: int | None) -> Adapter:
    buffer = ctypes.create_string_buffer(_PROPERTIES_BYTES)
    vulkan.vkGetPhysicalDeviceProperties(ctypes.c_void_p(handle), buffer)
    head = _Head.from_buffer(buffer)
    kind: Kind = _KINDS[head.kind] if head.kind < len(_KINDS) else "other"
    return Adapter(head.name.decode(errors="replace"), kind, head.vendor, head.device)


def preferred(found: Sequence[Adapter], low_power: bool) -> Adapter | None:
    """The adapter that WebGPU (Dawn) takes: the first of the kind asked for, else of the next; software comes last.

    https://github.com/google/dawn/blob/main/docs/dawn/features/adapter_options.md
    """
    order: tuple[Kind, ...] = ("integrated", "discrete") if low_power else ("discrete", "integrated")
    rank = {kind: place for place, kind in enumerate((*order, "virtual", "other", "cpu"))}
    return min(found, key=lambda adapter: (adapter.software, rank[adapter.kind]), default=None)
