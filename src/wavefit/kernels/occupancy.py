"""How many waves of a kernel a SIMD holds at once, and what bounds them.

Sources: LLVM, AMDGPUBaseInfo.cpp (getNumWavesPerEUWithNumVGPRs: registers of a lane, shared in granules;
getMaxWorkGroupsPerCU: 16 work-groups of several waves a CU, 32 a work-group processor; getLocalMemorySize: a work-group
processor has the LDS of two CUs; getOccupancyWithNumSGPRs), AMDGPUAsmPrinter.cpp (LDS is given out 128 dwords at a
time; 320 where a work-group may take 160 KiB). Numbers of each target: catalogue.toml.
"""

from __future__ import annotations

from wavefit.device.catalogue import Target
from wavefit.kernels.code_object import KernelResources
from wavefit.schema import Struct

_SGPRS = 800  # of a SIMD, GCN 3 to CDNA 3; RDNA gives each wave all that it can name
_SGPR_GRANULE = 16


class Occupancy(Struct, frozen=True, kw_only=True):
    """Waves that are resident on one SIMD while enough work-groups wait."""

    waves: float  # a mean over the SIMDs of a CU: 2.5 where 5 waves share two
    most: int  # that the target holds
    bound: str  # "waves" (the target's most), "vgprs", "sgprs", "lds", "work-groups"
    work_group: int  # work-items that it was reckoned for


def of(kernel: KernelResources, target: Target, work_group: int | None = None) -> Occupancy | None:
    """The occupancy of a kernel.

    Args:
        kernel: its resources, compiled for that target.
        target: the catalogue's facts.
        work_group: work-items that it is launched with; None: what it requires, else the most that it allows.

    Returns:
        None where the catalogue does not know the target's most waves; 0 waves where not one work-group fits.
    """
    most = target.max_waves_per_simd
    if most is None:
        return None
    size = work_group or _required(kernel) or kernel.work_group
    group = -(-size // kernel.wave)  # waves of one work-group
    halls = 2 if kernel.wgp_mode else 1  # CUs that share what a work-group may use
    simds = target.simds_per_cu * halls
    by_registers = {
        "waves": most,
        "vgprs": registers_allow(kernel.vgprs, target, kernel.wave),
        "sgprs": most if target.simds_per_cu == 2 else _SGPRS // _up(max(1, kernel.sgprs), _SGPR_GRANULE),
    }
    bound = min(by_registers, key=lambda name: by_registers[name])
    slots = by_registers[bound] * simds
    groups = {"": slots // group}
    if group > 1:
        groups["work-groups"] = 16 * halls
    if kernel.lds_bytes:
        given = _up(kernel.lds_bytes, _lds_granule(target))
        groups["lds"] = 0 if kernel.lds_bytes > target.lds_bytes else target.lds_bytes * halls // given
    tightest = min(groups, key=lambda name: groups[name])
    if groups[tightest] < groups[""]:
        bound = tightest
    return Occupancy(waves=groups[tightest] * group / simds, most=most, bound=bound, work_group=size)


def registers_allow(vgprs: int, target: Target, wave: int) -> int:
    """Waves that a SIMD's registers hold when each work-item takes ``vgprs``; at most what the target holds."""
    given = _up(max(1, vgprs), target.vgpr_granule[wave])
    waves = target.vgprs[wave] // given
    return waves if target.max_waves_per_simd is None else min(waves, target.max_waves_per_simd)


def _required(kernel: KernelResources) -> int | None:
    if kernel.required is None:
        return None
    x, y, z = kernel.required
    return x * y * z


def _lds_granule(target: Target) -> int:
    return 1280 if target.lds_bytes == 160 << 10 else 512


def _up(value: int, step: int) -> int:
    return -(-value // step) * step
