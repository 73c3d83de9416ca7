"""The catalogue's facts held to what stands elsewhere: LLVM's compiler, ROCm's tables, published figures."""

from __future__ import annotations

import shutil
import subprocess
from itertools import pairwise

import pytest

from wavefit.device import catalogue, peaks
from wavefit.device._catalogue_load import load
from wavefit.device.catalogue import Product, Target
from wavefit.device.gfx import gfx_of_pci_id, is_integrated

TARGETS = {target.gfx: target for target in catalogue.targets()}
PRODUCTS = catalogue.products()
SUPPORT = load().support


def by_name(entry: Product) -> str:
    return entry.name


# ---- Targets --------------------------------------------------------------------------------------------------------

ASKED = (
    "gfx900 gfx902 gfx904 gfx906 gfx908 gfx909 gfx90a gfx90c gfx942 gfx950 gfx1010 gfx1011 gfx1012 gfx1013 gfx1030 "
    "gfx1031 gfx1032 gfx1033 gfx1034 gfx1035 gfx1036 gfx1100 gfx1101 gfx1102 gfx1103 gfx1150 gfx1151 gfx1152 gfx1153 "
    "gfx1200 gfx1201 gfx1250"
)


def test_every_target_from_gfx900_to_gfx1250_is_there() -> None:
    assert set(TARGETS) == set(ASKED.split())


@pytest.mark.parametrize("gfx", TARGETS)
def test_a_target_is_whole_and_sourced(gfx: str) -> None:
    target = TARGETS[gfx]
    assert target.source
    assert all(target.source)
    assert target.flops.keys() == target.flops_source.keys()
    assert set(target.vgprs) == set(target.vgpr_granule) == set(target.wave_sizes)
    assert all(target.vgprs[wave] % target.vgpr_granule[wave] == 0 for wave in target.wave_sizes)
    assert target.lds_bytes % 65536 == 0 or gfx == "gfx950"


# ROCm documentation, reference/gpu-specs, column "VGPR File (KiB)": of a CU on GCN and CDNA, of a pair of CUs on RDNA.
# (MI100's entry names 256 VGPR and 256 AccVGPR: its vector half is meant here.)
VGPR_FILE_KIB = {
    "gfx900": 256, "gfx906": 256, "gfx908": 256, "gfx90a": 512, "gfx942": 512, "gfx950": 512, "gfx1012": 512,
    "gfx1030": 512, "gfx1031": 512, "gfx1032": 512, "gfx1100": 768, "gfx1101": 768, "gfx1102": 512, "gfx1103": 512,
    "gfx1150": 512, "gfx1151": 768, "gfx1152": 512, "gfx1200": 768, "gfx1201": 768,
}  # fmt: skip


@pytest.mark.parametrize("gfx", VGPR_FILE_KIB)
def test_registers_fill_the_register_file(gfx: str) -> None:
    target = TARGETS[gfx]
    cus = 2 if target.architecture.startswith("RDNA") else 1
    for wave, registers in target.vgprs.items():
        assert registers * wave * 4 * target.simds_per_cu * cus == VGPR_FILE_KIB[gfx] << 10


# ROCm's LLVM, AmdArchDbTest: getVGPRsPerEU, getWaveSize.
@pytest.mark.parametrize(
    ("gfx", "registers", "wave"),
    [("gfx906", 256, 64), ("gfx908", 256, 64), ("gfx90a", 512, 64), ("gfx942", 512, 64), ("gfx950", 512, 64),
     ("gfx1010", 1024, 32), ("gfx1030", 1024, 32), ("gfx1100", 1536, 32), ("gfx1102", 1024, 32), ("gfx1150", 1024, 32),
     ("gfx1200", 1536, 32), ("gfx1250", 1024, 32)],
)  # fmt: skip
def test_registers_of_the_default_wave(gfx: str, registers: int, wave: int) -> None:
    assert TARGETS[gfx].wave_sizes[0] == wave
    assert TARGETS[gfx].vgprs[wave] == registers


