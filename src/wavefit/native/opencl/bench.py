"""One implementation run on a device between guard zones: what it wrote, where it should not have, how long it took."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from wavefit.native import views
from wavefit.native.opencl import kernels
from wavefit.native.opencl.build import build
from wavefit.native.opencl.launch import bound
from wavefit.native.operation import Config, Implementation, Operation, View

_GUARD = 4096  # bytes before and after every buffer; a multiple of any device's alignment of sub-buffers
_CANARY = 0xA5
_POISON = 0xFF  # NaN in every float type
_RUNS = 5


@dataclass(frozen=True)
class Outcome:
    """What came of one run.

    Args:
        outputs: what each output's view shows.
        trespasses: buffers round which, or between whose elements, something was written.
        compile_s: wall-clock seconds that the driver took to build.
        seconds: least device time of all launches together, of several runs.
    """

    outputs: tuple[np.ndarray, ...]
    trespasses: tuple[str, ...]
    compile_s: float
    seconds: float

    @property
    def output(self) -> np.ndarray:
        """The first."""
        return self.outputs[0]


def run(
    device: Any,
    template: str,
    operation: Operation,
    config: Config,
    arrays: Sequence[np.ndarray | None],
    context: Any = None,
    runs: int = _RUNS,
) -> Outcome:
    """Builds and runs an operation.

    Args:
        device: a ``pyopencl.Device``.
        template: the file's name in opencl/kernels/.
        operation: its views say how the arrays lie in their buffers.
        config: of the template.
        arrays: one for each input, of the view's shape.
        context: of the device; None makes one.
        runs: how often it is run.

    Raises:
        pyopencl.Error: the driver refused something.
    """
    import pyopencl as cl

    context = context or cl.Context([device])
    queue = cl.CommandQueue(context, properties=cl.command_queue_properties.PROFILING_ENABLE)
    made = kernels.get(template).build(operation, config)
    buffers = _buffers(queue, template, operation, made, arrays)
    started = perf_counter()
    programs = {
        source: build(context, source)
        for source in dict.fromkeys(launch.kernel.source for launch in made.launches)
    }
    compile_s = perf_counter() - started
    launches = bound(made, programs, lambda each: buffers[each.kind][each.index].region)
    seconds = [_once(cl, queue, launches) for _ in range(runs)]
    held = [
        (f"{kind} {number}", each) for kind, every in buffers.items() for number, each in enumerate(every)
    ]
    trespasses = tuple(place for name, each in held if each is not None for place in each.trespasses(name))
    outputs = tuple(each.shown() for each in buffers["output"])
    return Outcome(outputs, trespasses, compile_s, min(seconds))


def _buffers(
    queue: Any,
    template: str,
    operation: Operation,
    made: Implementation,
    arrays: Sequence[np.ndarray | None],
) -> dict[str, list[Any]]:
    pairs = zip(operation.inputs, arrays, strict=True)
    packed = [
        kernels.get(template).pack(each.how, operation, np.asarray(arrays[each.input]))
        for each in made.packed
    ]
    return {
        "input": [None if view is None else _Guarded(queue, view, array) for view, array in pairs],
        "output": [_Guarded(queue, view, None) for view in operation.outputs],
        "packed": [_Guarded(queue, _flat(array.nbytes), _bytes(array)) for array in packed],
        "scratch": [_Guarded(queue, _flat(size), None) for size in made.scratch],
    }


def _flat(size: int) -> View:
    return View(shape=(size,), strides=(1,), dtype="uint8")


def _bytes(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _once(cl: Any, queue: Any, launches: list[Any]) -> float:
    events = [cl.enqueue_nd_range_kernel(queue, *launch) for launch in launches]
    queue.finish()
    return sum(event.profile.end - event.profile.start for event in events) * 1e-9


class _Guarded:
    """A buffer between two guard zones; what no view shows is poison."""

    def __init__(self, queue: Any, view: View, array: np.ndarray | None) -> None:
        import pyopencl as cl

        self._queue, self._view = queue, view
        memory = np.full(view.extent * view.itemsize, _POISON, np.uint8)
        if array is not None and array.size:
            views.shown(memory.view(view.dtype), view)[...] = array
        self._size = max(memory.nbytes, 4)
        zone = np.full(_GUARD, _CANARY, np.uint8)
        filled = np.full(self._size, _POISON, np.uint8)
        filled[: memory.nbytes] = memory
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        self._buffer = cl.Buffer(queue.context, flags, hostbuf=np.concatenate([zone, filled, zone]))
        self.region = self._buffer.get_sub_region(_GUARD, self._size)

    def shown(self) -> np.ndarray:
        return np.array(views.shown(self._inside(self._whole()), self._view))

    def trespasses(self, name: str) -> list[str]:
        whole = self._whole()
        zones = {"before": whole[:_GUARD], "after": whole[_GUARD + self._size :]}
        found = [f"{place} {name}" for place, zone in zones.items() if (zone != _CANARY).any()]
        between = np.ones(self._view.extent, bool)
        views.shown(between, self._view)[...] = False
        inside = self._inside(whole).view(np.uint8).reshape(self._view.extent, -1)
        return found + ([f"between the elements of {name}"] if (inside[between] != _POISON).any() else [])

    def _whole(self) -> np.ndarray:
        import pyopencl as cl

        whole = np.empty(self._size + 2 * _GUARD, np.uint8)
        cl.enqueue_copy(self._queue, whole, self._buffer)
        return whole

    def _inside(self, whole: np.ndarray) -> np.ndarray:
        return whole[_GUARD : _GUARD + self._view.extent * self._view.itemsize].view(self._view.dtype)
