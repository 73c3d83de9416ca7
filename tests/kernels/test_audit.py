"""The rules, on kernels that keep and break them; what is kept in the cache."""

from __future__ import annotations

from pathlib import Path

import pytest

from wavefit.errors import InputError
from wavefit.kernels import audit, toolchain
from wavefit.kernels.audit import Source
from wavefit.kernels.cache import Cache

pytest.importorskip("elftools")
pytest.importorskip("msgpack")

ZIG = toolchain.find("zig")
pytestmark = pytest.mark.skipif(isinstance(ZIG, toolchain.Missing), reason="ziglang is not installed")

GOOD = "__kernel void good(__global float *a) { a[get_global_id(0)] += 1.0f; }"
LARGE = """__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void large(__global float *a) {
    __local float tile[%d];
    for (int i = get_local_id(0); i < %d; i += 64) tile[i] = a[i];
    barrier(CLK_LOCAL_MEM_FENCE);
    a[get_local_id(0)] = tile[(int)a[0]];
}"""


def rows(source: Source, *targets: str, cache: Path) -> list[audit.Row]:
    assert isinstance(ZIG, toolchain.Toolchain)
    return audit.audit(audit.every([source], targets), ZIG, lambda _: None, Cache(cache))


def test_a_plain_kernel_is_good_on_every_target(tmp_path: Path) -> None:
    found = rows(Source(name="good", text=GOOD), *audit.TARGETS, cache=tmp_path)
    assert [row.target for row in found] == list(audit.TARGETS)
    assert all(row.good for row in found)


def test_one_work_group_of_one_wave_a_cu_is_too_few(tmp_path: Path) -> None:
    (row,) = rows(Source(name="large", text=LARGE % (16000, 16000)), "gfx90c", cache=tmp_path)
    assert row.problems == ("0.25 waves a SIMD (bound by lds), fewer than 4",)


def test_more_local_memory_than_a_target_has_is_a_row_and_no_crash(tmp_path: Path) -> None:
    (row,) = rows(Source(name="large", text=LARGE % (17000, 17000)), "gfx1103", cache=tmp_path)
    assert not row.good
    assert "local memory" in row.problems[0] or "LDS of 68000 bytes" in row.problems[0]


def test_a_work_group_beyond_what_was_compiled_for(tmp_path: Path) -> None:
    (row,) = rows(Source(name="good", text=GOOD, work_group=512), "gfx1103", cache=tmp_path)
    assert row.problems == ("a work-group of 512, and it is compiled for at most 256",)


def test_what_does_not_compile_says_so_and_a_missing_kernel_too(tmp_path: Path) -> None:
    (bad,) = rows(Source(name="bad", text="kernel void f( {"), "gfx1103", cache=tmp_path)
    assert bad.problems[0].startswith("does not compile: line 1: ")
    (none,) = rows(Source(name="good", text=GOOD, kernel="other"), "gfx1103", cache=tmp_path)
    assert none.problems == ("there is no kernel 'other'",)


def test_a_second_audit_reads_the_cache_and_a_torn_entry_is_compiled_again(tmp_path: Path) -> None:
    first = rows(Source(name="good", text=GOOD), "gfx1103", cache=tmp_path)
    (kept,) = tmp_path.glob("*.json")
    changed = kept.read_bytes().replace(b'"vgprs":', b'"vgprs":9')
    kept.write_bytes(changed)
    again = rows(Source(name="good", text=GOOD), "gfx1103", cache=tmp_path)
    assert again[0].resources is not None
    assert first[0].resources is not None
    assert str(again[0].resources.vgprs) == f"9{first[0].resources.vgprs}"
    kept.write_bytes(changed[:20])
    assert rows(Source(name="good", text=GOOD), "gfx1103", cache=tmp_path) == first


def test_a_target_that_is_not_known() -> None:
    with pytest.raises(InputError, match="no target gfx803"):
        audit.check_targets(["gfx1103", "gfx803"])
    with pytest.raises(InputError):
        audit.check_targets(["780M"])


def test_a_toolchain_that_is_not_here_is_refused_with_those_that_are() -> None:
    found = toolchain.find("nvcc")
    assert isinstance(found, toolchain.Missing)
    assert "zig" in found.fix
