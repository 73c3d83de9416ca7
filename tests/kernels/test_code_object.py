"""Kernels with known resources, compiled for GPUs that are not here, and damaged code objects."""

from __future__ import annotations

import random
from functools import cache

import pytest

from wavefit.errors import InputError
from wavefit.kernels import code_object, toolchain
from wavefit.kernels.code_object import KernelResources
from wavefit.kernels.compile import Compiled, Failed, compile_source

pytest.importorskip("elftools")
pytest.importorskip("msgpack")

ZIG = toolchain.find("zig")
pytestmark = pytest.mark.skipif(isinstance(ZIG, toolchain.Missing), reason="ziglang is not installed")

INDEXED = """__kernel void indexed(__global float *a, __global const int *at) {
    float held[128];
    for (int i = 0; i < 128; i++) held[i] = a[i * 3];
    for (int i = 0; i < 128; i++) held[at[i]] += held[at[i + 128]];
    for (int i = 0; i < 128; i++) a[i * 3] = held[at[i + 7]];
}"""
LDS = """__kernel __attribute__((reqd_work_group_size(256, 1, 1))) void shared(__global float *a) {
    __local float tile[1536];
    const int l = get_local_id(0);
    for (int i = l; i < 1536; i += 256) tile[i] = a[i];
    barrier(CLK_LOCAL_MEM_FENCE);
    a[l] = tile[1535 - l] + tile[(l * 7) % 1536];
}"""
WIDE = """__kernel void wide(__global const float4 *a, __global float4 *o) {
    const int i = get_global_id(0);
    o[i] = fma(a[i], a[i + 100], (float4)(1.0f));
}"""
HUGE = """__kernel __attribute__((reqd_work_group_size(1024, 1, 1))) void huge(__global float4 *a) {
    float4 s[80];
    const int i = get_global_id(0);
    #pragma unroll
    for (int k = 0; k < 80; k++) s[k] = a[i + k * 4096];
    for (int n = 0; n < 100; n++) {
        #pragma unroll
        for (int k = 0; k < 80; k++) s[k] = fma(s[k], s[(k + 1) % 80], s[(k + 7) % 80]);
    }
    #pragma unroll
    for (int k = 0; k < 80; k++) a[i + k * 4096] = s[k];
}"""
BYTES = """__kernel void bytes(__global const uint *a, __global int *o) {
    const int i = get_global_id(0);
    o[i] = dot_acc_sat_4x8packed_ss_int(a[i], a[i + 1], o[i]);
}"""


@cache
def made(source: str, target: str, name: str = "zig") -> Compiled:
    compiler = toolchain.find(name)
    assert isinstance(compiler, toolchain.Toolchain)
    compiled = compile_source(source, target, compiler)
    assert isinstance(compiled, Compiled), compiled
    return compiled


def kernel(source: str, target: str, name: str = "zig") -> KernelResources:
    compiled = made(source, target, name)
    (found,) = code_object.read(compiled.elf, "it", compiled.assembly)
    return found


@pytest.mark.parametrize("target", ["gfx90c", "gfx1103", "gfx90a"])
def test_a_private_array_with_computed_places_lies_in_scratch(target: str) -> None:
    assert kernel(INDEXED, target).scratch_bytes >= 512  # 128 floats


@pytest.mark.parametrize("target", ["gfx906", "gfx1035", "gfx942"])
def test_local_memory_is_what_was_declared(target: str) -> None:
    found = kernel(LDS, target)
    assert (found.lds_bytes, found.scratch_bytes) == (1536 * 4, 0)
    assert (found.work_group, found.required) == (256, (256, 1, 1))
    assert found.instructions["barrier"] >= 1


@pytest.mark.parametrize(
    ("target", "wave"), [("gfx90c", 64), ("gfx1030", 32), ("gfx1151", 32), ("gfx942", 64)]
)
def test_four_floats_are_one_load(target: str, wave: int) -> None:
    found = kernel(WIDE, target)
    assert found.wave == wave
    assert found.instructions["load_128"] == 2
    assert found.instructions["store_128"] == 1
    assert found.instructions.get("fma", 0) + found.instructions.get("packed", 0) >= 2
    assert found.wgp_mode == (wave == 32)


def test_more_accumulators_than_registers_spill() -> None:
    found = kernel(HUGE, "gfx90c")  # 1024 work-items leave 64 of 256 registers to each; it holds 320
    assert found.vgprs <= 64
    assert found.vgpr_spills > 100
    assert found.scratch_bytes > 400


