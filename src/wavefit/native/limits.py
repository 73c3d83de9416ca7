"""What kernels may take of a device: from the catalogue for a GPU that is not here, from its driver for one that is.

Sources: AMD's registers, granules, waves, LDS and peaks, catalogue.toml. A work-group of 256 is what AMD's drivers
allow a kernel by default (CL_DEVICE_MAX_WORK_GROUP_SIZE), and what LLVM's AMDGPU backend reckons registers for.
NVIDIA's: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability" (registers, warps), CUDA
Occupancy Calculator (registers are given to a warp 256 at a time).
"""

from __future__ import annotations

import re
from typing import Any, Literal

from msgspec.structs import replace

from wavefit.device import catalogue
from wavefit.native.operation import Limits
from wavefit.schema import Device

_AMD = "AMD Accelerated"  # AMD's own platform, "AMD Accelerated Parallel Processing"
_WORK_GROUP = 256
_MOST_REGISTERS = 256  # v0 to v255 is what an instruction can name; CDNA 2 on has as many AGPRs beside
_WARPS_OF_AN_SM = {(7, 5): 32, (8, 6): 48, (8, 7): 48, (8, 9): 48, (12, 0): 48, (12, 1): 48}  # 64 elsewhere
_QUADRANTS = 4  # an SM's, each with registers and a scheduler of its own, from compute capability 5.0 on


def of_gfx(gfx: str) -> Limits:
    """The limits of an AMD target, with the units and peaks of the product that the catalogue lists first for it.

    fp16 and dot say what the target's instructions are; whether a driver offers them only the driver knows.

    Raises:
        InputError: the catalogue has no such target.
    """
    return _of_target(catalogue.device_of(gfx.lower()))


def of_device(device: Device) -> Limits:
    """The limits of a device of this machine, or of the catalogue, as far as they are known without asking a driver."""
    if device.gfx is not None and catalogue.target(device.gfx) is not None:
        return _of_target(device)
    kind: Literal["cpu", "gpu"] = "cpu" if device.kind == "cpu" else "gpu"
    return _with_figures(Limits(name=device.name or device.id, gfx=device.gfx, kind=kind), device)


_H200 = {"float16": 989e12, "bfloat16": 989e12, "int8": 1979e12}
"""NVIDIA, "H200 Tensor Core GPU" datasheet, SXM, dense: half of what it gives with sparsity."""
_H200_FLOPS, _H200_BANDWIDTH = 67e12, 4.8e12  # of the same
_MATRIX = {"fp16_matrix": "float16", "bf16_matrix": "bfloat16", "int8_matrix": "int8"}
_GROUP = 1024  # Triton's, of eight or sixteen waves


def of_torch(device: Any, known: Device | None = None) -> Limits:
    """The limits of a GPU that PyTorch has, for kernels in Triton; of the CPU, those of its interpreter.

    Args:
        device: a ``torch.device``.
        known: the same as the machine tells it, for its peaks; None: what PyTorch tells, and an H200's datasheet.
    """
    import torch

    if device.type == "cpu":
        return Limits(
            name="Triton's interpreter", kind="cpu", wave=32, work_group=_GROUP, local_bytes=1 << 20
        )
    properties = torch.cuda.get_device_properties(device)
    if torch.version.hip:
        gfx = properties.gcnArchName.partition(":")[0]
        limits = for_matrix(of_gfx(gfx) if known is None else of_device(known), known)
        return replace(limits, compute_units=properties.multi_processor_count, name=properties.name)
    limits = Limits(
        name=properties.name,
        wave=32,
        compute_units=properties.multi_processor_count,
        work_group=_GROUP,
        local_bytes=properties.shared_memory_per_block_optin,
        registers=properties.regs_per_multiprocessor // 32 // _QUADRANTS,
        most_registers=255,
        register_granule=8,
        waves=properties.max_threads_per_multi_processor // 32 // _QUADRANTS,
        simds=_QUADRANTS,
        l2_bytes=properties.L2_cache_size,
        fp16=True,
    )
    limits = for_matrix(_with_figures(limits, known), known)
    if "H200" in properties.name:
        limits = replace(
            limits,
            matrix=limits.matrix or _H200,
            flops=limits.flops or _H200_FLOPS,
            bandwidth=limits.bandwidth or _H200_BANDWIDTH,
        )
    return limits


def for_matrix(limits: Limits, device: Device | None) -> Limits:
    """With the peaks of a device's matrix units, as far as they are known, and the work-groups that Triton takes."""
    peaks = {} if device is None else device.peaks
    found = {dtype: peaks[name].value for name, dtype in _MATRIX.items() if name in peaks}
    return replace(limits, matrix=found, work_group=_GROUP)


