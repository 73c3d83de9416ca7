"""A lane: one set of a program's inputs and outputs, on the device and on the host, and the graph bound to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from wavefit.native.program import Port, Program
from wavefit.native.triton.memory import to_numpy, torch_type
from wavefit.native.triton.runner import Call


class Lane:
    """Inputs, outputs and launches.

    Args:
        program: whose inputs and outputs.
        device: a ``torch.device``.
        shared: the program's other buffers by number, as flat tensors of bytes.
        calls: what launches each step's kernel.

    Attributes:
        launch: enqueues one inference on the current stream; does not wait.
    """

    def __init__(
        self, program: Program, device: Any, shared: Mapping[int, Any], calls: Sequence[Call]
    ) -> None:
        import torch

        self._program, self._device = program, device
        self._gpu = device.type != "cpu"
        ports = {port.buffer: port for port in (*program.inputs, *program.outputs)}
        self._buffers = dict(shared)
        for number, port in ports.items():
            if number not in self._buffers:
                self._buffers[number] = torch.empty(max(1, _bytes(port)), dtype=torch.uint8, device=device)
        self._pinned = {
            number: torch.empty(_bytes(port), dtype=torch.uint8, pin_memory=self._gpu)
            for number, port in ports.items()
        }
        self._steps = [
            (call, self._tensors(step.kernel.types, step.buffers))
            for call, step in zip(calls, program.steps, strict=True)
        ]
        self._graph = self._captured(self._eager) if self._gpu else None
        self.launch: Callable[[], None] = self._eager if self._graph is None else self._graph.replay

    def _tensors(self, types: Sequence[str], buffers: Sequence[int]) -> list[Any]:
        return [_typed(self._buffers[number], dtype) for number, dtype in zip(buffers, types, strict=True)]

    def _eager(self) -> None:
        for call, tensors in self._steps:
            call(*tensors)

    def _captured(self, work: Callable[[], None]) -> Any:
        """Work as one graph, after a run in which kernels are loaded and libraries choose theirs."""
        import torch

        side = torch.cuda.Stream(self._device)
        side.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(side):
            work()
        torch.cuda.current_stream(self._device).wait_stream(side)
        torch.cuda.synchronize(self._device)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            work()
        return graph

    def upload(self, inputs: Mapping[str, np.ndarray]) -> None:
        """Takes the inputs, on the current stream; the arrays may be changed once this returns."""
        for port in self._program.inputs:
            if not _bytes(port):
                continue
            staged = self._pinned[port.buffer]
            given = np.ascontiguousarray(inputs[port.name]).reshape(-1).view(np.uint8)
            staged.numpy()[...] = given
            self._buffers[port.buffer][: _bytes(port)].copy_(staged, non_blocking=True)

    def begin_download(self) -> None:
        """Starts bringing the outputs to the host, on the current stream."""
        for port in self._program.outputs:
            if _bytes(port):
                device = self._buffers[port.buffer][: _bytes(port)]
                self._pinned[port.buffer].copy_(device, non_blocking=True)
        if self._gpu:
            import torch

            self._done = torch.cuda.Event()
            self._done.record()

    def outputs(self) -> dict[str, np.ndarray]:
        """The outputs as arrays of the caller's own; waits for them."""
        if self._gpu:
            self._done.synchronize()
        found = {}
        for port in self._program.outputs:
            flat = _typed(self._pinned[port.buffer].clone(), port.dtype)
            found[port.name] = to_numpy(flat, port.dtype).reshape(port.shape)
        return found

    def times(self, repeats: int) -> list[float]:
        """Seconds of each step, repeated in a graph of its own; by the clock of the host on the CPU."""
        return [self._time(call, tensors, repeats) for call, tensors in self._steps]

    def _time(self, call: Call, tensors: list[Any], repeats: int) -> float:
        from wavefit.native.triton.timing import seconds

        return seconds(lambda: call(*tensors), self._device, repeats)

    def close(self) -> None:
        self._graph, self._steps, self._buffers, self._pinned = None, [], {}, {}
        self.launch = self._eager


def _bytes(port: Port) -> int:
    import math

    from wavefit.native.operation import View, row_major

    return (
        math.prod(port.shape)
        * View(shape=port.shape, strides=row_major(port.shape), dtype=port.dtype).itemsize
    )


def _typed(tensor: Any, dtype: str) -> Any:
    """A flat tensor of bytes as one of a numpy type: whole elements only."""
    kind = torch_type(dtype)
    whole = tensor.numel() // kind.itemsize * kind.itemsize
    return tensor[:whole].view(kind)
