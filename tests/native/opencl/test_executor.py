"""Programs on the device against ONNX Runtime: one batch at a time, streams of batches, both kinds of memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from fakes.models import conv_net

from wavefit.errors import RouteError
from wavefit.native import engine
from wavefit.native.limits import of_opencl
from wavefit.native.opencl.chooser import Chooser
from wavefit.native.opencl.executor import Executor
from wavefit.native.opencl.relocate import relocatable
from wavefit.native.program import Program

cl = pytest.importorskip("pyopencl")


@pytest.fixture(scope="module")
def device() -> Any:
    return next(device for platform in cl.get_platforms() for device in platform.get_devices())


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("net") / "net.onnx"
    onnx.save(conv_net(), str(path))
    return path


@pytest.fixture(scope="module")
def program(path: Path, device: Any) -> Program:
    made = engine.prepare(path, {"image": (3, 3, 8, 8)}, Chooser(of_opencl(device, None)))
    assert isinstance(made, Program), made
    return made


def _batches(count: int) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    return [{"image": rng.standard_normal((3, 3, 8, 8)).astype(np.float32)} for _ in range(count)]


def _wanted(path: Path, batches: list[dict[str, np.ndarray]]) -> list[np.ndarray]:
    ort = pytest.importorskip("onnxruntime")
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return [session.run(None, batch)[0] for batch in batches]


def _near(got: np.ndarray, want: np.ndarray, tolerance: float = 1e-5) -> bool:
    return float(np.linalg.norm(got - want)) <= tolerance * float(np.linalg.norm(want))


def test_runs_and_streams_alike_and_keeps_no_batch_for_another(
    path: Path, program: Program, device: Any
) -> None:
    batches = _batches(5)
    executor = Executor(program, device)
    wanted = _wanted(path, batches)
    single = [executor.run(batch)["logits"] for batch in batches]
    streamed = [outputs["logits"] for outputs in executor.stream(batches)]
    assert list(executor.stream([])) == []
    assert len(list(executor.stream(batches[:1]))) == 1
    executor.close()
    for want, one, other in zip(wanted, single, streamed, strict=True):
        assert _near(one, want)
        np.testing.assert_array_equal(one, other)


def test_memory_of_its_own_beside_the_device_gives_the_same(
    path: Path, program: Program, device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a discrete GPU does: page-locked twins, and copies."""
    batches = _batches(4)
    monkeypatch.setattr(Executor, "_shares_memory", lambda self, device: False)
    executor = Executor(program, device)
    for want, got in zip(_wanted(path, batches), executor.stream(batches), strict=True):
        assert _near(got["logits"], want)
    for want, batch in zip(_wanted(path, batches), batches, strict=True):
        assert _near(executor.run(batch)["logits"], want)
    executor.close()


def test_times_name_every_launch(program: Program, device: Any) -> None:
    executor = Executor(program, device, profiling=True)
    executor.run(_batches(1)[0])
    times = executor.times()
    executor.close()
    assert [step.kernel.name for step, _ in times] == [step.kernel.name for step in program.steps]
    assert all(seconds >= 0 for _, seconds in times)


def test_half_storage_halves_the_weights_and_keeps_the_answers(
    path: Path, device: Any, program: Program
) -> None:
    shapes = {"image": (3, 3, 8, 8)}
    half = engine.prepare(path, shapes, Chooser(of_opencl(device, None)), storage="float16")
    assert isinstance(half, Program)
    bytes_of = [sum(array.nbytes for array in each.constants.values()) for each in (half, program)]
    assert bytes_of[0] * 2 == bytes_of[1]
    executor = Executor(half, device)
    batches = _batches(2)
    for want, batch in zip(_wanted(path, batches), batches, strict=True):
        assert _near(executor.run(batch)["logits"], want, 2e-3)
    executor.close()


def test_a_kernel_that_does_not_compile_is_one_sentence(program: Program, device: Any) -> None:
    from dataclasses import replace

    from msgspec.structs import replace as changed

    step = program.steps[0]
    broken = replace(
        step, kernel=changed(step.kernel, source=step.kernel.source.replace("{", "{ nonsense", 1))
    )
    with pytest.raises(RouteError, match="OpenCL failed"):
        Executor(replace(program, steps=(broken, *program.steps[1:])), device)


def test_too_little_memory_is_said_so(program: Program, device: Any) -> None:
    from dataclasses import replace

    with pytest.raises(RouteError, match="too little memory"):
        Executor(replace(program, arena_bytes=1 << 46), device)


def test_every_pointer_of_a_kernel_is_followed_by_its_place() -> None:
    source = (
        "static float twice(float x) { return 2 * x; }\n"
        "__kernel __attribute__((reqd_work_group_size(1, 1, 1)))\n"
        "void scale(__global const half *in0, __global float *out0)\n{\n  out0[0] = twice(vload_half(0, in0));\n}\n"
    )
    moved = relocatable(source, "scale")
    assert "__global const half *in0, const ulong in0_at, __global float *out0, const ulong out0_at" in moved
    context = cl.create_some_context(interactive=False)
    queue = cl.CommandQueue(context)
    kernel = cl.Program(context, moved).build().scale
    memory = np.zeros(64, np.float32)
    memory.view(np.float16)[8] = 1.5
    buffer = cl.Buffer(context, cl.mem_flags.COPY_HOST_PTR, hostbuf=memory)
    kernel(queue, (1,), (1,), buffer, np.uint64(16), buffer, np.uint64(128))
    cl.enqueue_copy(queue, memory, buffer)
    assert memory[32] == 3.0
