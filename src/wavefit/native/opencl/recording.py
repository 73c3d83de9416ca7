"""All launches recorded once in a command buffer, which one call of the driver runs.

cl_khr_command_buffer is provisional; what is used of it here has the same form in the revisions 0.9.0 to 0.9.6
(Khronos, OpenCL-Docs, api/cl_khr_command_buffer.asciidoc, and OpenCL-Headers, CL/cl_ext.h). A buffer of an in-order
queue runs its commands in order, each with the arguments that its kernel had when it was recorded.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_uint, c_void_p
from typing import Any

from wavefit.device.opencl import loader
from wavefit.native.opencl.errors import refusal
from wavefit.native.opencl.launch import Launch, Launcher, cl_name, sizes

EXTENSION = "cl_khr_command_buffer"
_INVALID_OPERATION = -59  # of an enqueue: the buffer is still pending from the last one

_WAIT_LIST = (c_uint, c_void_p)
_SIGNATURES: dict[str, tuple[Any, ...]] = {  # result, then arguments
    "clCreateCommandBufferKHR": (c_void_p, c_uint, POINTER(c_void_p), c_void_p, POINTER(c_int)),
    "clCommandNDRangeKernelKHR": (
        *(c_int, c_void_p, c_void_p, c_void_p, c_void_p),
        *(c_uint, c_void_p, POINTER(c_size_t), POINTER(c_size_t)),
        *(*_WAIT_LIST, c_void_p, c_void_p),
    ),
    "clFinalizeCommandBufferKHR": (c_int, c_void_p),
    "clEnqueueCommandBufferKHR": (c_int, c_uint, c_void_p, c_void_p, *_WAIT_LIST, c_void_p),
    "clReleaseCommandBufferKHR": (c_int, c_void_p),
}

Functions = dict[str, Callable[..., Any]]


class Recording:
    """Runs the same launches again and again.

    Args:
        buffer: a cl_command_buffer_khr that is finalized.
        functions: the extension's, by name.
        singly: the same launches one by one. A buffer that is still pending may not be enqueued again, unless it was
            made for that, which may make it slower: then these go behind it in the queue, which is in order.

    Attributes:
        singly: as above.
    """

    def __init__(self, buffer: c_void_p, functions: Functions, singly: Launcher) -> None:
        self._buffer = buffer
        self._enqueue = functions["clEnqueueCommandBufferKHR"]
        self._release = functions["clReleaseCommandBufferKHR"]
        self._call = (c_uint(0), None, buffer, c_uint(0), None, None)
        self.singly = singly

    def __call__(self) -> None:
        """Enqueues all; does not wait.

        Raises:
            RouteError: the driver refused.
        """
        status = self._enqueue(*self._call)
        if status == _INVALID_OPERATION:
            self.singly()
        elif status:
            raise refusal(self.singly.name, f"a command buffer was refused: {cl_name(status)}")

    def close(self) -> None:
        """Gives the buffer back, and with it what it holds of kernels and memory; once."""
        self._release(self._buffer)
        self.singly.close()


def launcher(queue: Any, launches: Sequence[Launch]) -> Launcher | Recording:
    """Launches recorded where the driver records them, else one by one.

    Args:
        queue: a ``pyopencl.CommandQueue``, in order.
        launches: with their arguments set.
    """
    singly = Launcher(queue, launches)
    functions = _functions(queue.device) if EXTENSION in queue.device.extensions.split() else None
    if functions is None or not launches:
        return singly
    buffer = _recorded(functions, queue, launches)
    return singly if buffer is None else Recording(buffer, functions, singly)


def _functions(device: Any) -> Functions | None:
    """The extension's functions, by name; None where the driver lacks one of them."""
    library = loader()
    if library is None:
        return None
    address = library.clGetExtensionFunctionAddressForPlatform
    address.restype, address.argtypes = c_void_p, [c_void_p, c_char_p]
    found: Functions = {}
    for name, signature in _SIGNATURES.items():
        place = address(device.platform.int_ptr, name.encode())
        if not place:
            return None
        found[name] = ctypes.CFUNCTYPE(*signature)(place)
    return found


def _recorded(functions: Functions, queue: Any, launches: Sequence[Launch]) -> c_void_p | None:
    """A finalized buffer; None where the driver refuses: it may want a queue of other properties."""
    status = c_int()
    made = functions["clCreateCommandBufferKHR"](1, byref(c_void_p(queue.int_ptr)), None, byref(status))
    if status.value or not made:
        return None
    buffer = c_void_p(made)
    record = functions["clCommandNDRangeKernelKHR"]
    for kernel, global_size, local_size in launches:
        call = (len(global_size), None, sizes(global_size), sizes(local_size), 0, None, None, None)
        if record(buffer, None, None, kernel.int_ptr, *call):
            break
    else:
        if not functions["clFinalizeCommandBufferKHR"](buffer):
            return buffer
    functions["clReleaseCommandBufferKHR"](buffer)
    return None
