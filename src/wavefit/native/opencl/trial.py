"""One operation tried on a device: implementations compiled, checked against each other, timed by its own clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from wavefit.native import draw, views
from wavefit.native.opencl import kernels
from wavefit.native.opencl.build import build, load
from wavefit.native.opencl.comparison import Comparison
from wavefit.native.opencl.launch import Launch, bound
from wavefit.native.operation import Buffer, Config, Implementation, Operation, View

_LEAST_S = 2e-3  # of launches that one timing takes together
_MOST_RUNS = 50
_ROUNDS = 3
_HOPELESS = 1.5  # times the best: such a candidate is timed once
_SLOW_S = 0.1  # of one run: nothing so long needs many
_GAP_S = 2e-6  # from the end of a kernel to the start of one that waits for it
_BLOCK = 1_000_003  # random elements, repeated through a buffer; a prime, so that no two rows are alike
_POISON = 0xFF  # bytes of an output before a run: NaN in every float type


@dataclass(frozen=True)
class Candidate:
    """A compiled implementation with its arguments set."""

    template: str
    config: Config
    launches: list[Launch]
    made: Implementation
    held: list[Any]


class Trial:
    """Buffers of random data for one operation.

    Args:
        operation: what is computed.
        context: a ``pyopencl.Context`` of one device.
        seed: of the data.
    """

    def __init__(self, operation: Operation, context: Any, seed: int = 0) -> None:
        import pyopencl as cl

        self._cl = cl
        self.operation = operation
        self._context = context
        properties = cl.command_queue_properties.PROFILING_ENABLE
        self.queue = cl.CommandQueue(context, properties=properties)
        self._rng = np.random.default_rng(seed)
        self._blocks = [
            None if view is None else self._random(view, n) for n, view in enumerate(operation.inputs)
        ]
        self._inputs = [
            None if view is None or block is None else self._filled(view, block)
            for view, block in zip(operation.inputs, self._blocks, strict=True)
        ]
        size = operation.output.extent * operation.output.itemsize
        self._output = cl.Buffer(context, cl.mem_flags.READ_WRITE, max(size, 4))
        self._packed: dict[tuple[str, str, int], Any] = {}
        self._first: Comparison | None = None
        self.reference: np.ndarray | None = None

    @property
    def _arrays(self) -> list[np.ndarray | None]:
        """What the inputs' buffers hold."""
        return [
            None if view is None or block is None else np.resize(block, view.extent)
            for view, block in zip(self.operation.inputs, self._blocks, strict=True)
        ]

    def _random(self, view: View, number: int) -> np.ndarray:
        """The first elements of a buffer; indices of a Gather stay inside what they pick from."""
        count = min(view.extent, _BLOCK)
        drawn = draw.numbers(self.operation, number, count, self._rng)
        if drawn is not None:
            return drawn
        most = min((n for n in self.operation.input(0).shape if n > 1), default=1) if number == 1 else 100
        return self._rng.integers(0, most, count).astype(view.dtype)

    def _filled(self, view: View, block: np.ndarray) -> Any:
        """A buffer with the block again and again; the device repeats it, which no transfer is as fast as."""
        size = view.extent * view.itemsize
        buffer = self._cl.Buffer(self._context, self._cl.mem_flags.READ_WRITE, max(size, 4))
        self._cl.enqueue_copy(self.queue, buffer, block)
        done = block.nbytes
        while done < size:
            more = min(done, size - done)
            self._cl.enqueue_copy(self.queue, buffer, buffer, byte_count=more, dst_offset=done)
            done += more
        return buffer

    def _buffer(self, array: np.ndarray) -> Any:
        flags = self._cl.mem_flags.READ_ONLY | self._cl.mem_flags.COPY_HOST_PTR
        return self._cl.Buffer(self._context, flags, hostbuf=np.ascontiguousarray(array))

    def compile(
        self, template: str, config: Config, binaries: Mapping[str, bytes] | None = None
    ) -> Candidate:
        """Builds one configuration. May be called from several threads at once.

        Args:
            template: the file's name.
            config: of the template.
            binaries: what its sources were compiled to elsewhere, on an equal device.

        Raises:
            pyopencl.Error: it does not compile, or takes more than the device has.
        """
        made = kernels.get(template).build(self.operation, config)
        programs = {}
        for launch in made.launches:
            source = launch.kernel.source
            if source not in programs:
                programs[source] = self._program(source, (binaries or {}).get(source))
        flags = self._cl.mem_flags.READ_WRITE
        scratch = [self._cl.Buffer(self._context, flags, max(size, 4)) for size in made.scratch]
        packed = [self._pack(template, each.how, each.input) for each in made.packed]
        launches = bound(made, programs, lambda each: self._argument(each, scratch, packed))
        return Candidate(template, config, launches, made, [*scratch, *packed])

    def _program(self, source: str, binary: bytes | None) -> Any:
        return build(self._context, source) if binary is None else load(self._context, binary)

    def _pack(self, template: str, how: str, number: int) -> Any:
        key = (template, how, number)
        if key not in self._packed:
            view, block = self.operation.input(number), self._blocks[number]
            assert block is not None
            array = np.resize(block, view.extent)
            logical = np.array(views.shown(array, view))
            self._packed[key] = self._buffer(kernels.get(template).pack(how, self.operation, logical))
        return self._packed[key]

    def _argument(self, buffer: Buffer, scratch: Sequence[Any], packed: Sequence[Any]) -> Any:
        if buffer.kind == "scratch":
            return scratch[buffer.index]
        if buffer.kind == "packed":
            return packed[buffer.index]
        return self._output if buffer.kind == "output" else self._inputs[buffer.index]

    def error(self, candidate: Candidate) -> float:
        """Relative L2 of its answer to :attr:`reference`, else to the first candidate's that was asked about.

        NaN where it left a gap. Computed by the host in float64; :meth:`difference` is faster.
        """
        self._fresh(candidate)
        view = self.operation.output
        memory = np.empty(self._output.size, np.uint8)
        self._cl.enqueue_copy(self.queue, memory, self._output)
        held = memory[: view.extent * view.itemsize].view(view.dtype)
        got = views.shown(held, view).astype(np.float64)
        if self.reference is None:
            self.reference = np.array(got)
        scale = float(np.linalg.norm(self.reference))
        return float(np.linalg.norm(got - self.reference)) / (scale or 1.0)

    def logical(self) -> list[np.ndarray | None]:
        """The inputs, each of its view's shape."""
        return [
            None if view is None or array is None else views.shown(array, view)
            for view, array in zip(self.operation.inputs, self._arrays, strict=True)
        ]

    def difference(self, candidate: Candidate) -> float:
        """As :meth:`error`, against the first candidate asked about, and by the device, in float."""
        self._fresh(candidate)
        if self._first is None:
            self._first = Comparison(self.queue, self._output, self.operation.output.dtype)
        return self._first.difference(self._output)

    def _fresh(self, candidate: Candidate) -> None:
        """Runs it on an output that is all NaN."""
        fill = np.full(1, _POISON, np.uint8)
        self._cl.enqueue_fill_buffer(self.queue, self._output, fill, 0, self._output.size)
        self._run(candidate)

    def _run(self, candidate: Candidate) -> list[Any]:
        return [self._cl.enqueue_nd_range_kernel(self.queue, *launch) for launch in candidate.launches]

    def seconds(self, candidate: Candidate, best: float | None = None) -> float:
        """Device seconds of one run: of its kernels, and between them; the least of a few rounds.

        Each kernel is timed by its own event: one of a few microseconds ends before Python has enqueued the next.

        Args:
            candidate: what is timed; it has run before.
            best: of the others; one that is far behind is timed once.
        """
        once = self._round(candidate, 1)
        if best is not None and once > _HOPELESS * best + 2e-5:
            return once
        runs = max(3, min(_MOST_RUNS, int(_LEAST_S / max(once, 1e-7))))
        rounds = _ROUNDS if once < _SLOW_S else 1
        return min(self._round(candidate, runs) for _ in range(rounds))

    def _round(self, candidate: Candidate, runs: int) -> float:
        events = [event for _ in range(runs) for event in self._run(candidate)]
        self.queue.finish()
        busy = sum(event.profile.end - event.profile.start for event in events) * 1e-9 / runs
        return busy + _GAP_S * (len(candidate.launches) - 1)

    def close(self) -> None:
        """Gives the device's memory back."""
        self.queue.finish()
        for buffer in (*self._inputs, *self._packed.values(), self._output):
            if buffer is not None:
                buffer.release()
        if self._first is not None:
            self._first.close()
