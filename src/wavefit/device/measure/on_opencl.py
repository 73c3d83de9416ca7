"""A GPU, measured with OpenCL, where PyTorch has no build for it.

The product is a plain tiled kernel, not a tuned library: what it reaches is a floor, and its figure says so.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from wavefit.child.main import Reporter
from wavefit.device.measure.order import Order, Reading, Readings
from wavefit.device.measure.timing import bandwidth, launch, mib, product, seconds
from wavefit.errors import RouteError

_COPY_BYTES = 1 << 30
_TRANSFER_BYTES = 128 << 20
_LARGEST_MATRIX = 4096
_LARGEST_ERROR = {"fp32": 1e-5, "fp16": 5e-3}  # relative L2 of a row against float64


def measure(payload: Order, say: Reporter) -> Readings:
    """All peaks; fp16 where the device has half precision.

    Raises:
        RouteError: OpenCL cannot use the device, or its product is wrong.
    """
    say.stage("import pyopencl")
    import pyopencl as cl

    try:
        return _measure(cl, payload, say)
    except cl.Error as error:
        raise RouteError(f"OpenCL cannot measure it: {error}") from error


def _measure(cl: Any, order: Order, say: Reporter) -> Readings:
    device = _device(cl, order)
    context = cl.Context([device])  # held here: with Intel's runtime a queue alone does not keep it
    queue = cl.CommandQueue(context, device)
    most = device.max_mem_alloc_size // 4
    say.stage("copy")
    readings = {"bandwidth": _copy(cl, queue, min(_COPY_BYTES, most))}
    say.stage("transfer")
    readings |= _transfers(cl, queue, min(_TRANSFER_BYTES, most))
    say.stage("multiply")
    readings["fp32"] = _product(cl, queue, "fp32")
    if "cl_khr_fp16" in device.extensions.split():
        readings["fp16"] = _product(cl, queue, "fp16")
    say.stage("launch")
    readings["launch_s"] = _launch(cl, queue)
    version = f"OpenCL on {device.platform.name.strip()} {device.driver_version.strip()}"
    return Readings(runtime=version, readings=readings)


def _device(cl: Any, order: Order) -> Any:
    for platform in cl.get_platforms():
        devices = platform.get_devices()
        if platform.name.strip() == order.runtime.platform and (order.runtime.index or 0) < len(devices):
            return devices[order.runtime.index or 0]
    raise RouteError(f"the OpenCL platform {order.runtime.platform} does not show {order.device.id} any more")


def _random(nbytes: int) -> Any:
    import numpy as np

    return np.random.default_rng(0).random(nbytes // 4, dtype=np.float32)


def _copy(cl: Any, queue: Any, nbytes: int) -> Reading:
    flags = cl.mem_flags
    source = cl.Buffer(queue.context, flags.READ_WRITE | flags.COPY_HOST_PTR, hostbuf=_random(nbytes))
    target = cl.Buffer(queue.context, flags.READ_WRITE, source.size)
    taken = seconds(lambda: cl.enqueue_copy(queue, target, source), queue.finish)
    return bandwidth(2 * source.size, taken, f"copy of {mib(source.size)}, read and written")


def _transfers(cl: Any, queue: Any, nbytes: int) -> dict[str, Reading]:
    """Both ways, from memory as it comes and from memory that the driver allocates for mapping (pinned)."""
    flags = cl.mem_flags
    plain = _random(nbytes)
    there = cl.Buffer(queue.context, flags.READ_WRITE, plain.nbytes)
    host = cl.Buffer(queue.context, flags.READ_WRITE | flags.ALLOC_HOST_PTR, plain.nbytes)
    access = cl.map_flags.READ | cl.map_flags.WRITE
    pinned, _ = cl.enqueue_map_buffer(queue, host, access, 0, plain.shape, plain.dtype)
    pinned[:] = plain
    readings = {}
    for suffix, memory in (("", plain), ("_pinned", pinned)):
        for name, target, source in (("h2d", there, memory), ("d2h", memory, there)):
            taken = seconds(_copier(cl, queue, target, source), queue.finish)
            how = f"copy of {mib(plain.nbytes)}{', pinned' if suffix else ''}"
            readings[name + suffix] = bandwidth(plain.nbytes, taken, how)
    return readings


def _copier(cl: Any, queue: Any, target: Any, source: Any) -> Callable[[], object]:
    return lambda: cl.enqueue_copy(queue, target, source, is_blocking=False)


def _product(cl: Any, queue: Any, precision: str) -> Reading:
    import numpy as np

    half = precision == "fp16"
    options = ["-DT=half", "-DHALF"] if half else ["-DT=float"]
    source = Path(__file__).with_name("product.cl").read_text()
    kernel = cl.Kernel(cl.Program(queue.context, source).build(options), "product")
    dtype = np.float16 if half else np.float32
    size = 512
    while True:
        first, second = _matrix(size, dtype, 0), _matrix(size, dtype, 1)
        flags = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
        buffers = [cl.Buffer(queue.context, flags, hostbuf=matrix) for matrix in (first, second)]
        out = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, first.nbytes)
        kernel.set_args(*buffers, out, np.int32(size))
        taken = seconds(_starter(cl, queue, kernel, size), queue.finish)
        _check(cl, queue, out, first, second, precision)
        if size >= _LARGEST_MATRIX or 8 * taken > 0.25:
            return product(
                size, taken, f"product of {size}x{size} {precision} matrices, a plain tiled kernel"
            )
        size *= 2


def _starter(cl: Any, queue: Any, kernel: Any, size: int) -> Callable[[], object]:
    items = size // 4  # each work-item gives 4 x 4 elements
    return lambda: cl.enqueue_nd_range_kernel(queue, kernel, (items, items), (16, 16))


def _matrix(size: int, dtype: Any, seed: int) -> Any:
    import numpy as np

    return np.random.default_rng(seed).random((size, size), dtype=np.float32).astype(dtype)


def _check(cl: Any, queue: Any, out: Any, first: Any, second: Any, precision: str) -> None:
    """The last row against float64: a kernel that is compiled wrong is fast for nothing."""
    import numpy as np

    found = np.empty_like(first)
    cl.enqueue_copy(queue, found, out)
    right = first[-1].astype(np.float64) @ second.astype(np.float64)
    error = float(np.linalg.norm(found[-1] - right) / np.linalg.norm(right))
    if not error <= _LARGEST_ERROR[precision]:
        raise RouteError(f"OpenCL's {precision} product is wrong: relative error {error:.2g}")


def _launch(cl: Any, queue: Any) -> Reading:
    source = "__kernel void touch(__global float *x) { if (get_global_id(0) == 0) x[0] += 1.0f; }"
    kernel = cl.Kernel(cl.Program(queue.context, source).build(), "touch")
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    one = cl.Buffer(
        queue.context, flags, hostbuf=_random(4)
    )  # held here: a kernel does not hold its arguments
    kernel.set_args(one)
    taken = seconds(lambda: cl.enqueue_nd_range_kernel(queue, kernel, (1,), None), queue.finish)
    return launch(taken, "kernels that add to one element")