LLC = shutil.which("llc")
NUMBERS = (1, 24, 25, 33, 41, 64, 65, 85, 97, 129, 170, 256)


def kernels() -> str:
    """LLVM IR of kernels that use so many registers each."""
    return "\n".join(
        f'define amdgpu_kernel void @k{n}() {{\n  call void asm sideeffect "", "~{{v{n - 1}}}"()\n  ret void\n}}\n'
        for n in NUMBERS
    )


def known_to_llc() -> list[tuple[str, int]]:
    """Targets and wave sizes that the installed compiler knows."""
    if LLC is None:
        return []
    text = subprocess.run([LLC, "-march=amdgcn", "-mcpu=help"], capture_output=True, text=True, check=False)
    words = set((text.stdout + text.stderr).split())
    return [(gfx, wave) for gfx, target in TARGETS.items() if gfx in words for wave in target.wave_sizes]


@pytest.mark.skipif(not known_to_llc(), reason="llc with the AMDGPU target is not here")
@pytest.mark.parametrize(("gfx", "wave"), known_to_llc())
def test_occupancy_is_the_compilers(gfx: str, wave: int) -> None:
    assert LLC is not None
    command = [LLC, "-mtriple=amdgcn-amd-amdhsa", f"-mcpu={gfx}", "-filetype=asm", "-o", "-"]
    if wave != TARGETS[gfx].wave_sizes[0]:
        command.append("-mattr=-wavefrontsize32,+wavefrontsize64")
    done = subprocess.run(command, input=kernels(), capture_output=True, text=True, check=True)
    waves = [int(line.split()[-1]) for line in done.stdout.splitlines() if line.startswith("; Occupancy:")]
    assert waves == [occupancy(TARGETS[gfx], wave, number) for number in NUMBERS]


