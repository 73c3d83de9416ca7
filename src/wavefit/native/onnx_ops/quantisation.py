"""Quantisation, per tensor, per axis and in blocks, and products of integers.

The latter are written as QuantizeLinear and DequantizeLinear round a product of floats, which a pass then makes of the
integers (passes/integers.py): every quantised product has one form from here on.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from wavefit.native.graph import Value
from wavefit.native.onnx_ops._call import Call
from wavefit.native.onnx_ops._chain import Chain, step_type
from wavefit.native.onnx_ops._windows import window
from wavefit.native.onnx_ops.products import product
from wavefit.native.passes._expressions import uniform
from wavefit.native.pointwise import Argument


def _quantize(call: Call) -> str | None:
    """Rounded to even, shifted, held within the type's range."""
    target = call.output()
    kind = np.dtype(target.dtype)
    if kind.kind not in "iu" or kind.itemsize > 2:
        return f"it makes {target.dtype}: int8, uint8, int16 and uint16 are computed"
    _quantised(call, call.input(), _spread(call, 1), _spread(call, 2), target)
    return None


def _quantised(call: Call, value: Value, scale: Value | None, zero: Value | None, target: Value) -> None:
    chain, by, offset = _chain(call, value, scale, zero)
    number = chain("round", chain("div", 0, by))
    if offset is not None:
        number = chain("add", number, offset if isinstance(offset, float) else chain("cast", offset))
    limits = np.iinfo(np.dtype(target.dtype))
    chain("cast", chain("clip", number, float(limits.min), float(limits.max)), dtype=target.dtype)
    chain.add_to(call, target)


def _dequantize(call: Call) -> str | None:
    _dequantised(call, call.input(), _spread(call, 1), _spread(call, 2), call.output())
    return None


def _dequantised(
    call: Call, value: Value, scale: Value | None, zero: Value | None, to: Value | None = None
) -> Value:
    to = to or call.fresh(value.shape, "float32")
    chain, by, offset = _chain(call, value, scale, zero)
    number = chain("cast", 0)
    if offset is not None:
        number = chain("sub", number, offset if isinstance(offset, float) else chain("cast", offset))
    chain("mul", number, by, dtype=step_type(to.dtype))
    return chain.add_to(call, to)


def _chain(
    call: Call, value: Value, scale: Value | None, zero: Value | None
) -> tuple[Chain, Argument, Argument | None]:
    """A chain over a value, its scale and its zero point: a number where that is one, None where it is 0."""
    assert scale is not None, call.called
    number = None if zero is None or zero.constant is None else uniform(zero.constant)
    if zero is None or number is not None:
        chain = Chain([value, scale], literals=False)
        return chain, chain.arguments[1], number or None
    chain = Chain([value, scale, zero], literals=False)
    return chain, chain.arguments[1], chain.arguments[2]


def _spread(call: Call, index: int, of: int = 0, along: int | None = None) -> Value | None:
    """A scale or zero point that broadcasts: one number, one for each place of an axis, one for each block.

    Args:
        index: of it among the call's inputs.
        of: the input that it belongs to.
        along: the axis; None: the attribute's.
    """
    value, shape = call.optional(index), call.input(of).shape
    if value is None or value.size == 1:
        return value if value is None else call.reshape(value, ())
    axis = call.axis(int(call.attribute("axis", 1)) if along is None else along, len(shape))
    if len(value.shape) == 1:
        return call.reshape(value, (value.size,) + (1,) * (len(shape) - axis - 1))
    block = int(call.attribute("block_size", 0))
    apart = (*value.shape[: axis + 1], 1, *value.shape[axis + 1 :])
    repeated = (*value.shape[: axis + 1], block, *value.shape[axis + 1 :])
    joined = (*value.shape[:axis], value.shape[axis] * block, *value.shape[axis + 1 :])
    return call.reshape(call.add("Expand", [call.reshape(value, apart)], repeated), joined)


# ---- Products of integers -------------------------------------------------------------------------------------------


