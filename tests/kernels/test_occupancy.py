"""Waves a SIMD against AMD's published tables and LLVM's own reckoning."""

from __future__ import annotations

import re

import pytest

from wavefit.device.catalogue import Target, target
from wavefit.kernels import occupancy, toolchain
from wavefit.kernels.code_object import KernelResources
from wavefit.kernels.compile import Compiled, compile_source

ZIG = toolchain.find("zig")


def facts(gfx: str) -> Target:
    found = target(gfx)
    assert found is not None
    return found


def resources(
    vgprs: int = 16, lds: int = 0, group: int = 64, wave: int = 64, wgp: bool = False
) -> KernelResources:
    return KernelResources(
        name="k",
        vgprs=vgprs,
        sgprs=16,
        lds_bytes=lds,
        scratch_bytes=0,
        vgpr_spills=0,
        sgpr_spills=0,
        work_group=group,
        wave=wave,
        wgp_mode=wgp,
    )


# AMD, "AMD GCN3 ISA Architecture Manual" and GPUOpen, "Optimizing GPU occupancy and resource usage with large thread
# groups" (Sebastian Aaltonen, 2017), table of GCN: VGPRs against waves.
GCN = {24: 10, 28: 9, 32: 8, 36: 7, 40: 6, 48: 5, 64: 4, 84: 3, 128: 2, 256: 1}


@pytest.mark.parametrize(("vgprs", "waves"), GCN.items())
def test_gcns_table(vgprs: int, waves: int) -> None:
    assert occupancy.registers_allow(vgprs, facts("gfx906"), 64) == waves
    if vgprs < 256:
        assert occupancy.registers_allow(vgprs + 1, facts("gfx906"), 64) < waves


@pytest.mark.parametrize(
    ("gfx", "wave", "vgprs", "waves"),
    [  # GPUOpen, "Occupancy explained" (2023): 1024 registers and 16 waves on RDNA 2, 1536 on Navi 31 and 32
        ("gfx1030", 32, 64, 16),
        ("gfx1030", 32, 65, 12),
        ("gfx1030", 32, 128, 8),
        ("gfx1030", 64, 128, 4),
        ("gfx1100", 32, 96, 16),
        ("gfx1100", 32, 120, 12),
        ("gfx1151", 32, 256, 5),
        ("gfx90a", 64, 128, 4),
        ("gfx90a", 64, 512, 1),
        ("gfx942", 64, 64, 8),
    ],
)
def test_registers_of_later_targets(gfx: str, wave: int, vgprs: int, waves: int) -> None:
    assert occupancy.registers_allow(vgprs, facts(gfx), wave) == waves


def test_local_memory_bounds_work_groups() -> None:
    found = occupancy.of(resources(lds=32768, group=256), facts("gfx906"))  # 2 groups of 4 waves on 4 SIMDs
    assert found is not None
    assert (found.waves, found.bound) == (2.0, "lds")


def test_a_work_group_processor_shares_the_local_memory_of_two_cus() -> None:
    of = resources(lds=40960, group=256, wave=32, wgp=True)  # 3 groups of 8 waves on 4 SIMDs, not 1 on each 2
    found = occupancy.of(of, facts("gfx1103"))
    assert found is not None
    assert (found.waves, found.bound) == (6.0, "lds")
    alone = occupancy.of(resources(lds=40960, group=256, wave=32), facts("gfx1103"))
    assert alone is not None
    assert alone.waves == 4.0


def test_whole_work_groups_alone_are_resident() -> None:
    found = occupancy.of(
        resources(vgprs=84, group=512), facts("gfx906")
    )  # 12 waves by registers, groups of 8
    assert found is not None
    assert (found.waves, found.bound) == (2.0, "vgprs")


def test_more_local_memory_than_there_is_fits_nothing() -> None:
    found = occupancy.of(resources(lds=65537), facts("gfx1103"))
    assert found is not None
    assert found.waves == 0


def test_small_work_groups_run_out_of_barriers() -> None:
    found = occupancy.of(resources(group=128), facts("gfx906"))  # 16 groups of 2 waves on 4 SIMDs
    assert found is not None
    assert (found.waves, found.bound) == (8.0, "work-groups")


HOLDS = """__kernel __attribute__((reqd_work_group_size(256, 1, 1))) void holds(__global float4 *a) {
    float4 s[%d];
    const int i = get_global_id(0);
    #pragma unroll
    for (int k = 0; k < %d; k++) s[k] = a[i + k * 4096];
    for (int n = 0; n < 100; n++) {
        #pragma unroll
        for (int k = 0; k < %d; k++) s[k] = fma(s[k], s[(k + 1) %% %d], s[(k + 2) %% %d]);
    }
    #pragma unroll
    for (int k = 0; k < %d; k++) a[i + k * 4096] = s[k];
}"""


@pytest.mark.skipif(isinstance(ZIG, toolchain.Missing), reason="ziglang is not installed")
@pytest.mark.parametrize("gfx", ["gfx90c", "gfx90a", "gfx1151"])
@pytest.mark.parametrize("count", [5, 12, 25])
def test_llvm_reckons_the_same(gfx: str, count: int) -> None:
    """The backend's own "Occupancy" in its assembly, of kernels without local memory."""
    code_object = pytest.importorskip("wavefit.kernels.code_object")
    pytest.importorskip("elftools")
    pytest.importorskip("msgpack")
    assert isinstance(ZIG, toolchain.Toolchain)
    made = compile_source(HOLDS % ((count,) * 6), gfx, ZIG)
    assert isinstance(made, Compiled)
    (kernel,) = code_object.read(made.elf)
    said = re.search(r"; Occupancy: (\d+)", made.assembly)
    assert said is not None
    assert occupancy.registers_allow(kernel.vgprs, facts(gfx), kernel.wave) == int(said[1])
