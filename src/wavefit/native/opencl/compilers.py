"""Sources compiled several at a time: in processes, since a driver may compile one at a time in a process.

NVIDIA's does: 12 threads took 0.3 to 0.5 s a kernel on an H200's host with 16 cores. What comes back is the driver's
binary, which the process that runs it loads.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NoResult
from concurrent.futures.process import BrokenProcessPool
from functools import cache
from typing import Any

from wavefit.errors import RouteError
from wavefit.native.opencl.build import build, has_binaries
from wavefit.schema import Struct

_MOST = 8  # processes: each holds a context on the device

Binaries = dict[str, bytes]
"""By source; empty where the driver has none ready (see :mod:`build`)."""


class Where(Struct, frozen=True, kw_only=True):
    """An OpenCL device, as another process finds it."""

    platform: str
    index: int


def where(device: Any) -> Where:
    """Of a ``pyopencl.Device``."""
    platform = device.platform
    return Where(platform=platform.name.strip(), index=platform.get_devices().index(device))


def find(place: Where) -> Any:
    """The ``pyopencl.Device``.

    Raises:
        RouteError: OpenCL does not have it (any more).
    """
    import pyopencl as cl

    for platform in cl.get_platforms():
        if platform.name.strip() == place.platform and place.index < len(platform.get_devices()):
            return platform.get_devices()[place.index]
    raise RouteError(f"OpenCL's platform {place.platform!r} no longer has device {place.index}")


def workers() -> int:
    """How many compile at a time: a core is left to the process that measures."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(_MOST, cores - 1))


class Compilers:
    """Compiles in the background. With one worker in a thread of this process.

    Args:
        place: the device.
        count: workers.
    """

    def __init__(self, place: Where, count: int) -> None:
        self._place, self._count = place, count
        self._pool = self._new(count)

    def _new(self, count: int) -> Executor:
        if self._count == 1:
            return ThreadPoolExecutor(1)
        return ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn"))

    def submit(self, sources: Sequence[str]) -> Future[Binaries | str]:
        """The binaries by source, or why there are none."""
        try:
            return self._pool.submit(_compiled, self._place, tuple(sources))
        except BrokenProcessPool:
            self._pool = self._new(self._count)
            return self._pool.submit(_compiled, self._place, tuple(sources))

    def result(
        self, future: Future[Binaries | str], sources: Sequence[str], timeout_s: float
    ) -> Binaries | str:
        """What a submission came to. Where a compiler has crashed, which may have been another's, alone once more."""
        try:
            return future.result(timeout_s)
        except NoResult:
            return f"the compiler took more than {timeout_s:g} s"
        except BrokenProcessPool:
            pass
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as alone:
            try:
                return alone.submit(_compiled, self._place, tuple(sources)).result(timeout_s)
            except (BrokenProcessPool, NoResult):
                return "the compiler crashed"

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


@cache
def _context(place: Where) -> Any:
    import pyopencl as cl

    return cl.Context([find(place)])


def _compiled(place: Where, sources: tuple[str, ...]) -> Binaries | str:
    import pyopencl as cl

    context = _context(place)
    found = {}
    try:
        for source in sources:
            program = build(context, source)
            if has_binaries(context.devices[0]):
                found[source] = program.get_info(cl.program_info.BINARIES)[0]
    except cl.Error as error:
        return " ".join(str(error).split())[:500]
    return found
