"""Normalisations that are a reduction and an expression, or another normalisation of a reshaped image."""

from __future__ import annotations

import math

import numpy as np

from wavefit.native.graph import Value
from wavefit.native.onnx_ops._call import Call
from wavefit.native.onnx_ops._chain import Chain


def _group(call: Call) -> None:
    """Each group normalised as one channel. Scale and bias are of groups in version 18, of channels from 21 on."""
    value, groups = call.input(), int(call.attribute("num_groups"))
    batch, channels = value.shape[:2]
    flat = call.reshape(value, (batch, groups, value.size // (batch * groups)))
    one, zero = (call.value(np.full(groups, each, value.dtype)) for each in (1, 0))
    epsilon = float(call.attribute("epsilon", 1e-5))
    normal = call.add("InstanceNormalization", [flat, one, zero], flat.shape, epsilon=epsilon)
    normal = call.reshape(normal, value.shape)
    factors = [_of_channels(call, call.input(index), channels, len(value.shape) - 2) for index in (1, 2)]
    chain = Chain([normal, *factors], literals=False)
    chain("fma", *chain.arguments)
    chain.add_to(call, call.output())


def _of_channels(call: Call, value: Value, channels: int, spatial: int) -> Value:
    shape = (channels,) + (1,) * spatial
    if value.size == channels:
        return call.reshape(value, shape)
    if value.constant is not None:
        return call.value(np.repeat(value.constant, channels // value.size).reshape(shape))
    apart = call.add("Expand", [call.reshape(value, (value.size, 1))], (value.size, channels // value.size))
    return call.reshape(apart, shape)


def _rms(call: Call) -> str | None:
    """x / sqrt(mean(x^2) + epsilon) * scale; ONNX Runtime writes it as SimplifiedLayerNormalization."""
    value = call.input()
    if call.wanted(1):
        return "its output InvStdDev is read"
    axis = call.axis(int(call.attribute("axis", -1)), len(value.shape))
    axes = tuple(range(axis, len(value.shape)))
    shape = value.shape[:axis] + (1,) * len(axes)
    squares = call.add("Reduce", [value], shape, kind="sumsquare", axes=axes)
    chain = Chain([value, squares, call.input(1)], literals=False)
    count = math.prod(value.shape[axis:])
    mean = chain("fma", 1, 1.0 / count, float(call.attribute("epsilon", 1e-5)))
    chain("mul", chain("div", 0, chain("sqrt", mean)), chain.arguments[2])
    chain.add_to(call, call.output())
    return None


def _mean_variance(call: Call) -> None:
    """(x - mean) / (sqrt(mean((x - mean)^2)) + 1e-9), as the function body in ONNX's specification has it."""
    value = call.input()
    axes = tuple(sorted(call.axis(axis, len(value.shape)) for axis in call.attribute("axes") or (0, 2, 3)))
    shape = tuple(1 if axis in axes else size for axis, size in enumerate(value.shape))
    mean = call.add("Reduce", [value], shape, kind="mean", axes=axes)
    chain = Chain([value, mean], literals=False)
    chain("sub", 0, 1)
    centred = chain.add_to(call, value.shape)
    chain = Chain([centred], literals=False)
    chain("mul", 0, 0)
    variance = call.add("Reduce", [chain.add_to(call, value.shape)], shape, kind="mean", axes=axes)
    chain = Chain([centred, variance], literals=False)
    chain("div", 0, chain("add", chain("sqrt", 1), 1e-9))
    chain.add_to(call, call.output())


def _lp(call: Call) -> str | None:
    """x over its norm along an axis; 0 where that is 0."""
    value, order = call.input(), int(call.attribute("p", 2))
    if order not in (1, 2):
        return f"its norm is of order {order}: 1 and 2 are computed"
    axis = call.axis(int(call.attribute("axis", -1)), len(value.shape))
    shape = (*value.shape[:axis], 1, *value.shape[axis + 1 :])
    norm = call.add("Reduce", [value], shape, kind=f"l{order}", axes=(axis,))
    chain = Chain([value, norm], literals=False)
    chain("where", chain("greater", 1, 0.0), chain("div", 0, 1), 0.0)
    chain.add_to(call, call.output())
    return None


OPERATORS = {
    "GroupNormalization": _group,
    "LpNormalization": _lp,
    "MeanVarianceNormalization": _mean_variance,
    "RMSNormalization": _rms,
    "SimplifiedLayerNormalization": _rms,
}
