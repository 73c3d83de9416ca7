"""HIP's self-test, without a framework: its C library and its run-time compiler, by ctypes. For a child process.

Source of the functions: HIP's API reference, "Memory management", "Module management" and "HIP RTC". Their error
paths were tried on Debian's HIP 5.2 without a GPU; the way to a right product has never run on AMD hardware.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_void_p
from pathlib import Path

import numpy as np

from wavefit.child.main import Reporter
from wavefit.device import hip
from wavefit.doctor.selftest import COMPILE, SECOND_COPY, SIZE, Order, Outcome, Tested, matrices, outcome
from wavefit.errors import RouteError

_TO_DEVICE, _TO_HOST = 1, 2  # hipMemcpyKind
_SIDE = 16  # threads of a block in each direction
_RTC = ("libhiprtc.so.8", "libhiprtc.so.7", "libhiprtc.so.6", "libhiprtc.so")

_KERNEL = b"""
extern "C" __global__ void multiply(const float *a, const float *b, float *c, int n) {
    const int row = blockIdx.y * blockDim.y + threadIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0.0f;
    for (int k = 0; k < n; k++) sum += a[row * n + k] * b[k * n + column];
    c[row * n + column] = sum;
}
"""


def run(payload: Order, say: Reporter) -> Tested:
    """Every GPU that HIP sees.

    Raises:
        RouteError: a call failed; it is named with HIP's own words and number.
    """
    say.stage("load HIP")
    library, why = hip.load(payload.library)
    if library is None:
        if why is not None:
            raise RouteError(why)
        return Tested(absent=True)
    runtime = Runtime(library)
    compiler = runtime.compiler() if payload.compute else None
    say.stage("look for devices")
    count = runtime.count()
    return Tested(outcomes=tuple(_on_device(runtime, compiler, index, say) for index in range(count)))


def _on_device(runtime: Runtime, compiler: ctypes.CDLL | None, index: int, say: Reporter) -> Outcome:
    """The test of one GPU, whose name is in what fails."""
    target = runtime.select(index)
    name = f"HIP {index}, {target or 'target unknown'}"
    try:
        return _tried(runtime, compiler if target else None, (name, target or ""), say)
    except RouteError as error:
        raise RouteError(f"{name}: {error.reason}", error.fix) from error


def _tried(runtime: Runtime, compiler: ctypes.CDLL | None, device: tuple[str, str], say: Reporter) -> Outcome:
    """The test of the current GPU, given by its name and target.

    Without the compiler, the first matrix comes back in place of a product.
    """
    name, target = device
    a, b = matrices()
    say.stage("allocate and copy")
    buffers = [runtime.allocate(a.nbytes) for _ in range(3)]
    for buffer, matrix in zip(buffers, (a, b), strict=False):
        runtime.copy_in(buffer, matrix)
    if compiler is not None:
        say.stage(f"{COMPILE} for {target}")
        code = compile_kernel(compiler, target)
        say.stage("matmul")
        runtime.launch(code, buffers)
    source = buffers[0] if compiler is None else buffers[2]
    say.stage("first copy back")
    first = runtime.copy_out(source)
    say.stage(SECOND_COPY)
    second = runtime.copy_out(source)
    for buffer in buffers:
        runtime.free(buffer)
    if compiler is not None:
        return outcome(name, first, second)
    right = bool((first == a).all())
    return Outcome(
        device=name, error=0.0 if right else 1e9, same=bool((first == second).all()), computed=False
    )


def _first(names: Iterable[str]) -> ctypes.CDLL | None:
    """The first library that loads."""
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


class Runtime:
    """The few functions of HIP that a self-test needs. Errors are RouteErrors that name the call.

    Args:
        library: libamdhip64, or anything that has its functions.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def count(self) -> int:
        """How many GPUs HIP sees; 0 where it says that there is none."""
        count = c_int(0)
        code = self._library.hipGetDeviceCount(byref(count))
        if code == hip.NO_DEVICE:
            return 0
        self._check("hipGetDeviceCount", code)
        return count.value

    def select(self, index: int) -> str | None:
        """Makes a GPU the current one and gives its target, "gfx1100"."""
        self._check("hipSetDevice", self._library.hipSetDevice(index))
        return hip.gfx(self._library, index)

    def allocate(self, size: int) -> c_void_p:
        buffer = c_void_p()
        self._check("hipMalloc", self._library.hipMalloc(byref(buffer), c_size_t(size)))
        return buffer

    def free(self, buffer: c_void_p) -> None:
        self._check("hipFree", self._library.hipFree(buffer))

    def copy_in(self, buffer: c_void_p, matrix: np.ndarray) -> None:
        self._copy(buffer, c_void_p(matrix.ctypes.data), matrix.nbytes, _TO_DEVICE)

    def copy_out(self, buffer: c_void_p) -> np.ndarray:
        """A buffer's content, float32 [SIZE, SIZE]."""
        matrix = np.full((SIZE, SIZE), np.nan, dtype=np.float32)
        self._copy(c_void_p(matrix.ctypes.data), buffer, matrix.nbytes, _TO_HOST)
        return matrix

    def launch(self, code: bytes, buffers: Sequence[c_void_p]) -> None:
        """Runs the kernel of a code object on two inputs and an output, and waits for its end."""
        module, function = c_void_p(), c_void_p()
        self._check("hipModuleLoadData", self._library.hipModuleLoadData(byref(module), code))
        got = self._library.hipModuleGetFunction(byref(function), module, b"multiply")
        self._check("hipModuleGetFunction", got)
        values = (*buffers, c_int(SIZE))
        arguments = (c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        blocks = c_uint(SIZE // _SIDE)
        shape = (blocks, blocks, c_uint(1), c_uint(_SIDE), c_uint(_SIDE), c_uint(1), c_uint(0))
        stream = extra = c_void_p(None)
        done = self._library.hipModuleLaunchKernel(function, *shape, stream, arguments, extra)
        self._check("hipModuleLaunchKernel", done)
        self._check("hipDeviceSynchronize", self._library.hipDeviceSynchronize())

    def compiler(self) -> ctypes.CDLL | None:
        """HIP's run-time compiler: a library beside HIP's, or, up to ROCm 6, in it; None where there is none."""
        path = Path(getattr(self._library, "_name", None) or "")
        folder = path.parent if path.is_absolute() else None  # a bare name: the loader found it
        beside = [folder / name for name in _RTC] + sorted(folder.glob("hiprtc*.dll")) if folder else []
        found = _first(str(each) for each in beside if each.exists())
        if found is None and hasattr(self._library, "hiprtcCompileProgram"):
            return self._library
        return found or _first(_RTC)

    def _copy(self, target: c_void_p, source: c_void_p, size: int, kind: int) -> None:
        code = self._library.hipMemcpy(target, source, c_size_t(size), c_int(kind))
        self._check("hipMemcpy to the host" if kind == _TO_HOST else "hipMemcpy to the device", code)

    def _check(self, call: str, code: int) -> None:
        if code:
            raise RouteError(hip.error(self._library, call, code))


def compile_kernel(compiler: ctypes.CDLL, target: str) -> bytes:
    """The kernel's code object for a target.

    Raises:
        RouteError: with the compiler's own words. (HIP 5.2's ends the whole process at a target that it does not know.)
    """
    program = c_void_p()
    code = compiler.hiprtcCreateProgram(byref(program), _KERNEL, b"multiply.hip", 0, None, None)
    _check_rtc(compiler, "hiprtcCreateProgram", code)
    options = (c_char_p * 1)(f"--offload-arch={target}".encode())
    if compiler.hiprtcCompileProgram(program, 1, options):
        said = _text(compiler, program, "ProgramLog").rstrip(b"\0") or b"it says nothing"
        raise RouteError(
            f"hiprtc does not compile for {target}: {' '.join(said.decode(errors='replace').split())}"
        )
    binary = _text(compiler, program, "Code")
    if not binary:
        raise RouteError(f"hiprtc gave no code for {target}")
    compiler.hiprtcDestroyProgram(byref(program))
    return binary


def _text(compiler: ctypes.CDLL, program: c_void_p, what: str) -> bytes:
    """The program's "ProgramLog" or "Code"."""
    size = c_size_t(0)
    get_size, get = f"hiprtcGet{what}Size", f"hiprtcGet{what}"
    _check_rtc(compiler, get_size, getattr(compiler, get_size)(program, byref(size)))
    buffer = ctypes.create_string_buffer(max(size.value, 1))
    _check_rtc(compiler, get, getattr(compiler, get)(program, buffer))
    return buffer.raw[: size.value]


def _check_rtc(compiler: ctypes.CDLL, call: str, code: int) -> None:
    if code:
        compiler.hiprtcGetErrorString.restype = c_char_p
        said = compiler.hiprtcGetErrorString(code)
        raise RouteError(f"{call}: {said.decode(errors='replace') if said else 'error'} ({code})")
