"""Runs a program over PyTorch's memory: kernels compiled ahead, and one graph launch for a whole inference."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from wavefit.errors import RouteError
from wavefit.native.program import Program, Step
from wavefit.native.triton.compilers import Compiled, Say, compile_all
from wavefit.native.triton.errors import translated
from wavefit.native.triton.lane import Lane
from wavefit.native.triton.memory import to_torch
from wavefit.native.triton.runner import Call, prepared, target_of
from wavefit.native.triton.stream import stream

_DEADLINE_S = 900.0  # of compiling a whole program
_LANES = 2  # batches under way in a stream
_REPEATS = 20  # of a launch that is timed alone


def _silent(_: str) -> None:
    return None


class Executor:
    """A program in a device's memory.

    Args:
        program: what to run.
        device: a ``torch.device``; on "cpu" Triton interprets, see :mod:`interpreter`.
        cache: folder of code objects.
        say: progress of compiling.
        deadline_s: of compiling.

    Raises:
        RouteError: a kernel does not compile, or the device has too little memory.

    Attributes:
        compiled: how many kernels were compiled, how many lay in the cache, and how long it took.
        launch: enqueues one inference; does not wait.
    """

    def __init__(
        self,
        program: Program,
        device: Any,
        cache: Path,
        say: Say = _silent,
        deadline_s: float = _DEADLINE_S,
    ) -> None:
        self.program = program
        self._device = device
        self._name = _name(device)
        target = target_of(device)
        kernels = [step.kernel for step in program.steps]
        self.compiled = Compiled(made=0, found=0, seconds=0.0)
        if target is not None:
            self.compiled = compile_all(kernels, target, cache, say, deadline_s)
        if self.compiled.failed:
            why = next(iter(self.compiled.failed.values()))
            raise RouteError(f"{len(self.compiled.failed)} kernels do not compile for {self._name}: {why}")
        with translated(self._name):
            calls: dict[Any, Call] = {}
            for each in kernels:
                key = (each.source, each.types, tuple(each.options.items()))
                if key not in calls:
                    calls[key] = prepared(each, target, cache)
            self._calls = [calls[each.source, each.types, tuple(each.options.items())] for each in kernels]
            self._shared = self._allocate()
            self._lanes = [self._lane()]
        self.launch: Callable[[], None] = self._lanes[0].launch

    def _allocate(self) -> dict[int, Any]:
        """Flat tensors of bytes by number of buffer: constants, and stretches of the one arena."""
        import torch

        arena = torch.empty(max(self.program.arena_bytes, 1), dtype=torch.uint8, device=self._device)
        found = {
            number: arena[place.offset : place.offset + place.bytes]
            for number, place in enumerate(self.program.buffers)
            if place.kind == "arena"
        }
        for number, array in self.program.constants.items():
            found[number] = to_torch(np.ascontiguousarray(array).reshape(-1).view(np.uint8), self._device)
        return found

    def _lane(self) -> Lane:
        return Lane(self.program, self._device, self._shared, self._calls)

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
            return lane.outputs()

    def stream(self, batches: Iterable[Mapping[str, np.ndarray]]) -> Iterator[dict[str, np.ndarray]]:
        """Successive batches: one is brought in and another taken out while a third is computed.

        Args:
            batches: each taken when there is room for it.

        Yields:
            Each batch's outputs, in order.

        Raises:
            RouteError: the driver failed, or there is no memory for a second set of inputs and outputs.
        """
        with translated(self._name):
            if self._device.type == "cpu":
                yield from map(self.run, batches)
                return
            while len(self._lanes) < _LANES:
                self._lanes.append(self._lane())
            yield from stream(self._device, self._lanes, batches)

    def times(self) -> list[tuple[Step, float]]:
        """Device seconds of each step alone: the mean of many launches in one graph, what they read in the caches."""
        with translated(self._name):
            seconds = self._lanes[0].times(_REPEATS)
        return list(zip(self.program.steps, seconds, strict=True))

    def seconds(self) -> float:
        """Device seconds of one inference, the mean of many that follow one another."""
        from wavefit.native.triton.timing import of_graph

        with translated(self._name):
            return of_graph(self.launch, self._device, _REPEATS)

    def wait(self) -> None:
        """Until everything that was enqueued is done."""
        if self._device.type != "cpu":
            import torch

            torch.cuda.synchronize(self._device)

    def close(self) -> None:
        """Gives the device's memory back."""
        self.wait()
        for lane in self._lanes:
            lane.close()
        self._lanes, self._shared, self._calls = [], {}, []


def _name(device: Any) -> str:
    import torch

    return "the CPU" if device.type == "cpu" else str(torch.cuda.get_device_name(device))
