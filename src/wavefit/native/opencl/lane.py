"""A lane: one set of a program's inputs and outputs, on the device and on the host, and the launches bound to it.

Where host and device share one memory, the device's own buffers are mapped and nothing crosses a bus. Elsewhere each
has a twin in page-locked memory (a buffer with ALLOC_HOST_PTR that stays mapped), which the driver copies from and to
without stopping the host.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from wavefit.native.opencl.recording import launcher
from wavefit.native.program import Port, Program


class Lane:
    """Inputs, outputs and launches.

    Args:
        cl: the module pyopencl.
        queue: in order, on which it computes.
        program: whose inputs and outputs.
        shared: the program's other buffers by number: arena and constants.
        kernels: a function that gives a new kernel object for a number of a step.
        unified: host and device share one memory.

    Attributes:
        launch: enqueues every kernel once; does not wait.
        input_names, step_names, output_names: of the commands of an upload, a launch and a download.
    """

    def __init__(
        self, cl: Any, queue: Any, program: Program, shared: Mapping[int, Any], kernels: Any, unified: bool
    ) -> None:
        self._cl = cl
        self._queue = queue
        self._program = program
        self._unified = unified
        ports = (*program.inputs, *program.outputs)
        self._device = {port.buffer: _device_buffer(cl, queue.context, port, shared) for port in ports}
        self._pinned = {} if unified else {port: _Pinned(cl, queue, port) for port in ports if _bytes(port)}
        buffers = {**shared, **self._device}
        self.launches = []
        for number, step in enumerate(program.steps):
            kernel = kernels(number)
            kernel.set_args(*_arguments(program, buffers, step.buffers))
            self.launches.append((kernel, step.kernel.global_size, step.kernel.local_size))
        self.launch = launcher(queue, self.launches)
        self.input_names = [port.name for port in program.inputs if _bytes(port)]
        self.step_names = [step.node for step in program.steps]
        self.output_names = [] if unified else [port.name for port in program.outputs if _bytes(port)]

    def launch_timed(self) -> list[Any]:
        """Enqueues every kernel once, as :attr:`launch` does; returns their events, one a step."""
        return [self._cl.enqueue_nd_range_kernel(self._queue, *launch) for launch in self.launches]

    def upload(
        self, inputs: Mapping[str, np.ndarray], queue: Any = None, wait_for: Sequence[Any] = ()
    ) -> list[Any]:
        """Takes the inputs; returns the events after which the device has them.

        The arrays may be changed once this returns.
        """
        queue, events = queue or self._queue, []
        for port in self._program.inputs:
            if not _bytes(port):
                continue
            array, buffer = inputs[port.name], self._device[port.buffer]
            if self._unified:
                flags = self._cl.map_flags.WRITE_INVALIDATE_REGION
                events.append(self._through_map(queue, port, flags, array, wait_for))
                continue
            staged = self._pinned[port].array
            staged[...] = array
            copy = self._cl.enqueue_copy(queue, buffer, staged, is_blocking=False, wait_for=list(wait_for))
            events.append(copy)
        return events

    def begin_download(self, queue: Any = None, wait_for: Sequence[Any] = ()) -> list[Any]:
        """Starts bringing the outputs to the host; :meth:`outputs` may be read after the events."""
        queue = queue or self._queue
        if self._unified:
            return list(wait_for)
        return [
            self._cl.enqueue_copy(
                queue,
                self._pinned[port].array,
                self._device[port.buffer],
                is_blocking=False,
                wait_for=list(wait_for),
            )
            for port in self._program.outputs
            if _bytes(port)
        ]

    def outputs(self, queue: Any = None) -> dict[str, np.ndarray]:
        """The outputs as arrays of the caller's own."""
        queue = queue or self._queue
        found = {port.name: np.empty(port.shape, port.dtype) for port in self._program.outputs}
        for port in self._program.outputs:
            if not _bytes(port):
                continue
            if self._unified:
                self._through_map(queue, port, self._cl.map_flags.READ, found[port.name], (), reading=True)
            else:
                found[port.name][...] = self._pinned[port].array
        return found

    def _through_map(
        self,
        queue: Any,
        port: Port,
        flags: int,
        array: np.ndarray,
        wait_for: Sequence[Any],
        reading: bool = False,
    ) -> Any:
        mapped, _ = self._cl.enqueue_map_buffer(
            queue, self._device[port.buffer], flags, 0, port.shape, port.dtype, wait_for=list(wait_for)
        )
        if reading:
            array[...] = mapped
        else:
            mapped[...] = array
        return mapped.base.release(queue)

    def close(self) -> None:
        for pinned in self._pinned.values():
            pinned.unmap(self._queue)
        self._queue.finish()
        self.launch.close()
        for pinned in self._pinned.values():
            pinned.release()
        self.launches = []
        for buffer in self._device.values():
            buffer.release()


class _Pinned:
    """Page-locked memory for one input or output."""

    def __init__(self, cl: Any, queue: Any, port: Port) -> None:
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.ALLOC_HOST_PTR
        self._buffer = cl.Buffer(queue.context, flags, _bytes(port))
        access = cl.map_flags.READ | cl.map_flags.WRITE
        self.array, _ = cl.enqueue_map_buffer(queue, self._buffer, access, 0, port.shape, port.dtype)

    def unmap(self, queue: Any) -> None:
        self.array.base.release(queue)

    def release(self) -> None:
        self._buffer.release()


def _arguments(program: Program, buffers: Mapping[int, Any], numbers: Sequence[int]) -> list[Any]:
    """Each buffer and the place in it."""
    pairs = ((buffers[number], np.uint64(program.buffers[number].offset)) for number in numbers)
    return [argument for pair in pairs for argument in pair]


def _bytes(port: Port) -> int:
    return int(np.prod(port.shape, dtype=np.int64)) * np.dtype(port.dtype).itemsize


def _device_buffer(cl: Any, context: Any, port: Port, shared: Mapping[int, Any]) -> Any:
    if port.buffer in shared:  # an output that is a constant
        return shared[port.buffer]
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.ALLOC_HOST_PTR
    return cl.Buffer(context, flags, max(_bytes(port), 4))
