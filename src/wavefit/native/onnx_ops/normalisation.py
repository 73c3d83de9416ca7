"""Normalisations, and softmax."""

from __future__ import annotations

import math

import numpy as np

from wavefit.native.graph import Value
from wavefit.native.onnx_ops._call import Call
from wavefit.native.onnx_ops._chain import Chain


def _batch(call: Call) -> str | None:
    """One multiply-add for each element, with factors that are known where the statistics are."""
    if call.attribute("training_mode", 0) or any(call.wanted(index) for index in range(1, len(call.outputs))):
        return "it is in training mode: export the model in eval mode"
    if call.attribute("spatial", 1) == 0:
        return "spatial=0 is not computed"
    value, epsilon = call.input(), float(call.attribute("epsilon", 1e-5))
    shape = (-1,) + (1,) * (len(value.shape) - 2) if len(value.shape) > 1 else (-1,)
    known = [call.constant(index) for index in range(1, 5)]
    if all(array is not None for array in known):
        scale, bias, mean, variance = (np.asarray(array, np.float64) for array in known)
        factor = scale / np.sqrt(variance + epsilon)
        dtype = value.dtype
        terms = [factor, bias - mean * factor]
        chain = Chain(
            [value, *(call.value(each.astype(dtype).reshape(shape)) for each in terms)], literals=False
        )
        chain("fma", 0, 1, 2)
    else:
        shape = (value.shape[1], *shape[1:]) if len(value.shape) > 1 else value.shape
        parts = [call.reshape(call.input(index), shape) for index in range(1, 5)]
        chain = Chain([value, *parts], literals=False)
        x, scale_, bias_, mean_, variance_ = chain.arguments
        deviation = chain("sqrt", chain("add", variance_, epsilon))
        chain("fma", chain("div", chain("sub", x, mean_), deviation), scale_, bias_)
    chain.add_to(call, call.output())
    return None


def _instance(call: Call) -> None:
    inputs: list[Value | None] = [call.input(0), call.input(1), call.input(2)]
    call.add("InstanceNormalization", inputs, call.output(), epsilon=float(call.attribute("epsilon", 1e-5)))


def _layer(call: Call) -> None:
    """Mean and InvStdDev, which training reads, are computed beside it."""
    value = call.input()
    axis = call.axis(int(call.attribute("axis", -1)), len(value.shape))
    if call.wanted(0):
        layer_norm(call, (value, call.input(1), call.optional(2)), axis, call.output())
    if call.wanted(1) or call.wanted(2):
        _statistics(call, value, tuple(range(axis, len(value.shape))))


def _statistics(call: Call, value: Value, axes: tuple[int, ...]) -> None:
    shape = tuple(1 if axis in axes else size for axis, size in enumerate(value.shape))
    mean = call.add("Reduce", [value], call.output(1) if call.wanted(1) else shape, kind="mean", axes=axes)
    if not call.wanted(2):
        return
    chain = Chain([value, mean], literals=False)
    distance = chain("sub", 0, 1)
    chain("mul", distance, distance)
    variance = call.add("Reduce", [chain.add_to(call, value.shape)], shape, kind="mean", axes=axes)
    chain = Chain([variance], literals=False)
    chain("reciprocal", chain("sqrt", chain("add", 0, float(call.attribute("epsilon", 1e-5)))))
    chain.add_to(call, call.output(2))


def layer_norm(call: Call, inputs: tuple[Value, Value, Value | None], axis: int, to: Value) -> None:
    """A LayerNormalization whose scale and bias have exactly the shape that is normalised."""
    value, scale, bias = inputs
    shape = value.shape[axis:]
    call.add(
        "LayerNormalization",
        [value, _spread(call, scale, shape), None if bias is None else _spread(call, bias, shape)],
        to,
        axis=axis,
        epsilon=float(call.attribute("epsilon", 1e-5)),
    )


def _spread(call: Call, value: Value, shape: tuple[int, ...]) -> Value:
    if value.shape == shape:
        return value
    if value.constant is not None:
        array = value.constant
        if array.ndim > len(shape):
            array = array.reshape(array.shape[array.ndim - len(shape) :])
        return call.value(np.ascontiguousarray(np.broadcast_to(array, shape)))
    if math.prod(value.shape) == math.prod(shape):
        return call.reshape(value, shape)
    return call.add("Expand", [value], shape)


def _softmax(call: Call) -> None:
    """Before version 13 all axes from the given one on are one."""
    value, rank = call.input(), len(call.input().shape)
    old = call.opset < 13
    axis = call.axis(int(call.attribute("axis", 1 if old else -1)), rank)
    log = call.op == "LogSoftmax"
    if not old or axis == rank - 1:
        call.add("Softmax", [value], call.output(), axis=axis, log=log)
        return
    flat = call.reshape(value, (math.prod(value.shape[:axis]), math.prod(value.shape[axis:])))
    call.reshape(call.add("Softmax", [flat], flat.shape, axis=1, log=log), call.output())


def _lrn(call: Call) -> None:
    call.add(
        "LRN",
        [call.input()],
        call.output(),
        size=int(call.attribute("size")),
        alpha=float(call.attribute("alpha", 1e-4)),
        beta=float(call.attribute("beta", 0.75)),
        bias=float(call.attribute("bias", 1.0)),
    )


OPERATORS = {
    "BatchNormalization": _batch,
    "InstanceNormalization": _instance,
    "LRN": _lrn,
    "LayerNormalization": _layer,
    "LogSoftmax": _softmax,
    "Softmax": _softmax,
}
