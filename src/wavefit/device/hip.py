"""What HIP says of the GPUs, through its C library and ctypes. For a child process: loading a driver may hang.

Source of the functions: HIP's API reference, "Initialization and version" and "Device management". No structure of
HIP's is declared here: hipDeviceProp_t changed with version 6, the functions and the attributes' numbers did not.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from wavefit.child.main import Reporter
from wavefit.device.seen import Question, Seen
from wavefit.schema import Device, Pool, Runtime

NO_DEVICE = 100  # hipErrorNoDevice

# hipDeviceAttribute_t in hip_runtime_api.h, the same from 5.2 to 7.1.
_INTEGRATED, _MULTIPROCESSORS = 16, 63

_PROPERTIES_BYTES = 1 << 16  # hipDeviceProp_t has 1,472 bytes in HIP 6 and 7; what follows it stays zero
_LINUX = ("libamdhip64.so.8", "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so", "libamdhip64.so.5")
_WINDOWS = ("amdhip64_8.dll", "amdhip64_7.dll", "amdhip64_6.dll", "amdhip64.dll")


def ask(payload: Question, say: Reporter) -> Seen:
    """The GPUs that HIP sees, in its order; nothing where there is no HIP."""
    say.stage("load HIP")
    library, why = load(payload.library)
    if library is None:
        return Seen(runtime="hip", note=why)
    say.stage("ask HIP")
    version = _version(library)
    count = ctypes.c_int(0)
    code = library.hipGetDeviceCount(ctypes.byref(count))
    if code:
        return Seen(runtime="hip", version=version, note=error(library, "hipGetDeviceCount", code))
    devices = tuple(_device(library, index, version) for index in range(count.value))
    return Seen(runtime="hip", version=version, devices=devices)


def load(path: str | None) -> tuple[ctypes.CDLL | None, str | None]:
    """The library, or why one that is there does not load; neither where there is none."""
    why = None
    for name in (path,) if path else _candidates():
        try:
            return ctypes.CDLL(name), None
        except OSError as error:
            # A bare name that is missing is no fault; a missing library below one that is there is.
            if Path(name).exists() or name not in str(error):
                why = f"{Path(name).name} does not load: {error}"
    return None, why


def _candidates() -> Iterator[str]:
    """Where the library may lie: pip's ROCm first, as PyTorch built on it uses that, then the system's."""
    windows = sys.platform == "win32"
    names = _WINDOWS if windows else _LINUX
    spec = importlib.util.find_spec("_rocm_sdk_core")
    for folder in spec.submodule_search_locations or () if spec else ():
        for name in names:
            path = Path(folder) / ("bin" if windows else "lib") / name
            if path.exists():
                yield str(path)
    yield from names
    if not windows:
        yield from (str(path) for name in names if (path := Path("/opt/rocm/lib") / name).exists())


def _version(library: ctypes.CDLL) -> str | None:
    """ "7.1.25424": major * 10,000,000 + minor * 100,000 + patch."""
    number = ctypes.c_int(0)
    if library.hipRuntimeGetVersion(ctypes.byref(number)) or number.value <= 0:
        return None
    return f"{number.value // 10_000_000}.{number.value // 100_000 % 100}.{number.value % 100_000}"


def error(library: ctypes.CDLL, call: str, code: int) -> str:
    library.hipGetErrorString.restype = ctypes.c_char_p
    text = library.hipGetErrorString(code)
    return f"{call}: {text.decode(errors='replace') if text else 'error'} ({code})"


def _device(library: ctypes.CDLL, index: int, version: str | None) -> Device:
    target = gfx(library, index)
    integrated = _attribute(library, _INTEGRATED, index)
    return Device(
        id="",
        kind="gpu",
        vendor="amd",
        name=_name(library, index),
        gfx=target,
        integrated=None if integrated is None else bool(integrated),
        pci_address=_pci_address(library, index),
        compute_units=compute_units(target, _attribute(library, _MULTIPROCESSORS, index)),
        memory=_memory(library, index),
        runtimes=(Runtime(name="hip", version=version, index=index, note=_renumbered()),),
    )


def _renumbered() -> str | None:
    """Which variables hide and renumber GPUs. Source: ROCm, "GPU isolation techniques"."""
    names = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")
    found = [f"{name}={os.environ[name]}" for name in names if os.environ.get(name)]
    return f"renumbered by {' '.join(found)}" if found else None


def compute_units(gfx: str | None, multiprocessors: int | None) -> int | None:
    """CUs from what HIP, PyTorch and AMD's OpenCL call multiprocessors or compute units.

    On RDNA these are work-group processors, of two CUs each. Source: HIP, hipDeviceAttributeMultiprocessorCount:
    "in Workgroup Processor (WGP) mode, this value equals half of CUs"; ROCclr has that mode on from gfx10 on, of
    which gfx1250 alone has none.
    """
    if not multiprocessors or gfx is None:
        return None
    wgp = re.fullmatch(r"gfx1[0-2]\w{2}", gfx) and not gfx.startswith("gfx125")
    return 2 * multiprocessors if wgp else multiprocessors


def _attribute(library: ctypes.CDLL, attribute: int, index: int) -> int | None:
    value = ctypes.c_int(-1)
    code = library.hipDeviceGetAttribute(ctypes.byref(value), attribute, index)
    return value.value if not code and value.value >= 0 else None


def _name(library: ctypes.CDLL, index: int) -> str | None:
    text = ctypes.create_string_buffer(256)
    if library.hipDeviceGetName(text, len(text), index):
        return None
    return text.value.decode(errors="replace").strip() or None


def _pci_address(library: ctypes.CDLL, index: int) -> str | None:
    text = ctypes.create_string_buffer(32)
    if library.hipDeviceGetPCIBusId(text, len(text), index):
        return None
    return text.value.decode(errors="replace").lower() or None


def gfx(library: ctypes.CDLL, index: int) -> str | None:
    """gcnArchName, "gfx90a:sramecc+:xnack-", found in the properties by its look, whatever their layout."""
    call = getattr(library, "hipGetDevicePropertiesR0600", None) or library.hipGetDeviceProperties
    properties = ctypes.create_string_buffer(_PROPERTIES_BYTES)
    if call(properties, index):
        return None
    found = re.search(rb"\0(gfx[0-9a-f]{3,5})[:\0]", properties.raw)
    return found[1].decode() if found else None


def _memory(library: ctypes.CDLL, index: int) -> tuple[Pool, ...]:
    """What HIP offers: on an APU this settles whether it is the carve-out or the GTT."""
    free, total = ctypes.c_size_t(0), ctypes.c_size_t(0)
    if library.hipSetDevice(index) or library.hipMemGetInfo(ctypes.byref(free), ctypes.byref(total)):
        return ()
    return (Pool(name="hip", total_bytes=total.value, free_bytes=free.value, source="hipMemGetInfo"),)
