"""Runs a program on an OpenCL device: kernels built and arguments set once, then one enqueue a launch."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from wavefit.native.opencl.errors import translated
from wavefit.native.opencl.host import Host
from wavefit.native.opencl.launch import Launcher
from wavefit.native.operation import Kernel
from wavefit.native.program import Program, Step

OPTIONS = ("-cl-std=CL1.2", "-cl-mad-enable")
_COMPILERS = 4  # drivers compile in threads of their own; more only take memory


class Executor:
    """A program in a device's memory.

    Args:
        program: what to run.
        device: a ``pyopencl.Device``.
        cache: folder for compiled kernels; None keeps none.
        profiling: whether :meth:`times` may be asked; costs a little on each launch.

    Attributes:
        launch: enqueues every kernel once; does not wait.

    Raises:
        RouteError: a kernel does not compile, or the device has too little memory.
    """

    def __init__(
        self, program: Program, device: Any, cache: Path | None = None, profiling: bool = False
    ) -> None:
        import pyopencl as cl

        self.program = program
        with translated(f"{device.name.strip()}"):
            self.context = cl.Context([device])
            properties = cl.command_queue_properties.PROFILING_ENABLE if profiling else 0
            self.queue = cl.CommandQueue(self.context, properties=properties)
            self._buffers = _allocate(cl, self.context, self.queue, program)
            self._launches = self._prepare(cache)
            self.launch = Launcher(self.queue, self._launches)
            self._host = Host(cl, self.queue, program, self._buffers, bool(device.host_unified_memory))
            self.queue.finish()

    def _prepare(self, cache: Path | None) -> list[tuple[Any, tuple[int, ...], tuple[int, ...]]]:
        """A kernel object for every step, with its arguments set."""
        built = build_all(self.context, [step.kernel for step in self.program.steps], cache)
        launches = []
        for step in self.program.steps:
            kernel = _kernel(built[step.kernel.source], step.kernel.name)
            kernel.set_args(*(self._buffers[number] for number in step.buffers))
            launches.append((kernel, step.kernel.global_size, step.kernel.local_size))
        return launches

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """One batch from host to host.

        Raises:
            RouteError: the driver failed.
        """
        with translated("the device"):
            self._host.upload(inputs)
            self.launch()
            return self._host.download()

    def times(self) -> list[tuple[Step, float]]:
        """Device seconds of each step in one run on the inputs that were uploaded last."""
        import pyopencl as cl

        with translated("the device"):
            events = [cl.enqueue_nd_range_kernel(self.queue, *launch) for launch in self._launches]
            self.queue.finish()
            seconds = [(event.profile.end - event.profile.start) * 1e-9 for event in events]
        return list(zip(self.program.steps, seconds, strict=True))

    def close(self) -> None:
        """Gives the device's memory back."""
        self.queue.finish()
        self._launches = []
        self._host.close()
        for buffer in self._buffers:
            if buffer is not None:
                buffer.release()
        self._buffers = []


def build_all(context: Any, kernels: list[Kernel], cache: Path | None) -> dict[str, Any]:
    """A built program for each distinct source, several compiled at a time."""
    import pyopencl as cl

    def build(source: str) -> Any:
        return cl.Program(context, source).build(list(OPTIONS), cache_dir=str(cache) if cache else None)

    sources = list(dict.fromkeys(kernel.source for kernel in kernels))
    with ThreadPoolExecutor(_COMPILERS) as pool:
        return dict(zip(sources, pool.map(build, sources), strict=True))


def _kernel(program: Any, name: str) -> Any:
    """An object of its own for each launch: arguments belong to it."""
    import pyopencl as cl

    return cl.Kernel(program, name)


def _allocate(cl: Any, context: Any, queue: Any, program: Program) -> list[Any]:
    """One buffer for each place: stretches of the arena, uploaded constants, inputs and outputs."""
    flags = cl.mem_flags
    arena = cl.Buffer(context, flags.READ_WRITE, program.arena_bytes) if program.arena_bytes else None
    buffers: list[Any] = []
    for number, place in enumerate(program.buffers):
        size = max(place.bytes, 4)  # OpenCL has no empty buffers
        if place.kind == "arena":
            assert arena is not None
            buffers.append(arena.get_sub_region(place.offset, size))
        elif number in program.constants:
            buffer = cl.Buffer(context, flags.READ_ONLY, size)
            if place.bytes:
                cl.enqueue_copy(queue, buffer, program.constants[number].reshape(-1).view(np.uint8))
            buffers.append(buffer)
        else:
            buffers.append(cl.Buffer(context, flags.READ_WRITE | flags.ALLOC_HOST_PTR, size))
    return buffers
