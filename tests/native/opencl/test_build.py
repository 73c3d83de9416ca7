"""Programs from source and from kept binaries: whatever lies in the folder, what is built is right."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from wavefit.native.opencl import build as module
from wavefit.native.opencl.build import build, options

cl = pytest.importorskip("pyopencl")


@pytest.fixture(autouse=True)
def kept_on_every_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    """PoCL stands for a driver that keeps nothing itself."""
    monkeypatch.setattr(module, "_POCL", "none")


SOURCE = "__kernel void twice(__global float *a) { a[get_global_id(0)] *= 2.0f; }"


@pytest.fixture(scope="module")
def context() -> Any:
    return cl.Context([next(device for each in cl.get_platforms() for device in each.get_devices())])


def right(context: Any, program: Any) -> bool:
    queue = cl.CommandQueue(context)
    memory = np.arange(8, dtype=np.float32)
    buffer = cl.Buffer(context, cl.mem_flags.COPY_HOST_PTR, hostbuf=memory)
    cl.Kernel(program, "twice")(queue, (8,), None, buffer)
    got = np.empty_like(memory)
    cl.enqueue_copy(queue, got, buffer)
    return bool((got == 2 * memory).all())


def kept(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


def test_a_binary_is_kept_and_taken(context: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert right(context, build(context, SOURCE, tmp_path / "new"))
    (file,) = kept(tmp_path / "new")
    monkeypatch.setattr(module, "_compiled", None)  # would be called, were the source compiled again
    assert right(context, build(context, SOURCE, tmp_path / "new"))
    assert kept(tmp_path / "new") == [file]


def test_other_sources_are_other_files(context: Any, tmp_path: Path) -> None:
    build(context, SOURCE, tmp_path)
    build(context, SOURCE.replace("2.0f", "3.0f"), tmp_path)
    assert len(kept(tmp_path)) == 2


@pytest.mark.parametrize("damage", [b"", b"nonsense", "cut", "flipped"])
def test_a_damaged_file_is_made_anew(context: Any, tmp_path: Path, damage: bytes | str) -> None:
    build(context, SOURCE, tmp_path)
    (file,) = kept(tmp_path)
    whole = file.read_bytes()
    changed = {"cut": whole[:-9], "flipped": whole[:-1] + bytes([whole[-1] ^ 1])}
    file.write_bytes(changed[damage] if isinstance(damage, str) else damage)
    assert right(context, build(context, SOURCE, tmp_path))
    assert right(context, build(context, SOURCE, tmp_path))
    assert len(file.read_bytes()) > 100


def test_a_folder_that_cannot_be_made_keeps_nothing(context: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert right(context, build(context, SOURCE, tmp_path / "file" / "folder"))


def test_several_threads_build_the_same(context: Any, tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        programs = list(pool.map(lambda _: build(context, SOURCE, tmp_path), range(8)))
    assert all(right(context, program) for program in programs)
    assert [each.suffix for each in kept(tmp_path)] == [".bin"]


def test_a_writer_that_is_killed_stops_nobody(context: Any, tmp_path: Path) -> None:
    """It leaves a part of a file at most, never a lock."""
    code = (
        "import os, pathlib, sys\n"
        "import pyopencl as cl\n"
        "from wavefit.native.opencl import build as module\n"
        "module._POCL = 'none'\n"
        "pathlib.Path.replace = lambda self, target: os.abort()\n"
        "context = cl.Context([next(d for p in cl.get_platforms() for d in p.get_devices())])\n"
        f"module.build(context, {SOURCE!r}, pathlib.Path(sys.argv[1]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, check=False)
    assert done.returncode != 0
    assert [each.suffix for each in kept(tmp_path)] == [".part"]
    assert right(context, build(context, SOURCE, tmp_path))
    assert {each.suffix for each in kept(tmp_path)} == {".bin", ".part"}


def test_what_does_not_compile_is_the_drivers_error(context: Any, tmp_path: Path) -> None:
    with pytest.raises(cl.Error, match="BUILD_PROGRAM_FAILURE"):
        build(context, "__kernel void twice( {", tmp_path)
    assert not kept(tmp_path)


def test_integer_dot_products_need_opencl_c_3() -> None:
    assert options(SimpleNamespace(extensions="cl_khr_fp16 "))[0] == "-cl-std=CL1.2"
    assert options(SimpleNamespace(extensions="cl_khr_integer_dot_product cl_khr_fp16"))[0] == "-cl-std=CL3.0"


def test_another_drivers_binary_is_not_taken(
    context: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(context, SOURCE, tmp_path)
    device = context.devices[0]
    platform = SimpleNamespace(name=device.platform.name, version=device.platform.version)
    told = {"name": device.name, "extensions": device.extensions, "version": device.version}
    updated = SimpleNamespace(**told, platform=platform, driver_version=device.driver_version + ".1")
    old, new = (module._key(SimpleNamespace(devices=[each]), SOURCE) for each in (device, updated))
    assert old != new
    assert [each.stem for each in kept(tmp_path)] == [old]


def test_pocls_binaries_are_not_kept(context: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_POCL", context.devices[0].platform.name.strip())
    assert right(context, build(context, SOURCE, tmp_path))
    assert not kept(tmp_path)
