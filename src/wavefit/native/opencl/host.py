"""Inputs and outputs between host and device: mapped where both share one memory, through pinned memory elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from wavefit.native.program import Port, Program


class Host:
    """The host's side of a program's inputs and outputs.

    Args:
        cl: the module pyopencl.
        queue: in order.
        program: whose inputs and outputs.
        buffers: of the program; those of inputs and outputs are allocated with ALLOC_HOST_PTR.
        unified: host and device share one memory: buffers are mapped and nothing is copied across a bus.
    """

    def __init__(self, cl: Any, queue: Any, program: Program, buffers: list[Any], unified: bool) -> None:
        self._cl = cl
        self._queue = queue
        self._program = program
        self._buffers = buffers
        self._unified = unified

    def upload(self, inputs: Mapping[str, np.ndarray]) -> None:
        for port in self._program.inputs:
            array = np.ascontiguousarray(inputs[port.name])
            if array.nbytes == 0:
                continue
            if self._unified:
                self._map(port, self._cl.map_flags.WRITE_INVALIDATE_REGION, array)
            else:
                self._cl.enqueue_copy(self._queue, self._buffers[port.buffer], array, is_blocking=False)

    def download(self) -> dict[str, np.ndarray]:
        outputs = {port.name: np.empty(port.shape, port.dtype) for port in self._program.outputs}
        for port in self._program.outputs:
            if outputs[port.name].nbytes == 0:
                continue
            if self._unified:
                self._map(port, self._cl.map_flags.READ, outputs[port.name], reading=True)
            else:
                self._cl.enqueue_copy(
                    self._queue, outputs[port.name], self._buffers[port.buffer], is_blocking=False
                )
        self._queue.finish()
        return outputs

    def _map(self, port: Port, flags: int, array: np.ndarray, reading: bool = False) -> None:
        mapped, _ = self._cl.enqueue_map_buffer(
            self._queue, self._buffers[port.buffer], flags, 0, array.shape, array.dtype
        )
        if reading:
            array[...] = mapped
        else:
            mapped[...] = array
        mapped.base.release(self._queue)

    def close(self) -> None:
        self._buffers = []