def _qlinear_conv(call: Call) -> str | None:
    """x, its scale and zero point; w and its; those of the result; a bias in steps of both scales."""
    x_scale, w_scale = call.optional(1), call.optional(4)
    assert x_scale is not None
    assert w_scale is not None
    x = _dequantised(call, call.input(), _spread(call, 1), _spread(call, 2))
    w = _dequantised(call, call.input(3), _spread(call, 4, 3, 0), _spread(call, 5, 3, 0))
    bias = None
    if call.given(8):
        chain = Chain([call.reshape(x_scale, ()), w_scale], literals=False)
        chain("mul", *chain.arguments)
        step = _known(chain, x_scale, w_scale) or chain.add_to(call, w_scale.shape)
        step = call.reshape(step, ()) if isinstance(step, Value) and step.size == 1 else step
        bias = _dequantised(call, call.input(8), step, None)
    sums = _convolved(call, x, w, bias)
    _quantised(call, sums, call.optional(6), call.optional(7), call.output())
    return None


def _qlinear_matmul(call: Call) -> str | None:
    a = _dequantised(call, call.input(), _spread(call, 1, 0, -2), _spread(call, 2, 0, -2))
    b = _dequantised(call, call.input(3), _spread(call, 4, 3, -1), _spread(call, 5, 3, -1))
    sums = call.fresh(call.output().shape, "float32")
    product(call, a, b, sums)
    _quantised(call, sums, call.optional(6), call.optional(7), call.output())
    return None


def _conv_integer(call: Call) -> str | None:
    """Sums past 2^24 are rounded as floats are: what follows is a Cast to float, in files that tools write."""
    weight = call.input(1)
    one = call.value(np.ones((), np.float32))
    x = _dequantised(call, call.input(), one, _spread(call, 2))
    w = _dequantised(call, weight, one, _spread(call, 3, 1, 0))
    _as_integers(call, _convolved(call, x, w, None))
    return None


def _matmul_integer(call: Call) -> str | None:
    """As :func:`_conv_integer`."""
    one = call.value(np.ones((), np.float32))
    a = _dequantised(call, call.input(), one, _spread(call, 2, 0, -2))
    b = _dequantised(call, call.input(1), one, _spread(call, 3, 1, -1))
    sums = call.fresh(call.output().shape, "float32")
    product(call, a, b, sums)
    _as_integers(call, sums)
    return None


def _dynamic(call: Call) -> str | None:
    """The range of the input and 0 is laid over 0 to 255, as the function body in ONNX's specification has it."""
    value = call.input()
    axes = tuple(range(len(value.shape)))
    least, most = (
        call.reshape(call.add("Reduce", [value], (1,) * len(axes), kind=kind, axes=axes), ())
        for kind in ("min", "max")
    )
    wanted = [call.outputs[index] for index in (1, 2)]
    scale, zero = (
        known or call.fresh((), dtype) for known, dtype in zip(wanted, ("float32", "uint8"), strict=True)
    )
    chain = Chain([least, most], literals=False)
    low, high = chain("fmin", 0, 0.0), chain("fmax", 1, 0.0)
    chain("div", chain("sub", high, low), 255.0)
    chain.add_to(call, scale)
    chain = Chain([least, scale], literals=False)
    shifted = chain("neg", chain("div", chain("fmin", 0, 0.0), 1))
    chain("cast", chain("clip", chain("round", shifted), 0.0, 255.0), dtype="uint8")
    chain.add_to(call, zero)
    _quantised(call, value, scale, zero, call.output())
    return None


def _convolved(call: Call, x: Value, w: Value, bias: Value | None) -> Value:
    sizes = window(call, w.shape[2:])
    return call.add(
        "Conv",
        [x, w, bias],
        call.fresh(call.output().shape, "float32"),
        strides=sizes.strides,
        pads=sizes.pads,
        dilations=sizes.dilations,
        group=int(call.attribute("group", 1)),
    )


def _as_integers(call: Call, sums: Value) -> None:
    chain = Chain([sums], literals=False)
    chain("cast", 0, dtype=call.output().dtype)
    chain.add_to(call, call.output())


def _known(chain: Chain, *values: Value) -> Value | None:
    """The product of constants."""
    arrays = [value.constant for value in values if value.constant is not None]
    if len(arrays) != len(values):
        return None
    made = np.asarray(math.prod(arrays[1:], start=arrays[0])).astype(np.float32)
    return Value(f"{values[-1].name}/steps", made.shape, "float32", made)


OPERATORS: dict[str, Callable[[Call], str | None]] = {
    "ConvInteger": _conv_integer,
    "DequantizeLinear": _dequantize,
    "DynamicQuantizeLinear": _dynamic,
    "MatMulInteger": _matmul_integer,
    "QLinearConv": _qlinear_conv,
    "QLinearMatMul": _qlinear_matmul,
    "QuantizeLinear": _quantize,
}
