"""Targets by device and route: of recorded CPUs and of the catalogue's GPUs."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes import sysfs

from wavefit.device.catalogue import device_of
from wavefit.device.cpu import cpu
from wavefit.precision.int8.targets import LIMITS, Target, target
from wavefit.schema import Device, Unsupported

# The "flags" and "Features" lines of /proc/cpuinfo, shortened to vector instructions and some others.
ZEN2 = "flags\t\t: fpu sse4_2 avx f16c avx2 bmi2 fma sha_ni"
SKYLAKE = "flags\t\t: fpu avx avx2 avx512f avx512dq avx512cd avx512bw avx512vl fma"
ICE_LAKE = "flags\t\t: fpu avx avx2 avx512f avx512bw avx512vl avx512_vnni avx512_bitalg fma"
ALDER_LAKE = "flags\t\t: fpu avx avx2 avx_vnni f16c fma gfni"
ZEN4 = "flags\t\t: fpu avx avx2 avx512f avx512bw avx512_bf16 avx512_vnni fma"
CORTEX_A72 = "Features\t: fp asimd evtstrm aes pmull crc32"
NEOVERSE_N1 = "Features\t: fp asimd asimdhp cpuid asimddp"


def _cpu(tmp_path: Path, line: str) -> Device:
    sysfs.write(
        sysfs.linux(tmp_path), {"proc/cpuinfo": f"processor\t: 0\nvendor_id\t: AuthenticAMD\n{line}\n"}
    )
    return cpu(tmp_path)


@pytest.mark.parametrize(
    ("line", "bits", "dot"),
    [
        (ZEN2, 7, False),
        (SKYLAKE, 7, False),
        (ICE_LAKE, 8, True),
        (ALDER_LAKE, 8, True),
        (ZEN4, 8, True),
        (CORTEX_A72, 8, False),
        (NEOVERSE_N1, 8, True),
    ],
)
def test_weights_have_seven_bits_only_where_pairs_of_products_saturate(
    line: str, bits: int, dot: bool, tmp_path: Path
) -> None:
    found = target(_cpu(tmp_path, line), "ort_cpu")
    assert isinstance(found, Target)
    assert (found.weight_bits, found.dot) == (bits, dot)
    assert (found.activation, found.weight, found.per_channel, found.symmetric) == (
        "uint8",
        "int8",
        True,
        False,
    )
    assert "ConvTranspose" not in found.operators


def test_a_cpu_of_which_nothing_is_known_gets_what_is_right_on_all(tmp_path: Path) -> None:
    found = target(_cpu(tmp_path, "model name\t: unknown"), "ort_cpu")
    assert isinstance(found, Target)
    assert (found.weight_bits, found.dot) == (7, None)


def test_the_seven_bits_cannot_saturate() -> None:
    found = target(Device(id="cpu", kind="cpu"), "ort_cpu")
    assert isinstance(found, Target)
    assert LIMITS[found.activation][1] * found.weight_limit * 2 <= 2**15 - 1


@pytest.mark.parametrize(
    ("gfx", "dot"),
    [
        ("gfx942", True),
        ("gfx90a", True),
        ("gfx1030", True),
        ("gfx1103", True),
        ("gfx1201", True),
        ("gfx90c", False),
    ],
)
def test_migraphx_takes_signed_integers_without_zero_points(gfx: str, dot: bool) -> None:
    found = target(device_of(gfx), "ort_migraphx")
    assert isinstance(found, Target)
    assert (found.activation, found.symmetric, found.weight, found.per_channel) == (
        "int8",
        True,
        "int8",
        True,
    )
    assert found.operators == {"Conv", "Gemm", "MatMul"}
    assert found.dot is dot


@pytest.mark.parametrize(("gfx", "dot"), [("gfx1103", True), ("gfx906", True), ("gfx90c", False)])
def test_the_engine_takes_any_zero_point(gfx: str, dot: bool) -> None:
    found = target(device_of(gfx), "native_opencl")
    assert isinstance(found, Target)
    assert (found.activation, found.symmetric, found.weight, found.per_channel) == (
        "uint8",
        False,
        "int8",
        True,
    )
    assert found.dot is dot
    on_cpu = target(Device(id="cpu", kind="cpu"), "native_opencl")
    assert isinstance(on_cpu, Target)
    assert on_cpu.dot is False  # PoCL has none


def test_a_gpu_that_the_catalogue_lacks_is_unknown() -> None:
    found = target(Device(id="gpu0", kind="gpu", gfx="gfx9999"), "ort_migraphx")
    assert isinstance(found, Target)
    assert found.dot is None


@pytest.mark.parametrize("route", ["ort_rocm", "ort_webgpu", "torch_gpu"])
def test_routes_without_int8_kernels_say_so(route: str) -> None:
    found = target(device_of("gfx1100"), route)
    assert isinstance(found, Unsupported)
    assert found.precision == "int8"
    assert found.reason
    assert found.fix


@pytest.mark.parametrize("route", ["ort_cpu", "ort_migraphx", "ort_directml", "native_opencl"])
def test_every_target_names_its_source(route: str) -> None:
    found = target(device_of("gfx1100"), route)
    assert isinstance(found, Target)
    assert len(found.source) > 20
