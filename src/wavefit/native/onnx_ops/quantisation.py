"""QuantizeLinear and DequantizeLinear, per tensor, per axis and in blocks."""

from __future__ import annotations

import numpy as np

from wavefit.native.graph import Value
from wavefit.native.onnx_ops._call import Call
from wavefit.native.onnx_ops._chain import Chain, step_type


def _quantize(call: Call) -> str | None:
    """Rounded to even, shifted, held within the type's range."""
    target = call.output()
    kind = np.dtype(target.dtype)
    if kind.kind not in "iu" or kind.itemsize > 2:
        return f"it makes {target.dtype}: int8, uint8, int16 and uint16 are computed"
    spread = [_spread(call, index) for index in (1, 2)]
    values = [call.input(), *(value for value in spread if value is not None)]
    chain = Chain(values, literals=False)
    number = chain("round", chain("div", 0, chain.arguments[1]))
    if len(values) == 3:
        number = chain("add", number, chain("cast", chain.arguments[2]))
    limits = np.iinfo(kind)
    chain("cast", chain("clip", number, float(limits.min), float(limits.max)), dtype=target.dtype)
    chain.add_to(call, target)
    return None


def _dequantize(call: Call) -> str | None:
    spread = [_spread(call, index) for index in (1, 2)]
    values = [call.input(), *(value for value in spread if value is not None)]
    chain = Chain(values, literals=False)
    number = chain("cast", 0)
    if len(values) == 3:
        number = chain("sub", number, chain("cast", chain.arguments[2]))
    chain("mul", number, chain.arguments[1], dtype=step_type(call.output().dtype))
    chain.add_to(call, call.output())
    return None


def _spread(call: Call, index: int) -> Value | None:
    """A scale or zero point that broadcasts: one number, one for each place of an axis, one for each block."""
    value, shape = call.optional(index), call.input().shape
    if value is None or value.size == 1:
        return value if value is None else call.reshape(value, ())
    axis = call.axis(int(call.attribute("axis", 1)), len(shape))
    if len(value.shape) == 1:
        return call.reshape(value, (value.size,) + (1,) * (len(shape) - axis - 1))
    block = int(call.attribute("block_size", 0))
    apart = (*value.shape[: axis + 1], 1, *value.shape[axis + 1 :])
    repeated = (*value.shape[: axis + 1], block, *value.shape[axis + 1 :])
    joined = (*value.shape[:axis], value.shape[axis] * block, *value.shape[axis + 1 :])
    return call.reshape(call.add("Expand", [call.reshape(value, apart)], repeated), joined)


OPERATORS = {"DequantizeLinear": _dequantize, "QuantizeLinear": _quantize}