def of_opencl(cl_device: Any, device: Device | None = None) -> Limits:
    """The limits of a device that OpenCL has.

    Args:
        cl_device: a ``pyopencl.Device``.
        device: the same as the machine tells it, for its peaks and caches; None: the catalogue's, by name.
    """
    import pyopencl as cl

    extensions = frozenset(cl_device.extensions.split())
    if not cl_device.type & cl.device_type.GPU:
        limits = Limits(name=_name(cl_device), kind="cpu", wave=max(1, cl_device.native_vector_width_float))
    elif "cl_nv_device_attribute_query" in extensions:
        limits = _of_nvidia(cl_device)
    else:
        limits = _of_amd(cl_device, device)
    if device is None and limits.kind == "gpu":
        known = catalogue.product(limits.name)
        device = catalogue.device_of(known.name) if known is not None else None
    limits = _with_figures(limits, device)
    amd = cl_device.platform.name.startswith(
        _AMD
    )  # whose compiler has built-in functions for what the target has
    listed = "cl_khr_integer_dot_product" in extensions
    charted = limits.gfx is not None and catalogue.target(limits.gfx) is not None
    return replace(
        limits,
        compute_units=limits.compute_units or cl_device.max_compute_units,
        work_group=cl_device.max_work_group_size,
        local_bytes=cl_device.local_mem_size,
        fp16="cl_khr_fp16" in extensions,
        subgroups="cl_khr_subgroups" in extensions,
        # Mesa's rusticl lists it for every GPU, with instructions for it or without
        dot=(listed or amd) and limits.dot if charted else listed,
        dot2=amd and limits.dot2,
        command_buffers="cl_khr_command_buffer" in extensions,
        unified=bool(cl_device.host_unified_memory),
    )


def _of_target(device: Device) -> Limits:
    assert device.gfx is not None
    facts = catalogue.target(device.gfx)
    assert facts is not None
    wave = facts.wave_sizes[0]
    limits = Limits(
        name=device.name or device.gfx,
        gfx=facts.gfx,
        wave=wave,
        work_group=_WORK_GROUP,
        local_bytes=facts.lds_bytes,
        registers=facts.vgprs[wave],
        most_registers=_MOST_REGISTERS,
        register_granule=facts.vgpr_granule[wave],
        waves=facts.max_waves_per_simd,
        simds=facts.simds_per_cu,
        fp16=True,  # every target of the catalogue, from GCN 3 on (AMD, "Vega" ISA, v_add_f16)
        dot=any(name.startswith("v_dot4") for name in facts.dot),
        dot2="v_dot2_f32_f16" in facts.dot,
        unified=bool(device.integrated),
    )
    return _with_figures(limits, device)


def _of_amd(cl_device: Any, device: Device | None) -> Limits:
    """By the target in the name, as AMD's drivers ("gfx1103") and rusticl ("AMD Radeon 780M (radeonsi, gfx1103_r1...")
    give it; a GPU of another maker, or of a target that the catalogue lacks, keeps what Limits has for all.
    """
    found = re.search(r"gfx[0-9a-f]{3,4}", cl_device.name.lower())
    gfx = device.gfx if device is not None and device.gfx else found[0] if found else None
    if gfx is None or catalogue.target(gfx) is None:
        return Limits(name=_name(cl_device), gfx=gfx)
    limits = replace(_of_target(Device(id=gfx, kind="gpu", gfx=gfx)), name=_name(cl_device))
    wave = _asked(cl_device, "WAVEFRONT_WIDTH_AMD")
    facts = catalogue.target(gfx)
    assert facts is not None
    if wave in facts.vgprs:
        registers, granule = facts.vgprs[wave], facts.vgpr_granule[wave]
        limits = replace(limits, wave=wave, registers=registers, register_granule=granule)
    if not cl_device.platform.name.startswith(_AMD):
        return limits
    from wavefit.device.hip import compute_units

    return replace(limits, compute_units=compute_units(gfx, cl_device.max_compute_units))


def _of_nvidia(cl_device: Any) -> Limits:
    capability = tuple(
        _asked(cl_device, f"COMPUTE_CAPABILITY_{part}_NV", unknown=0) for part in ("MAJOR", "MINOR")
    )
    wave = _asked(cl_device, "WARP_SIZE_NV", unknown=32)
    registers = _asked(cl_device, "REGISTERS_PER_BLOCK_NV", unknown=65536)
    warps = _WARPS_OF_AN_SM.get((capability[0], capability[1]), 64)
    return Limits(
        name=_name(cl_device),
        wave=wave,
        registers=registers // wave // _QUADRANTS,
        most_registers=255,
        register_granule=256 // wave,
        waves=warps // _QUADRANTS,
        simds=_QUADRANTS,
    )


def _with_figures(limits: Limits, device: Device | None) -> Limits:
    """With what a Device knows beyond the driver: peaks, the L2 cache, units."""
    if device is None:
        return limits
    flops, bandwidth = device.peaks.get("fp32"), device.peaks.get("bandwidth")
    return replace(
        limits,
        compute_units=limits.compute_units or device.compute_units,
        l2_bytes=device.caches.get("l2_bytes"),
        flops=None if flops is None else flops.value,
        bandwidth=None if bandwidth is None else bandwidth.value,
    )


def _asked(cl_device: Any, name: str, unknown: int = -1) -> int:
    """What an extension's query gives; ``unknown`` where the driver has no such query."""
    import pyopencl as cl

    try:
        return int(cl_device.get_info(getattr(cl.device_info, name)))
    except cl.Error:
        return unknown


def _name(cl_device: Any) -> str:
    """The product, where AMD's platform tells it beside the target; without what rusticl adds in brackets."""
    import pyopencl as cl

    if "cl_amd_device_attribute_query" in cl_device.extensions.split():
        try:
            board = str(cl_device.get_info(cl.device_info.BOARD_NAME_AMD)).strip()
        except cl.Error:
            board = ""
        if board:
            return board
    return str(cl_device.name).split(" (")[0].strip()
