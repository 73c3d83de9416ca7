"""Runs one implementation on the OpenCL device here, with canaries round every buffer and NaN where nothing is."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from wavefit.native.opencl import kernels
from wavefit.native.opencl.build import build
from wavefit.native.operation import Config, Operation, View

_GUARD = 4096  # bytes before and after every buffer
_CANARY = 0xA5
_POISON = 0xFF  # bytes: NaN in every float type, and no sensible number in any integer type


@cache
def context() -> Any:
    """Of the first OpenCL device."""
    import pyopencl as cl

    return cl.Context([next(device for platform in cl.get_platforms() for device in platform.get_devices())])


@cache
def queue() -> Any:
    import pyopencl as cl

    return cl.CommandQueue(context())


def run(
    template: str, operation: Operation, config: Config, arrays: Sequence[np.ndarray | None]
) -> list[np.ndarray]:
    """The outputs of an operation, computed by one configuration of a template.

    Args:
        template: the file's name in opencl/kernels/.
        operation: its views say how the arrays lie in their buffers.
        config: of the template.
        arrays: one for each input, of the view's shape; elements of a buffer that no view shows are NaN.

    Raises:
        AssertionError: bytes outside a buffer, or elements that no output's view shows, were written.
    """
    made = kernels.get(template).build(operation, config)
    inputs = [
        None if view is None else _Held(view, array)
        for view, array in zip(operation.inputs, arrays, strict=True)
    ]
    outputs = [_Held(view, None) for view in operation.outputs]
    packed = [
        _Bytes(
            np.ascontiguousarray(kernels.get(template).pack(each.how, operation, _given(arrays, each.input)))
        )
        for each in made.packed
    ]
    scratch = [_Bytes(np.full(size, _POISON, np.uint8)) for size in made.scratch]
    held = {"input": inputs, "output": outputs, "packed": packed, "scratch": scratch}
    for launch in made.launches:
        _launch(launch.kernel, [held[each.kind][each.index] for each in launch.arguments])
    for kind, buffers in held.items():
        for number, buffer in enumerate(buffers):
            if buffer is not None:
                buffer.check(f"{kind} {number}")
    return [output.shown() for output in outputs]


def _given(arrays: Sequence[np.ndarray | None], number: int) -> np.ndarray:
    array = arrays[number]
    assert array is not None
    return array


def _launch(kernel: Any, buffers: Sequence[Any]) -> None:
    import pyopencl as cl

    assert all(whole % part == 0 for whole, part in zip(kernel.global_size, kernel.local_size, strict=True))
    program = _built(kernel.source)
    compiled = cl.Kernel(program, kernel.name)
    compiled.set_args(*(buffer.region for buffer in buffers))
    cl.enqueue_nd_range_kernel(queue(), compiled, kernel.global_size, kernel.local_size)
    queue().finish()


@cache
def _built(source: str) -> Any:
    return build(context(), source)


class _Bytes:
    """A buffer between two guards."""

    def __init__(self, content: np.ndarray) -> None:
        import pyopencl as cl

        self._size = content.nbytes
        guard = np.full(_GUARD, _CANARY, np.uint8)
        whole = np.concatenate([guard, content.reshape(-1).view(np.uint8), guard])
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        self._buffer = cl.Buffer(context(), flags, hostbuf=whole)
        self.region = self._buffer.get_sub_region(_GUARD, max(self._size, 4))

    def content(self) -> np.ndarray:
        import pyopencl as cl

        whole = np.empty(self._size + 2 * _GUARD, np.uint8)
        cl.enqueue_copy(queue(), whole, self._buffer)
        self._guards = whole[:_GUARD], whole[_GUARD + self._size :]
        return whole[_GUARD : _GUARD + self._size]

    def check(self, name: str) -> None:
        self.content()
        for guard, place in zip(self._guards, ("before", "after"), strict=True):
            assert (guard == _CANARY).all(), f"bytes {place} {name} were written"


class _Held(_Bytes):
    """A buffer that a view shows a tensor of; the elements between are poison, and must stay so."""

    def __init__(self, view: View, array: np.ndarray | None) -> None:
        self._view = view
        memory = np.full(view.extent * view.itemsize, _POISON, np.uint8)
        self._between = np.ones(view.extent, bool)
        _strided(self._between, view)[...] = False
        if array is not None and array.size:
            _strided(memory.view(view.dtype), view)[...] = array
        super().__init__(memory)

    def shown(self) -> np.ndarray:
        return np.array(_strided(self.content().view(self._view.dtype), self._view))

    def check(self, name: str) -> None:
        super().check(name)
        between = self.content().reshape(self._view.extent, -1)[self._between]
        assert (between == _POISON).all(), f"elements between those of {name} were written"


def _strided(memory: np.ndarray, view: View) -> np.ndarray:
    steps = tuple(stride * memory.itemsize for stride in view.strides)
    return np.lib.stride_tricks.as_strided(memory[view.offset :], view.shape, steps)
