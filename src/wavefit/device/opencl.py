"""What the OpenCL platforms say of their devices, through pyopencl. For a child process: a platform may hang.

Addresses come from cl_khr_pci_bus_info, AMD's topology (cl_amd_device_attribute_query, without the domain), or
NVIDIA's cl_nv_device_attribute_query.
"""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import Any

from wavefit.child.main import Reporter
from wavefit.device.hip import compute_units
from wavefit.device.pci import VENDORS
from wavefit.device.seen import Question, Seen
from wavefit.schema import Device, Pool, Runtime

_PCI_BUS_INFO_KHR = 0x410F  # CL_DEVICE_PCI_BUS_INFO_KHR in CL/cl_ext.h; pyopencl has no name for it
_AMD_PLATFORM = "AMD Accelerated Parallel Processing"


def ask(payload: Question, say: Reporter) -> Seen:
    """The devices of every OpenCL platform: GPUs, and CPUs as PoCL and Intel's runtime offer them."""
    say.stage("import pyopencl")
    try:
        import pyopencl as cl
    except (ImportError, OSError) as error:
        return Seen(runtime="opencl", note=f"pyopencl cannot be imported: {error}")
    say.stage("ask OpenCL")
    try:
        platforms = cl.get_platforms()
    except cl.Error:  # the loader's word for "no platform is installed" is an error
        platforms = []
    if not platforms:
        return Seen(runtime="opencl", note="pyopencl is installed, but no OpenCL platform is")
    devices, notes = [], []
    for platform in platforms:
        try:
            listed = platform.get_devices()
        except cl.Error as error:
            notes.append(f"{platform.name.strip()}: {error}")
            continue
        devices += [_device(cl, platform, device, index) for index, device in enumerate(listed)]
    return Seen(runtime="opencl", devices=tuple(devices), note="; ".join(notes) or None)


def _device(cl: Any, platform: Any, device: Any, index: int) -> Device:
    runtime = Runtime(
        name="opencl",
        version=_short_version(device.version),
        index=index,
        platform=platform.name.strip(),
    )
    if not device.type & cl.device_type.GPU:
        return Device(id="", kind="cpu", runtimes=(runtime,))
    vendor = VENDORS.get(device.vendor_id & 0xFFFF)
    found = re.search(r"gfx[0-9a-f]{3,5}", device.name)
    gfx = found[0] if found and vendor == "amd" else None
    units = device.max_compute_units
    return Device(
        id="",
        kind="gpu",
        vendor=vendor,
        name=_name(cl, device),
        gfx=gfx,
        integrated=bool(device.host_unified_memory),
        pci_address=_address(cl, device),
        compute_units=compute_units(gfx, units) if platform.name.strip() == _AMD_PLATFORM else units,
        lds_bytes=device.local_mem_size or None,
        memory=(Pool(name="opencl", total_bytes=device.global_mem_size, source="OpenCL GLOBAL_MEM_SIZE"),),
        runtimes=(runtime,),
    )


def _short_version(text: str) -> str | None:
    """ "OpenCL 2.0 AMD-APP (3649.0)" is "2.0"."""
    found = re.match(r"OpenCL (\d+\.\d+)", text)
    return found[1] if found else None


def _name(cl: Any, device: Any) -> str | None:
    """AMD's platform names the target in NAME and the product in BOARD_NAME_AMD."""
    board = _info(cl, device, cl.device_info.BOARD_NAME_AMD)
    return str(board).strip() or None if board else device.name.split(" (")[0].strip() or None


def _address(cl: Any, device: Any) -> str | None:
    extensions = device.extensions.split()
    if "cl_khr_pci_bus_info" in extensions and (found := _khr_address(device)):
        return found
    if "cl_amd_device_attribute_query" in extensions:
        topology = _info(cl, device, cl.device_info.TOPOLOGY_AMD)
        if topology is not None:
            # bytes that C calls signed: bus 0xc3 comes as -61
            bus, slot, function = (
                int(getattr(topology, part)) & 0xFF for part in ("bus", "device", "function")
            )
            return f"{bus:02x}:{slot:02x}.{function:x}"
    if "cl_nv_device_attribute_query" in extensions:
        bus = _info(cl, device, cl.device_info.PCI_BUS_ID_NV)
        slot = _info(cl, device, cl.device_info.PCI_SLOT_ID_NV)
        domain = _info(cl, device, cl.device_info.PCI_DOMAIN_ID_NV)
        if isinstance(bus, int) and isinstance(slot, int):  # the slot's number holds device and function
            short = f"{bus:02x}:{slot >> 3:02x}.{slot & 7:x}"
            return f"{domain:04x}:{short}" if isinstance(domain, int) else short
    return None


def _info(cl: Any, device: Any, what: int) -> Any:
    try:
        return device.get_info(what)
    except cl.Error:
        return None


def _khr_address(device: Any) -> str | None:
    """Domain, bus, device, function as cl_device_pci_bus_info_khr has them, four unsigned integers."""
    library = loader()
    if library is None:
        return None
    answer = (ctypes.c_uint32 * 4)()
    call = library.clGetDeviceInfo
    call.argtypes = [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p]
    if call(device.int_ptr, _PCI_BUS_INFO_KHR, ctypes.sizeof(answer), answer, None):
        return None
    return "{:04x}:{:02x}:{:02x}.{:x}".format(*answer)


def loader() -> ctypes.CDLL | None:
    """An OpenCL loader. Any will do: it calls through the table that each device carries with it."""
    import pyopencl

    package = Path(pyopencl.__file__).parent
    folders = (
        package / ".libs",
        package.parent / "pyopencl.libs",
    )  # where its wheels keep theirs, by version
    own = [str(path) for folder in folders for path in folder.glob("libOpenCL*")]
    for name in (*own, "libOpenCL.so.1", "OpenCL.dll"):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None
