"""Command buffers: in order, again and again, one behind another; and what is done where a driver refuses them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from wavefit.errors import RouteError
from wavefit.native.opencl import recording
from wavefit.native.opencl.launch import Launcher
from wavefit.native.opencl.recording import EXTENSION, Recording, launcher

cl = pytest.importorskip("pyopencl")

# Remainders stay small, and tell the order: x to 3 x + 1 and x to 2 x + 5 do not commute.
SOURCE = """
__kernel void first(__global uint *a) { a[get_global_id(0)] = (a[get_global_id(0)] * 3u + 1u) % 65521u; }
__kernel void second(__global uint *a) { a[get_global_id(0)] = (a[get_global_id(0)] * 2u + 5u) % 65521u; }
"""
ORDER = ("first", "second", "second", "first", "second")
ITEMS = 17


def devices() -> list[Any]:
    return [device for platform in cl.get_platforms() for device in platform.get_devices()]


class Work:
    """Launches on a buffer of 0, 1, 2, ..."""

    def __init__(self, device: Any) -> None:
        self.context = cl.Context([device])  # Intel's queues do not keep it alive
        self.queue = cl.CommandQueue(self.context)
        program = cl.Program(self.context, SOURCE).build()
        self._memory = np.arange(ITEMS, dtype=np.uint32)
        flags = cl.mem_flags.COPY_HOST_PTR
        self._buffer = cl.Buffer(self.context, flags, hostbuf=self._memory)
        self.launches = []
        for name in ORDER:
            kernel = cl.Kernel(program, name)
            kernel.set_args(self._buffer)
            self.launches.append((kernel, (ITEMS,), (1,)))

    def result(self) -> list[int]:
        got = np.empty_like(self._memory)
        cl.enqueue_copy(self.queue, got, self._buffer)
        return got.tolist()


def wanted(times: int) -> list[int]:
    values = list(range(ITEMS))
    for name in ORDER * times:
        factor, more = {"first": (3, 1), "second": (2, 5)}[name]
        values = [(value * factor + more) % 65521 for value in values]
    return values


@pytest.fixture
def work() -> Work:
    return Work(devices()[0])


def test_a_device_that_records_runs_all_in_order_however_often() -> None:
    having = [device for device in devices() if EXTENSION in device.extensions.split()]
    if not having:
        pytest.skip(f"no device has {EXTENSION}")
    for device in having:
        work = Work(device)
        launch = launcher(work.queue, work.launches)
        assert isinstance(launch, Recording)
        launch()
        assert work.result() == wanted(1)
        for _ in range(4):  # without waiting: the buffer is still pending
            launch()
        assert work.result() == wanted(5)
        launch.singly()
        launch()
        assert work.result() == wanted(7)
        launch.close()


def test_programs_are_right_on_a_driver_that_records(intel: dict[str, str]) -> None:
    here = Path(__file__)
    tests = [f"{here}::{test_a_device_that_records_runs_all_in_order_however_often.__name__}"]
    tests += [str(here.parent / name) for name in ("test_executor.py", "test_timeline.py")]
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-W", "ignore", "-p", "no:cacheprovider", *tests]
    done = subprocess.run(command, env=intel, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout
    assert "SKIPPED" not in done.stdout


def test_one_by_one_where_the_driver_lists_no_such_extension(work: Work) -> None:
    work.queue = SimpleNamespace(
        device=SimpleNamespace(name="gfx90c", extensions="cl_khr_fp16"), int_ptr=work.queue.int_ptr
    )
    assert isinstance(launcher(work.queue, work.launches), Launcher)


def test_one_by_one_where_the_driver_lacks_a_function(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "EXTENSION", "cl_khr_byte_addressable_store")
    monkeypatch.setattr(recording, "_SIGNATURES", {"clNoSuchFunctionKHR": (None,)})
    launch = launcher(work.queue, work.launches)
    assert isinstance(launch, Launcher)
    launch()
    assert work.result() == wanted(1)


class Driver:
    """Answers as a driver that has the extension; ``refused`` is the function that fails, with a status."""

    def __init__(self, refused: str = "", status: int = 0) -> None:
        self.calls: list[str] = []
        self.recorded: list[int] = []
        self._refused, self._status = refused, status

    def functions(self, device: Any) -> dict[str, Any]:
        return {
            "clCreateCommandBufferKHR": self._create,
            "clCommandNDRangeKernelKHR": self._record,
            "clFinalizeCommandBufferKHR": lambda *_: self._answer("Finalize"),
            "clEnqueueCommandBufferKHR": lambda *_: self._answer("Enqueue"),
            "clReleaseCommandBufferKHR": lambda *_: self._answer("Release"),
        }

    def _answer(self, name: str) -> int:
        self.calls.append(name)
        return self._status if name == self._refused else 0

    def _create(self, count: int, queues: Any, properties: Any, status: Any) -> int | None:
        status._obj.value = self._answer("Create")
        return None if status._obj.value else 0xB0FFE2

    def _record(self, buffer: Any, queue: Any, properties: Any, kernel: int, *rest: Any) -> int:
        dimensions, offset, whole, local = rest[:4]
        assert (buffer.value, queue, properties, offset) == (0xB0FFE2, None, None, None)
        assert (dimensions, list(whole), list(local)) == (1, [ITEMS], [1])
        assert rest[4:] == (0, None, None, None)
        self.recorded.append(kernel)
        return self._answer("Record")


def driven(work: Work, driver: Driver, monkeypatch: pytest.MonkeyPatch) -> Launcher | Recording:
    monkeypatch.setattr(recording, "EXTENSION", "cl_khr_byte_addressable_store")
    monkeypatch.setattr(recording, "_functions", driver.functions)
    return launcher(work.queue, work.launches)


def test_each_kernel_is_recorded_once_and_the_buffer_given_back(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Driver()
    launch = driven(work, driver, monkeypatch)
    launch()
    launch()
    launch.close()
    assert driver.calls == ["Create", *["Record"] * len(ORDER), "Finalize", "Enqueue", "Enqueue", "Release"]
    assert driver.recorded == [kernel.int_ptr for kernel, _, _ in work.launches]


@pytest.mark.parametrize(
    ("refused", "status", "released"), [("Create", -1140, 0), ("Record", -59, 1), ("Finalize", -5, 1)]
)
def test_one_by_one_where_recording_is_refused(
    work: Work, monkeypatch: pytest.MonkeyPatch, refused: str, status: int, released: int
) -> None:
    driver = Driver(refused, status)
    launch = driven(work, driver, monkeypatch)
    assert isinstance(launch, Launcher)
    assert driver.calls.count("Release") == released
    launch()
    assert work.result() == wanted(1)


def test_one_by_one_while_the_buffer_is_pending(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    launch = driven(work, Driver("Enqueue", -59), monkeypatch)
    launch()
    assert work.result() == wanted(1)


def test_a_buffer_that_is_refused_says_why(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    launch = driven(work, Driver("Enqueue", -5), monkeypatch)
    with pytest.raises(RouteError, match="too little memory"):
        launch()


def test_a_program_of_no_launches_records_nothing(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    work.launches = []
    driver = Driver()
    assert isinstance(driven(work, driver, monkeypatch), Launcher)
    assert driver.calls == []
