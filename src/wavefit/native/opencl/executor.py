"""Runs a program on an OpenCL device: kernels built and arguments set once, then one enqueue a launch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from wavefit.native.opencl.build import build
from wavefit.native.opencl.errors import translated
from wavefit.native.opencl.lane import Lane
from wavefit.native.opencl.relocate import relocatable
from wavefit.native.opencl.stream import stream
from wavefit.native.opencl.timeline import Timeline
from wavefit.native.operation import Kernel
from wavefit.native.program import Program, Step

_COMPILERS = 4  # drivers compile in threads of their own; more only take memory
_LANES = 2  # batches under way in a stream: one comes in or goes out while the other is computed


class Executor:
    """A program in a device's memory.

    Args:
        program: what to run.
        device: a ``pyopencl.Device``.
        cache: folder for compiled kernels; None keeps none.
        profiling: whether :meth:`times` may be asked; costs a little on each launch.

    Raises:
        RouteError: a kernel does not compile, or the device has too little memory.

    Attributes:
        queue: on which it computes, in order.
        launch: enqueues every kernel once; does not wait.
    """

    def __init__(
        self, program: Program, device: Any, cache: Path | None = None, profiling: bool = False
    ) -> None:
        import pyopencl as cl

        self._cl = cl
        self.program = program
        self._name = device.name.strip()
        self._unified = self._shares_memory(device)
        with translated(self._name):
            self.context = cl.Context([device])
            properties = cl.command_queue_properties.PROFILING_ENABLE if profiling else 0
            self.queue = cl.CommandQueue(self.context, properties=properties)
            self._built = build_all(self.context, [step.kernel for step in program.steps], cache)
            self._arena = _arena(cl, self.context, program)
            self._shared = _upload(cl, self.queue, program)
            self._lanes = [self._lane()]
            self.queue.finish()
        self.launch = self._lanes[0].launch

    def _shares_memory(self, device: Any) -> bool:
        return bool(device.host_unified_memory)

    def _lane(self) -> Lane:
        shared = {**self._shared, **dict.fromkeys(self._in_arena(), self._arena)}
        return Lane(self._cl, self.queue, self.program, shared, self._kernel, self._unified)

    def _in_arena(self) -> list[int]:
        return [number for number, place in enumerate(self.program.buffers) if place.kind == "arena"]

    def _kernel(self, number: int) -> Any:
        """A kernel object of its own for a step: arguments belong to it."""
        kernel = self.program.steps[number].kernel
        return self._cl.Kernel(self._built[kernel.source], kernel.name)

    @property
    def device_bytes(self) -> int:
        """All that it has allocated on the device so far: a stream brings inputs and outputs of its own."""
        return self.program.device_bytes + (len(self._lanes) - 1) * self.program.port_bytes

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """One batch from host to host.

        Raises:
            RouteError: the driver failed.
        """
        lane = self._lanes[0]
        with translated(self._name):
            lane.upload(inputs)
            lane.launch()
            lane.begin_download()
            self.queue.finish()
            return lane.outputs()

    def stream(
        self, batches: Iterable[Mapping[str, np.ndarray]], timeline: Timeline | None = None
    ) -> Iterator[dict[str, np.ndarray]]:
        """Successive batches: one is brought in and another taken out while a third is computed.

        Args:
            batches: each taken when there is room for it.
            timeline: takes down what ran when; needs ``profiling``.

        Yields:
            Each batch's outputs, in order.

        Raises:
            RouteError: the driver failed, or there is no memory for a second set of inputs and outputs.
        """
        with translated(self._name):
            while len(self._lanes) < _LANES:
                self._lanes.append(self._lane())
            yield from stream(self._cl, self.queue, self._lanes, batches, timeline)

    def times(self) -> list[tuple[Step, float]]:
        """Device seconds of each step in one run on the inputs that were uploaded last."""
        with translated(self._name):
            events = self._lanes[0].launch_timed()
            self.queue.finish()
            seconds = [(event.profile.end - event.profile.start) * 1e-9 for event in events]
        return list(zip(self.program.steps, seconds, strict=True))

    def close(self) -> None:
        """Gives the device's memory back."""
        self.queue.finish()
        for lane in self._lanes:
            lane.close()
        for buffer in self._shared.values():
            buffer.release()
        if self._arena is not None:
            self._arena.release()
        self._lanes, self._shared, self._arena = [], {}, None


def build_all(context: Any, kernels: list[Kernel], cache: Path | None) -> dict[str, Any]:
    """A built program for each distinct source, several compiled at a time; see :mod:`relocate` for the arguments."""

    def built(kernel: Kernel) -> Any:
        return build(context, relocatable(kernel.source, kernel.name), cache)

    distinct = {kernel.source: kernel for kernel in kernels}
    with ThreadPoolExecutor(_COMPILERS) as pool:
        return dict(zip(distinct, pool.map(built, distinct.values()), strict=True))


def _arena(cl: Any, context: Any, program: Program) -> Any:
    size = program.arena_bytes
    return cl.Buffer(context, cl.mem_flags.READ_WRITE, size) if size else None


def _upload(cl: Any, queue: Any, program: Program) -> dict[int, Any]:
    """The constants' buffers, by number."""
    buffers: dict[int, Any] = {}
    for number, array in program.constants.items():
        buffers[number] = cl.Buffer(queue.context, cl.mem_flags.READ_ONLY, max(array.nbytes, 4))
        if array.nbytes:
            cl.enqueue_copy(queue, buffers[number], array.reshape(-1).view(np.uint8))
    return buffers