def occupancy(target: Target, wave: int, registers: int) -> int:
    """Waves a SIMD holds of a kernel with so many registers."""
    granule = target.vgpr_granule[wave]
    allocated = -(-registers // granule) * granule
    assert target.max_waves_per_simd is not None
    return min(target.max_waves_per_simd, target.vgprs[wave] // allocated)


@pytest.mark.skipif(not known_to_llc(), reason="llc with the AMDGPU target is not here")
@pytest.mark.parametrize("gfx", sorted({gfx for gfx, _ in known_to_llc()}))
def test_local_memory_is_the_compilers(gfx: str) -> None:
    assert LLC is not None
    limit = TARGETS[gfx].lds_bytes
    command = [LLC, "-mtriple=amdgcn-amd-amdhsa", f"-mcpu={gfx}", "-filetype=asm", "-o", "-"]
    for size, fits in ((limit, True), (limit + 4, False)):
        source = (
            f"@lds = internal addrspace(3) global [{size} x i8] undef, align 4\n"
            "define amdgpu_kernel void @k(i32 %i) {\n"
            f"  %p = getelementptr [{size} x i8], [{size} x i8] addrspace(3)* @lds, i32 0, i32 %i\n"
            "  store volatile i8 1, i8 addrspace(3)* %p\n  ret void\n}\n"
        )
        done = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
        assert (done.returncode == 0) is fits, done.stderr


def test_matrix_instructions_by_generation() -> None:
    """MFMA from CDNA, WMMA from RDNA 3, sparse kinds from CDNA 3 and RDNA 4 (LLVM, AMDGPU.td)."""
    kinds = {gfx: set(target.matrix) for gfx, target in TARGETS.items() if target.matrix}
    assert {gfx for gfx, found in kinds.items() if "mfma" in found} == {
        "gfx908",
        "gfx90a",
        "gfx942",
        "gfx950",
    }
    assert {gfx for gfx, found in kinds.items() if "smfmac" in found} == {"gfx942", "gfx950"}
    assert {gfx for gfx, found in kinds.items() if "swmmac" in found} == {"gfx1200", "gfx1201", "gfx1250"}
    assert all(int(gfx[3:5]) >= 11 for gfx, found in kinds.items() if "wmma" in found)
    assert all(TARGETS[gfx].bf16 for gfx in kinds)


def test_dot_products_by_target() -> None:
    """Consumer GCN 5 but gfx906, and gfx1010 and gfx1013, have none (LLVM, AMDGPU.td, FeatureDot*Insts)."""
    without = {gfx for gfx, target in TARGETS.items() if not target.dot}
    assert without == {"gfx900", "gfx902", "gfx904", "gfx909", "gfx90c", "gfx1010", "gfx1013"}
    halves = {gfx for gfx, target in TARGETS.items() if "v_dot2_f32_f16" in target.dot}
    assert {*TARGETS} - halves == without | {"gfx1250"}


@pytest.mark.parametrize("gfx", TARGETS)
def test_rates_are_in_order(gfx: str) -> None:
    """Half the width is never slower; matrix units are never slower than the lanes."""
    flops = TARGETS[gfx].flops
    for slow, fast in (
        ("fp32", "fp16"), ("fp16", "int8"), ("fp32", "fp32_matrix"), ("fp16", "fp16_matrix"), ("int8", "int8_matrix"),
        ("fp32_matrix", "fp16_matrix"), ("bf16_matrix", "fp16_matrix"), ("fp16_matrix", "int8_matrix"),
    ):  # fmt: skip
        if slow in flops and fast in flops:
            assert flops[slow] <= flops[fast], (slow, fast)  # type: ignore[index]
    assert bool(TARGETS[gfx].matrix) == any(rate.endswith("_matrix") for rate in flops) or not flops


@pytest.mark.parametrize(
    "generations",
    [("gfx908", "gfx90a", "gfx942", "gfx950"), ("gfx1010", "gfx1030", "gfx1100", "gfx1150", "gfx1201")],
)
def test_no_generation_is_slower_than_the_one_before(generations: tuple[str, ...]) -> None:
    for old, new in pairwise(generations):
        shared = TARGETS[old].flops.keys() & TARGETS[new].flops.keys()
        assert shared
        assert all(TARGETS[old].flops[rate] <= TARGETS[new].flops[rate] for rate in shared)


@pytest.mark.parametrize("gfx", TARGETS)
def test_integrated_agrees_with_the_probe(gfx: str) -> None:
    assert TARGETS[gfx].integrated == is_integrated(gfx, None)


# ---- Products -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("product", PRODUCTS, ids=by_name)
def test_a_product_is_sourced_and_its_ids_are_of_its_target(product: Product) -> None:
    assert product.source
    assert all(product.source)
    for pci_id in product.pci_ids:
        assert gfx_of_pci_id(pci_id) == product.gfx


@pytest.mark.parametrize("product", [each for each in PRODUCTS if each.peaks and each.gfx], ids=by_name)
def test_published_peaks_are_units_times_clock_times_rate(product: Product) -> None:
    target = TARGETS[product.gfx or ""]
    computed = peaks.computed(target, product.compute_units, product.boost_hz)
    shared = computed.keys() & product.peaks.keys()
    assert "fp32" in shared
    for rate in shared:
        tolerance = 0.025 if product.name == "Steam Deck" else 0.02  # 1.638 TFLOPS, published as 1.6
        assert computed[rate].value == pytest.approx(product.peaks[rate], rel=tolerance), rate  # type: ignore[index]


@pytest.mark.parametrize("product", [each for each in PRODUCTS if each.memory_bits_per_s], ids=by_name)
def test_bandwidth_is_bus_times_rate(product: Product) -> None:
    assert product.memory_bus_bits
    assert product.memory_bits_per_s
    bytes_per_s = product.memory_bus_bits * product.memory_bits_per_s / 8
    assert product.bandwidth_bytes_per_s == pytest.approx(bytes_per_s, rel=0.02)


def test_enough_bandwidths_were_recomputed() -> None:
    assert sum(each.memory_bits_per_s is not None for each in PRODUCTS) > 40


# Published by the makers in data sheets and at launch, in TFLOPS (int8: TOPS; of RDNA 4 half the sparse figure).
@pytest.mark.parametrize(
    ("name", "rate", "tflops"),
    [("MI300X", "fp16_matrix", 1307.4), ("MI300X", "fp32", 163.4), ("MI355X", "fp16_matrix", 2516.6),
     ("MI300A", "fp16_matrix", 980.6), ("MI300A", "fp32", 122.6),
     ("MI250X", "fp16_matrix", 383 / 2), ("MI210", "bf16_matrix", 181.0), ("MI100", "bf16_matrix", 92.3),
     ("MI50 16GB", "int8", 53.6), ("RX 7900 XTX", "fp16_matrix", 122.8), ("RX 9070 XT", "fp16_matrix", 195),
     ("RX 9070 XT", "int8_matrix", 779 / 2), ("RX 9060 XT 16GB", "int8_matrix", 410 / 2), ("RX 6900 XT", "fp32", 23.04),
     ("8060S", "fp16_matrix", 59.4), ("780M", "fp32", 8.29), ("RX Vega 64", "fp32", 12.66),
     ("H200", "fp16_matrix", 989)],
)  # fmt: skip
def test_peaks_are_those_that_the_makers_publish(name: str, rate: str, tflops: float) -> None:
    assert catalogue.device_of(name).peaks[rate].value == pytest.approx(tflops * 1e12, rel=0.02)


@pytest.mark.parametrize(
    ("name", "gb_per_s"),
    [
        ("890M", 120),
        ("880M", 120),
        ("860M", 128),
        ("780M", 120),
        ("8060S", 256),
        ("MI300A", 5300),
        ("MI300X", 5300),
    ],
)
def test_bandwidths_are_those_of_the_fastest_memory_that_is_named(name: str, gb_per_s: float) -> None:
    """LPDDR5-7500 and LPDDR5X-8000 at 128 bits, LPDDR5X-8000 at 256, HBM3 as AMD publishes it."""
    assert catalogue.device_of(name).peaks["bandwidth"].value == pytest.approx(gb_per_s * 1e9)


# ---- Support --------------------------------------------------------------------------------------------------------


def test_support_of_the_targets_that_newcomers_ask_about() -> None:
    def official(gfx: str) -> set[str]:
        return {each.runtime for each in catalogue.support(gfx) if each.status == "official"}

    assert {"ROCm", "MIGraphX", "PyTorch"} <= official("gfx942")
    assert {"ROCm", "MIGraphX"} <= official("gfx1103")
    assert {"ROCm", "MIGraphX"} <= official("gfx1153")  # the Radeon 840M of a Ryzen AI 5 430
    assert "ROCm" in official("gfx1030")
    assert "MIGraphX" not in official("gfx1030")  # its list is narrower
    assert official("gfx1010") == set()
    assert any(each.status == "unofficial" for each in catalogue.support("gfx1010"))
    assert [each.status for each in catalogue.support("gfx1030") if each.runtime == "Triton"] == ["refused"]


def test_migraphx_supports_more_with_each_release() -> None:
    lists = [set(each.targets) for each in SUPPORT if each.runtime == "MIGraphX"]
    assert len(lists) == 3
    newest, middle, oldest = lists
    assert oldest < middle < newest
    assert newest - middle == {"gfx1103"}


def test_support_is_sourced_and_says_no_two_things() -> None:
    for gfx in TARGETS:
        entries = catalogue.support(gfx)
        assert all(each.source for each in entries)
        said = [(each.runtime, each.versions) for each in entries]
        assert len(said) == len(set(said))
