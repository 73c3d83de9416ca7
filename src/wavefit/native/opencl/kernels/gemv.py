"""Products of a few rows, MatMul or 1x1 Conv of a few pixels: what counts is that memory's speed is reached.

See :mod:`_gemv` for the kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product as product_of
from math import ceil, prod

from wavefit.native.opencl.kernels import _choice, _conv, _gemv, _product, conv_gemm, matmul
from wavefit.native.opencl.kernels._gemv import Factors, Shape
from wavefit.native.operation import Config, Implementation, Limits, Operation, View

OPS = ("MatMul", "Conv")

_MOST_ROWS = 8


def claims(operation: Operation) -> bool:
    if operation.input(0).dtype not in ("float32", "float16"):
        return False
    if operation.op == "MatMul":
        return matmul.claims(operation) and matmul.factors(operation)[0].rows <= _MOST_ROWS
    shape = _conv.conv(operation)  # of one pixel, as in squeeze-and-excitation
    return (
        conv_gemm.claims(operation)
        and conv_gemm.plain(shape, operation)
        and prod(shape.out) * shape.batch <= _MOST_ROWS
    )


def configurations(operation: Operation, limits: Limits) -> Iterator[Config]:
    """``across`` (times 4 columns) by ``down`` work-items, ``split``, ``unroll`` steps whose loads go out together."""
    factors = _factors(operation)
    sizes = product_of((1, 2, 4, 8, 16, 32, 64), (64, 128, 256), (1, 2, 4, 8, 16), (1, 2, 4))
    every = [Shape(factors, across, items // across, split, unroll) for across, items, split, unroll in sizes]
    fitting = [shape for shape in every if shape.sensible and _allowed(shape, limits)]
    plainest = Shape(factors, 1, max(1, min(limits.work_group, limits.wave)), 1, 1)
    for shape in sorted(fitting or [plainest], key=lambda s: (_seconds(s, limits), _waiting(s, limits))):
        yield {"across": shape.across, "down": shape.down, "split": shape.split, "unroll": shape.unroll}


def build(operation: Operation, config: Config) -> Implementation:
    shape = _shape(operation, config)
    return _product.launched("gemv", shape.factors.product, _gemv.kernel(shape), config, ())


def cost(operation: Operation, config: Config, limits: Limits) -> float:
    return _seconds(_shape(operation, config), limits)


def _factors(operation: Operation) -> Factors:
    if operation.op == "MatMul":
        return Factors(*matmul.factors(operation))
    product, a = conv_gemm.arranged(operation)
    w = operation.input(1)
    zeros = (0,) * (len(product.shape) - 1)
    b = View(shape=product.shape, strides=(*zeros, w.strides[0]), offset=w.offset, dtype=w.dtype)
    return Factors(product, a, b, (1, w.strides[1]))


def _shape(operation: Operation, config: Config) -> Shape:
    across, down, split, unroll = (int(config[name]) for name in ("across", "down", "split", "unroll"))
    return Shape(_factors(operation), across, down, split, unroll)


# ---- Which configurations -------------------------------------------------------------------------------------------

_LOAD_S = 7e-7  # from a load of global memory to its use, as seen on an H200
_ADD_S = 1e-7  # of a half of the work-items that adds the other's sums: local memory and a barrier
_LEAST_WAVES = 4
_CU_LOCAL_BYTES = 65536


def _allowed(shape: Shape, limits: Limits) -> bool:
    if shape.items > limits.work_group or shape.local_bytes > limits.local_bytes:
        return False
    if limits.kind == "gpu" and shape.items % limits.wave:
        return False
    return limits.registers is None or limits.registers // shape.registers >= _LEAST_WAVES


def _resident(shape: Shape, limits: Limits) -> int:
    """Work-groups that a compute unit runs at once."""
    waves = -(-shape.items // limits.wave)
    most = min(limits.waves or 8, (limits.registers or 4 * shape.registers) // shape.registers) * limits.simds
    return max(1, min(most // waves, _CU_LOCAL_BYTES // max(shape.local_bytes, 1)))


def _seconds(shape: Shape, limits: Limits) -> float:
    """Memory's time, or that of loads that wait for each other, or the peak's; and what launches and their sums take.

    Memory's time is counted a tenth less than a tile's, which stops at a barrier in every step. That tenth is an
    assumption: no device has measured it yet. What the device can hardly hold is left to tiles.
    """
    product = shape.factors.product
    bandwidth = limits.bandwidth or 1e11
    idle = shape.across_groups * 4 * shape.across / product.columns
    busy = max(
        _waiting(shape, limits),
        0.9 * _choice.least_bytes(product) / bandwidth,
        2 * idle * product.flops / (limits.flops or 1e12),
    )
    seconds = busy + _choice.partial_sums(product, shape.split, bandwidth)
    return seconds if _allowed(shape, limits) else 2 * seconds


def _waiting(shape: Shape, limits: Limits) -> float:
    """Seconds of loads one after another, and of adding up.

    A work-item has ``unroll`` steps of 64 bytes on their way at once; work-groups that do not fit the compute units
    wait for others.
    """
    rounds = ceil(shape.groups / ((limits.compute_units or 16) * _resident(shape, limits)))
    steps = ceil(shape.quads / (shape.down * shape.split))
    adding = _ADD_S * shape.down.bit_length() * ceil(shape.factors.product.rows / shape.at_once)
    return rounds * ((ceil(steps / shape.unroll) + 1) * _LOAD_S + adding)
