"""What OpenCL says, as a refusal: the cause where it is known."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from wavefit.errors import RouteError
from wavefit.native.opencl.errors import refusal, translated
from wavefit.native.opencl.launch import Launcher

cl = pytest.importorskip("pyopencl")


@pytest.mark.parametrize(
    ("said", "what", "fix"),
    [
        ("clEnqueueNDRangeKernel failed: OUT_OF_RESOURCES", "too little memory", "--batch"),
        ("create_buffer failed: MEM_OBJECT_ALLOCATION_FAILURE", "too little memory", "--batch"),
        ("create_buffer failed: INVALID_BUFFER_SIZE", "too little memory", "--batch"),
        ("clBuildProgram failed:\n BUILD_PROGRAM_FAILURE", "OpenCL failed: clBuildProgram failed: BUILD", ""),
    ],
)
def test_memory_is_told_from_the_rest(said: str, what: str, fix: str) -> None:
    error = refusal("gfx1103", said)
    assert error.reason.startswith("gfx1103")
    assert what in error.reason
    assert "\n" not in error.reason
    assert fix in error.fix


@pytest.mark.parametrize(
    ("raised", "what"),
    [
        (MemoryError("no"), "too little memory: no"),
        (cl.LogicError("INVALID_VALUE"), "OpenCL failed: INVALID_VALUE"),
    ],
)
def test_what_pyopencl_raises_is_translated(raised: Exception, what: str) -> None:
    with pytest.raises(RouteError, match=what) as caught, translated("gfx90c"):
        raise raised
    assert caught.value.__cause__ is raised


def test_other_errors_pass() -> None:
    with pytest.raises(KeyError), translated("gfx90c"):
        raise KeyError("a bug")


@pytest.mark.parametrize(
    ("status", "what"), [(-5, "too little memory"), (-54, "a launch was refused: INVALID_WORK_GROUP_SIZE")]
)
def test_a_launch_that_is_refused_says_why(status: int, what: str) -> None:
    """Drivers that allocate late tell of short memory here."""
    queue = SimpleNamespace(device=SimpleNamespace(name="gfx90c "), int_ptr=1)
    launcher = Launcher(queue, [(SimpleNamespace(int_ptr=2), (64,), (64,))])
    launcher._enqueue = lambda *call: status
    with pytest.raises(RouteError, match=what):
        launcher()