@pytest.mark.parametrize(("target", "has"), [("gfx90c", 0), ("gfx906", 1), ("gfx1030", 1), ("gfx1103", 1)])
def test_bytes_are_multiplied_by_the_dot_instruction_where_there_is_one(target: str, has: int) -> None:
    assert kernel(BYTES, target).instructions.get("dot", 0) == has


def test_accumulation_registers_are_counted_on_cdna_alone() -> None:
    assert kernel(WIDE, "gfx90a").agprs == 0
    assert kernel(WIDE, "gfx1103").agprs is None


def test_an_error_names_its_line() -> None:
    assert isinstance(ZIG, toolchain.Toolchain)
    failed = compile_source("\n\nkernel void f(global float *a) { a[0] = b; }", "gfx1103", ZIG)
    assert isinstance(failed, Failed)
    assert failed.kind == "refused"
    assert failed.reason == "line 3: use of undeclared identifier 'b'"


def test_a_function_without_a_body_does_not_link() -> None:
    assert isinstance(ZIG, toolchain.Toolchain)
    failed = compile_source(
        "float g(float); kernel void f(global float *a) { a[0] = g(a[1]); }", "gfx1103", ZIG
    )
    assert isinstance(failed, Failed)


def test_a_compiler_that_takes_too_long_is_ended() -> None:
    assert isinstance(ZIG, toolchain.Toolchain)
    failed = compile_source(HUGE, "gfx90c", ZIG, deadline_s=0.01)
    assert isinstance(failed, Failed)
    assert failed.kind == "timeout"


def test_what_is_no_code_object_is_refused_in_a_sentence() -> None:
    with pytest.raises(InputError, match=r"x\.hsaco is no ELF file"):
        code_object.read(b"MZ" + b"\0" * 100, "x.hsaco")
    with pytest.raises(InputError, match=r"x\.hsaco"):
        code_object.read(b"\x7fELF", "x.hsaco")


def sentence(elf: bytes) -> str | None:
    """What is said of a damaged code object; None where it could be read."""
    try:
        code_object.read(elf, "it")
    except InputError as error:
        return str(error)
    return None


def test_a_damaged_code_object_is_refused_or_read_but_never_crashes() -> None:
    whole, rng = made(WIDE, "gfx1103").elf, random.Random(0)
    refused = 0
    for number in range(300):
        torn = bytearray(whole[: rng.randrange(len(whole))] if number % 3 == 0 else whole)
        for _ in range(rng.randrange(1, 30)):
            if torn:
                torn[rng.randrange(len(torn))] = rng.randrange(256)
        said = sentence(bytes(torn))
        assert said is None or said.startswith("it")
        refused += said is not None
    assert refused > 50


MATHS = """__kernel void maths(__global const float *a, __global float *o) {
    const int i = get_global_id(0);
    o[i] = %s;
}"""


@pytest.mark.skipif(
    isinstance(toolchain.find("clang-19"), toolchain.Missing), reason="clang-19 is not installed"
)
@pytest.mark.parametrize("source", [LDS, WIDE], ids=["lds", "wide"])
@pytest.mark.parametrize("target", ["gfx90c", "gfx1103"])
def test_two_compilers_agree_on_plain_kernels(source: str, target: str) -> None:
    zig, clang = kernel(source, target), kernel(source, target, "clang-19")
    assert zig.lds_bytes == clang.lds_bytes
    assert zig.scratch_bytes == clang.scratch_bytes == 0
    assert abs(zig.vgprs - clang.vgprs) <= 8
    for kind in ("load_128", "store_128", "barrier"):
        assert zig.instructions.get(kind) == clang.instructions.get(kind)


@pytest.mark.skipif(
    isinstance(toolchain.find("clang-19"), toolchain.Missing), reason="clang-19 is not installed"
)
@pytest.mark.parametrize(
    "code", ["exp(a[i])", "tanh(a[i])", "erf(a[i])", "pow(a[i], a[i + 1])", "log1p(a[i])"]
)
def test_our_functions_cost_about_what_libclcs_cost(code: str) -> None:
    ours, theirs = (kernel(MATHS % code, "gfx90c", name) for name in ("zig", "clang-19"))
    assert ours.scratch_bytes == theirs.scratch_bytes == 0
    assert abs(ours.vgprs - theirs.vgprs) <= 16
