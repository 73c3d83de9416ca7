"""Two buffers held against each other on the device: answers of hundreds of megabytes never come to the host."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

_ITEMS = 16384
_UNSIGNED = {1: "uchar", 2: "ushort", 4: "uint", 8: "ulong"}
_SIGNED = {"int64": "long", "int32": "int", "int16": "short", "int8": "char"}

# Poison stays where an answer has a gap: in both is right, in one is wrong. A NaN in both is an answer (log(-1)).
_SOURCE = """
__kernel void compare(__global const BITS *got, __global const BITS *want, __global float *sums, const ulong n) {
  float off = 0.0f, all = 0.0f;
  for (ulong i = get_global_id(0); i < n; i += get_global_size(0)) {
    if (got[i] == want[i]) { const float same = VALUE(want); if (isfinite(same)) all += same * same; continue; }
    const float a = VALUE(got), b = VALUE(want);
    const int gap = FLOATS && (got[i] == (BITS)POISON || want[i] == (BITS)POISON);
    if (!gap && isnan(a) && isnan(b)) continue;
    off += gap ? NAN : (a - b) * (a - b);
    all += b * b;
  }
  sums[get_global_id(0)] = off;
  sums[get_global_size(0) + get_global_id(0)] = all;
}
"""


class Comparison:
    """A copy of a buffer, to hold others against.

    Args:
        queue: a ``pyopencl.CommandQueue``, in order.
        buffer: the right answer.
        dtype: numpy's name of its elements' type.
    """

    def __init__(self, queue: Any, buffer: Any, dtype: str) -> None:
        import pyopencl as cl

        self._cl, self._queue = cl, queue
        size = np.dtype(dtype).itemsize
        self._count = buffer.size // size
        self._want = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, buffer.size)
        cl.enqueue_copy(queue, self._want, buffer, byte_count=buffer.size)
        self._sums = np.empty((2, _ITEMS), np.float32)
        self._out = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, self._sums.nbytes)
        self._kernel = cl.Kernel(_program(queue.context, dtype), "compare")

    def difference(self, got: Any) -> float:
        """Relative L2 of a buffer; NaN where one of two floats is a gap (bytes of 0xFF) and the other is none."""
        self._kernel.set_args(got, self._want, self._out, np.uint64(self._count))
        self._cl.enqueue_nd_range_kernel(self._queue, self._kernel, (_ITEMS,), None)
        self._cl.enqueue_copy(self._queue, self._sums, self._out)
        off, squares = self._sums.astype(np.float64).sum(axis=1)
        with np.errstate(invalid="ignore"):  # infinity where there is none, over another
            return float(np.sqrt(off / (squares or 1.0)))

    def close(self) -> None:
        self._want.release()
        self._out.release()


@lru_cache(maxsize=8)
def _program(context: Any, dtype: str) -> Any:
    import pyopencl as cl

    return cl.Program(context, _text(dtype, np.dtype(dtype).itemsize)).build()


def _text(dtype: str, size: int) -> str:
    values = {
        "float32": "as_float(p[i])",
        "float16": "vload_half(i, (__global const half *)p)",
        "float64": "(float)as_double(p[i])",
    }
    bits = _UNSIGNED[size]
    signed = _SIGNED.get(dtype, bits)
    value = values.get(dtype, f"(float)({signed})p[i]")
    head = [f"BITS {bits}", "POISON ~0ul", f"FLOATS {int(dtype in values)}", f"VALUE(p) ({value})"]
    return "".join(f"#define {line}\n" for line in head) + _SOURCE
