"""The launch path: arguments set once, then one call of the driver a launch and nothing else.

``pyopencl.enqueue_nd_range_kernel`` converts its arguments and makes an event on every call; here the first is done
once, the other never. Kernels and queues stay pyopencl's.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from wavefit.device.opencl import loader
from wavefit.native.opencl.errors import refusal
from wavefit.native.operation import Buffer, Implementation

Launch = tuple[Any, tuple[int, ...], tuple[int, ...]]
"""A ``pyopencl.Kernel`` with its arguments set, the global size, the local size."""


class Launcher:
    """Enqueues the same launches again and again.

    Args:
        queue: a ``pyopencl.CommandQueue``, in order.
        launches: in their order.

    Attributes:
        name: of the device.
    """

    def __init__(self, queue: Any, launches: Sequence[Launch]) -> None:
        self._queue = queue
        self.name = queue.device.name.strip()
        self._launches = launches  # keeps the kernels alive
        library = loader()
        self._enqueue = None if library is None else library.clEnqueueNDRangeKernel
        self._calls = [_call(queue, *launch) for launch in launches]

    def __call__(self) -> None:
        """Enqueues all; does not wait.

        Raises:
            RouteError: the driver refused a launch; some say only then that memory is short.
        """
        enqueue = self._enqueue
        if enqueue is None:
            self._by_pyopencl()
            return
        for call in self._calls:
            status = enqueue(*call)
            if status:
                raise refusal(self.name, f"a launch was refused: {cl_name(status)}")

    def _by_pyopencl(self) -> None:
        import pyopencl as cl

        for launch in self._launches:
            cl.enqueue_nd_range_kernel(self._queue, *launch)

    def close(self) -> None:
        """Lets go of the kernels."""
        self._launches, self._calls = [], []


def bound(
    made: Implementation, programs: Mapping[str, Any], argument: Callable[[Buffer], Any]
) -> list[Launch]:
    """An implementation's launches.

    Args:
        made: of one operation.
        programs: built ones, by source.
        argument: the ``pyopencl.Buffer`` for each of its arguments; the caller keeps them, a kernel does not.
    """
    import pyopencl as cl

    launches = []
    for launch in made.launches:
        kernel = cl.Kernel(programs[launch.kernel.source], launch.kernel.name)
        kernel.set_args(*(argument(each) for each in launch.arguments))
        launches.append((kernel, launch.kernel.global_size, launch.kernel.local_size))
    return launches


def cl_name(status: int) -> str:
    """The name of an OpenCL status: -5 is OUT_OF_RESOURCES."""
    import pyopencl as cl

    return str(cl.status_code.to_string(status, "status %d"))


def sizes(of: tuple[int, ...]) -> Any:
    """As C has them: size_t[]."""
    return (ctypes.c_size_t * len(of))(*of)


def _call(
    queue: Any, kernel: Any, global_size: tuple[int, ...], local_size: tuple[int, ...]
) -> tuple[Any, ...]:
    """clEnqueueNDRangeKernel's arguments: no offset, no events."""
    return (
        ctypes.c_void_p(queue.int_ptr),
        ctypes.c_void_p(kernel.int_ptr),
        ctypes.c_uint(len(global_size)),
        None,
        sizes(global_size),
        sizes(local_size),
        ctypes.c_uint(0),
        None,
        None,
    )
