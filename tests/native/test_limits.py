"""What kernels may take: AMD's by the catalogue, drivers' as they answered on real machines (recorded)."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from wavefit.errors import InputError
from wavefit.native import limits
from wavefit.schema import Device, Figure

cl = pytest.importorskip("pyopencl")


class Recorded(SimpleNamespace):
    """A device that answers as a driver did; what it was not asked, it does not know."""

    def get_info(self, query: int) -> object:
        if query not in self.queries:
            raise cl.LogicError("clGetDeviceInfo failed: INVALID_VALUE")
        return self.queries[query]


def recorded(
    name: str, platform: str, extensions: str, queries: dict[int, object], **answers: object
) -> Recorded:
    base = {
        "type": cl.device_type.GPU,
        "max_compute_units": 6,
        "max_work_group_size": 256,
        "local_mem_size": 65536,
        "host_unified_memory": 1,
        "native_vector_width_float": 1,
    }
    return Recorded(
        name=name,
        platform=SimpleNamespace(name=platform),
        extensions=extensions,
        queries=queries,
        **base | answers,
    )


def rocm_780m(**answers: object) -> Recorded:
    return recorded(
        "gfx1103",
        "AMD Accelerated Parallel Processing",
        "cl_khr_fp16 cl_khr_subgroups cl_amd_device_attribute_query ",
        {cl.device_info.BOARD_NAME_AMD: "AMD Radeon 780M", cl.device_info.WAVEFRONT_WIDTH_AMD: 32},
        **answers,
    )


def h200() -> Recorded:
    info = cl.device_info
    return recorded(
        "NVIDIA H200",
        "NVIDIA CUDA",
        "cl_khr_global_int32_base_atomics cl_nv_device_attribute_query ",
        {
            info.COMPUTE_CAPABILITY_MAJOR_NV: 9,
            info.COMPUTE_CAPABILITY_MINOR_NV: 0,
            info.WARP_SIZE_NV: 32,
            info.REGISTERS_PER_BLOCK_NV: 65536,
        },
        max_compute_units=132,
        max_work_group_size=1024,
        local_mem_size=49152,
        host_unified_memory=0,
    )


@pytest.mark.parametrize(
    ("gfx", "wave", "registers", "granule", "waves", "simds", "units"),
    [  # AMD's ISA documents and LLVM's AMDGPUBaseInfo.cpp; units: the maker's data sheets
        ("gfx90c", 64, 256, 4, 10, 4, 8),
        ("gfx906", 64, 256, 4, 10, 4, 64),
        ("gfx90a", 64, 512, 8, 8, 4, 110),
        ("gfx942", 64, 512, 8, 8, 4, 304),
        ("gfx1035", 32, 1024, 16, 16, 2, 12),
        ("gfx1103", 32, 1024, 16, 16, 2, 12),
        ("gfx1151", 32, 1536, 24, 16, 2, 40),
    ],
)
def test_an_amd_target_has_the_limits_of_its_documents(
    gfx: str, wave: int, registers: int, granule: int, waves: int, simds: int, units: int
) -> None:
    found = limits.of_gfx(gfx)
    assert (found.wave, found.registers, found.register_granule) == (wave, registers, granule)
    assert (found.waves, found.simds, found.compute_units) == (waves, simds, units)
    assert found.local_bytes == 65536
    assert found.kind == "gpu"


def test_dot_instructions_by_target() -> None:
    having = [gfx for gfx in ("gfx90c", "gfx906", "gfx1030", "gfx1103") if limits.of_gfx(gfx).dot]
    assert having == ["gfx906", "gfx1030", "gfx1103"]


def test_two_halves_at_once_by_target() -> None:
    having = [
        gfx
        for gfx in ("gfx90c", "gfx906", "gfx942", "gfx1030", "gfx1103", "gfx1250")
        if limits.of_gfx(gfx).dot2
    ]
    assert having == ["gfx906", "gfx942", "gfx1030", "gfx1103"]


def test_only_an_apu_shares_its_memory() -> None:
    assert [limits.of_gfx(gfx).unified for gfx in ("gfx90c", "gfx1030", "gfx1151")] == [True, False, True]


def test_an_unknown_target_is_refused_with_those_known() -> None:
    with pytest.raises(InputError, match=r"no target gfx803; it has gfx900.*gfx1103"):
        limits.of_gfx("gfx803")


def test_amds_driver_counts_pairs_of_cus_on_rdna() -> None:
    found = limits.of_opencl(rocm_780m())
    assert (found.gfx, found.compute_units, found.wave, found.registers) == ("gfx1103", 12, 32, 1024)
    assert found.fp16
    assert found.subgroups
    assert found.dot  # by its compiler's built-in functions: it has no extension for them
    assert found.dot2
    assert found.flops == pytest.approx(8.29e12, rel=0.01)  # AMD: 8.29 TFLOP/s at 2.7 GHz


def test_a_wave_of_64_halves_an_rdna_lanes_registers() -> None:
    device = rocm_780m()
    device.queries[cl.device_info.WAVEFRONT_WIDTH_AMD] = 64
    found = limits.of_opencl(device)
    assert (found.wave, found.registers, found.register_granule) == (64, 512, 8)


def test_rusticl_counts_single_cus() -> None:
    name = "AMD Radeon 780M (radeonsi, gfx1103_r1, LLVM 19.1.7, DRM 3.61)"
    found = limits.of_opencl(recorded(name, "rusticl", "cl_khr_fp16 ", {}, max_compute_units=12))
    assert (found.name, found.gfx, found.compute_units) == ("AMD Radeon 780M", "gfx1103", 12)
    assert not found.dot  # no built-in functions of AMD's compiler there, and no extension
    assert not found.dot2


def test_a_listed_dot_product_is_fast_only_where_the_target_has_the_instruction() -> None:
    listed = "cl_khr_fp16 cl_khr_integer_dot_product "
    names = {"gfx90c": "AMD Radeon Graphics (radeonsi, renoir, ", "gfx1103": "AMD Radeon 780M (radeonsi, "}
    found = [
        limits.of_opencl(recorded(f"{name}{gfx}, DRM 3.61)", "rusticl", listed, {}))
        for gfx, name in names.items()
    ]
    assert [each.gfx for each in found] == list(names)
    assert [each.dot for each in found] == [False, True]
    assert not any(each.dot2 for each in found)
    assert limits.of_opencl(recorded("Intel Arc", "Intel", listed, {})).dot


def test_a_gpu_that_the_catalogue_lacks_keeps_what_its_driver_says() -> None:
    name = "AMD Radeon RX 580 Series (radeonsi, polaris10, LLVM 15)"
    found = limits.of_opencl(recorded(name, "rusticl", "", {}, local_mem_size=32768))
    assert (found.gfx, found.registers, found.flops, found.local_bytes) == (None, None, None, 32768)


def test_nvidia() -> None:
    found = limits.of_opencl(h200())
    assert (found.wave, found.registers, found.register_granule, found.most_registers) == (32, 512, 8, 255)
    assert (found.simds, found.waves, found.compute_units) == (4, 16, 132)
    assert (found.work_group, found.local_bytes, found.unified) == (1024, 49152, False)
    assert found.bandwidth == 4.8e12


def test_the_machines_own_figures_come_before_the_catalogues() -> None:
    measured = Figure(value=6.1e12, unit="FLOP/s", source="measured")
    device = Device(id="gpu0", kind="gpu", gfx="gfx1103", peaks={"fp32": measured}, caches={"l2_bytes": 7})
    found = limits.of_opencl(rocm_780m(), device)
    assert (found.flops, found.l2_bytes, found.bandwidth) == (6.1e12, 7, None)


def test_a_device_that_is_here() -> None:
    try:
        platforms = cl.get_platforms()
    except cl.LogicError:
        pytest.skip("no OpenCL platform is installed")
    devices = [each for platform in platforms for each in platform.get_devices(cl.device_type.CPU)]
    if not devices:
        pytest.skip("no OpenCL device on the CPU")
    found = limits.of_opencl(devices[0])
    assert found.kind == "cpu"
    assert found.work_group == devices[0].max_work_group_size
    assert found.registers is None
    assert found.unified
