"""What operations should give, in numpy and float64: the reference of the self-test.

Each function takes the operation's attributes, its own inputs and the output's shape; ONNX's meaning throughout.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wavefit.native.operation import Operation

Array = np.ndarray
Compute = Callable[[dict[str, Any], Sequence[Any], tuple[int, ...]], Array]

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "max": np.maximum,
    "min": np.minimum,
    "relu": lambda x: np.maximum(x, 0),
    "clip": np.clip,
    "round": np.rint,
    "cast": lambda x: x,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "erf": np.vectorize(math.erf, otypes=[np.float64]),
}


def compute(operation: Operation, inputs: Sequence[Array | None]) -> Array:
    """The output of an operation with one output, epilogue included."""
    exact = [
        each.astype(np.float64) if each is not None and each.dtype.kind == "f" else each for each in inputs
    ]
    shape = operation.output.shape
    if operation.op == "Pointwise":
        return _expression(operation, exact, shape)
    own = _COMPUTE[operation.op](operation.attributes, exact[: operation.own], shape)
    if operation.epilogue is None:
        return own
    return _expression(operation, [own, *exact[operation.own :]], shape)


def _expression(operation: Operation, operands: list[Any], shape: tuple[int, ...]) -> Array:
    assert operation.epilogue is not None
    known = [np.asarray(each, np.float64) for each in operands]
    for step in operation.epilogue.steps:
        arguments = (known[each] if isinstance(each, int) else each for each in step.arguments)
        value = FUNCTIONS[step.function](*arguments)
        integral = step.function == "cast" and np.dtype(step.dtype).kind in "iu"
        known.append(np.trunc(value) if integral else value)
    return np.broadcast_to(known[-1], shape)


def _taps(
    x: Array, kernel: tuple[int, ...], attributes: dict[str, Any], out: tuple[int, ...], fill: float
) -> list[tuple[tuple[int, ...], Array]]:
    """For each place in the kernel, the padded input's elements that it meets: (N, C, out...)."""
    rank, pads = len(kernel), attributes["pads"]
    ends = [max(pads[rank + axis], 0) for axis in range(rank)]
    width = [(0, 0), (0, 0), *((pads[axis], ends[axis]) for axis in range(rank))]
    padded = np.pad(x, width, constant_values=fill)
    taps = []
    for place in itertools.product(*(range(k) for k in kernel)):
        cut = [slice(None), slice(None)]
        for axis, k in enumerate(place):
            start, step = k * attributes["dilations"][axis], attributes["strides"][axis]
            cut.append(slice(start, start + step * (out[axis] - 1) + 1, step))
        taps.append((place, padded[tuple(cut)]))
    return taps


def _at(weights: Array, place: tuple[int, ...]) -> Array:
    """The matrix of channels at one place in the kernel."""
    index: tuple[Any, ...] = (slice(None), slice(None), *place)
    return np.asarray(weights[index])


def _conv(attributes: dict[str, Any], inputs: Sequence[Any], shape: tuple[int, ...]) -> Array:
    x, w, bias = (*inputs, None)[:3]
    x, w = _exact(attributes, x), _exact({}, w)
    group, outs, ins = attributes["group"], w.shape[0] // attributes["group"], w.shape[1]
    y = np.zeros(shape)
    for place, seen in _taps(x, w.shape[2:], attributes, shape[2:], 0.0):
        weights = _at(w, place)
        for g in range(group):
            part = np.einsum(
                "oi,ni...->no...", weights[g * outs : (g + 1) * outs], seen[:, g * ins : (g + 1) * ins]
            )
            y[:, g * outs : (g + 1) * outs] += part
    return y if bias is None else y + bias.reshape(-1, *(1,) * (len(shape) - 2))


def _conv_transpose(attributes: dict[str, Any], inputs: Sequence[Any], shape: tuple[int, ...]) -> Array:
    """Of one group: each input element is spread over the output."""
    x, w, bias = inputs
    pads, strides = attributes["pads"], attributes["strides"]
    rank = len(shape) - 2
    reach = [
        (x.shape[2 + axis] - 1) * strides[axis] + (w.shape[2 + axis] - 1) * attributes["dilations"][axis] + 1
        for axis in range(rank)
    ]
    whole = np.zeros((*shape[:2], *(max(r, shape[2 + a] + pads[a]) for a, r in enumerate(reach))))
    for place in itertools.product(*(range(k) for k in w.shape[2:])):
        cut = [slice(None), slice(None)]
        for axis, k in enumerate(place):
            start = k * attributes["dilations"][axis]
            cut.append(slice(start, start + strides[axis] * (x.shape[2 + axis] - 1) + 1, strides[axis]))
        whole[tuple(cut)] += np.einsum("io,ni...->no...", _at(w, place), x)
    inside = (slice(pads[axis], pads[axis] + shape[2 + axis]) for axis in range(rank))
    index: tuple[Any, ...] = (slice(None), slice(None), *inside)
    y = whole[index]
    return y if bias is None else y + bias.reshape(-1, *(1,) * rank)


def _matmul(attributes: dict[str, Any], inputs: Sequence[Any], _: tuple[int, ...]) -> Array:
    return np.asarray(_exact(attributes, inputs[0]) @ _exact({}, inputs[1]))


def _exact(attributes: dict[str, Any], x: Array) -> Array:
    """Small integers less their zero point, in a type that holds their sums; floats as they are."""
    return x.astype(np.float64) - attributes.get("zero_point", 0) if x.dtype.kind in "iu" else x


def _max_pool(attributes: dict[str, Any], inputs: Sequence[Any], shape: tuple[int, ...]) -> Array:
    taps = _taps(inputs[0], attributes["kernel_shape"], attributes, shape[2:], -np.inf)
    return np.max([seen for _, seen in taps], axis=0)


def _average_pool(attributes: dict[str, Any], inputs: Sequence[Any], shape: tuple[int, ...]) -> Array:
    kernel = attributes["kernel_shape"]
    total = sum(seen for _, seen in _taps(inputs[0], kernel, attributes, shape[2:], 0.0))
    if attributes["count_include_pad"]:
        return np.asarray(total / math.prod(kernel))
    ones = np.ones_like(inputs[0])
    return np.asarray(total / sum(seen for _, seen in _taps(ones, kernel, attributes, shape[2:], 0.0)))


def _reduce(attributes: dict[str, Any], inputs: Sequence[Any], shape: tuple[int, ...]) -> Array:
    kinds: dict[str, Callable[..., Any]] = {
        "sum": np.sum,
        "mean": np.mean,
        "max": np.max,
        "l2": lambda x, axis: np.sqrt(np.sum(x * x, axis=axis)),
    }
    return np.asarray(kinds[attributes["kind"]](inputs[0], axis=tuple(attributes["axes"]))).reshape(shape)


def _softmax(attributes: dict[str, Any], inputs: Sequence[Any], _: tuple[int, ...]) -> Array:
    axis = attributes["axis"]
    moved = inputs[0] - inputs[0].max(axis=axis, keepdims=True)
    total = np.exp(moved).sum(axis=axis, keepdims=True)
    return np.asarray(moved - np.log(total) if attributes["log"] else np.exp(moved) / total)


def _standard(x: Array, axes: tuple[int, ...], epsilon: float) -> Array:
    centred = x - x.mean(axis=axes, keepdims=True)
    return np.asarray(centred / np.sqrt((centred**2).mean(axis=axes, keepdims=True) + epsilon))


def _layer_norm(attributes: dict[str, Any], inputs: Sequence[Any], _: tuple[int, ...]) -> Array:
    x, scale, bias = inputs
    return _standard(x, tuple(range(attributes["axis"], x.ndim)), attributes["epsilon"]) * scale + bias


def _instance_norm(attributes: dict[str, Any], inputs: Sequence[Any], _: tuple[int, ...]) -> Array:
    x, scale, bias = inputs
    side = (-1, *(1,) * (x.ndim - 2))
    axes = tuple(range(2, x.ndim))
    return _standard(x, axes, attributes["epsilon"]) * scale.reshape(side) + bias.reshape(side)


def _copy(_: dict[str, Any], inputs: Sequence[Any], __: tuple[int, ...]) -> Array:
    return np.asarray(inputs[0])


def _gather(attributes: dict[str, Any], inputs: Sequence[Any], _: tuple[int, ...]) -> Array:
    return np.take(inputs[0], inputs[1], axis=attributes["axis"])


def _gather_nd(_: dict[str, Any], inputs: Sequence[Any], __: tuple[int, ...]) -> Array:
    """Without batch axes."""
    return np.asarray(inputs[0][tuple(np.moveaxis(inputs[1], -1, 0))])


def _scatter_nd(_: dict[str, Any], inputs: Sequence[Any], __: tuple[int, ...]) -> Array:
    """Without a reduction: places are all different."""
    result = np.array(inputs[0])
    result[tuple(np.moveaxis(inputs[1], -1, 0))] = inputs[2]
    return result


def _cumsum(attributes: dict[str, Any], inputs: Sequence[Any], _: tuple[int, ...]) -> Array:
    """Forward and inclusive."""
    return np.cumsum(inputs[0], attributes["axis"])


def _attention(attributes: dict[str, Any], inputs: Sequence[Any], shape: tuple[int, ...]) -> Array:
    q, k, v, mask = inputs
    scores = (q @ np.swapaxes(k, -1, -2)) * attributes["scale"] + (0.0 if mask is None else mask)
    return np.asarray(_softmax({"axis": -1, "log": False}, [scores], shape) @ v)


def _pad(attributes: dict[str, Any], inputs: Sequence[Any], _: tuple[int, ...]) -> Array:
    x, pads, mode = inputs[0], attributes["pads"], attributes["mode"]
    widths = [(pads[axis], pads[x.ndim + axis]) for axis in range(x.ndim)]
    if mode == "constant":
        return np.pad(x, widths, constant_values=attributes["value"])
    return np.pad(x, widths, mode=mode)


def _resize(attributes: dict[str, Any], inputs: Sequence[Any], shape: tuple[int, ...]) -> Array:
    """Nearest by the floor of x / scale ("asymmetric"), linear by half pixels; axis after axis."""
    y = inputs[0]
    for axis, (new, scale) in enumerate(zip(shape, attributes["scales"], strict=True)):
        old = y.shape[axis]
        if new == old:
            continue
        if attributes["mode"] == "nearest":
            y = y.take(np.minimum((np.arange(new) / scale).astype(int), old - 1), axis)
            continue
        at, known = (np.arange(new) + 0.5) / scale - 0.5, np.arange(old)
        lines = np.moveaxis(y, axis, -1)
        flat = [np.interp(at, known, line) for line in lines.reshape(-1, old)]
        y = np.moveaxis(np.reshape(flat, (*lines.shape[:-1], new)), -1, axis)
    return np.asarray(y)


def _arg_max(attributes: dict[str, Any], inputs: Sequence[Any], shape: tuple[int, ...]) -> Array:
    return np.asarray(inputs[0].argmax(attributes["axis"])).reshape(shape)


def _lrn(attributes: dict[str, Any], inputs: Sequence[Any], _: tuple[int, ...]) -> Array:
    x, size = inputs[0], attributes["size"]
    before = (size - 1) // 2
    near = [(x[:, max(c - before, 0) : c - before + size] ** 2).sum(1) for c in range(x.shape[1])]
    scale = attributes["bias"] + attributes["alpha"] / size * np.stack(near, axis=1)
    return np.asarray(x / scale ** attributes["beta"])


_COMPUTE: dict[str, Compute] = {
    "Pad": _pad,
    "Resize": _resize,
    "ArgMax": _arg_max,
    "LRN": _lrn,
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "MatMul": _matmul,
    "MaxPool": _max_pool,
    "AveragePool": _average_pool,
    "Reduce": _reduce,
    "Softmax": _softmax,
    "LayerNormalization": _layer_norm,
    "InstanceNormalization": _instance_norm,
    "Copy": _copy,
    "CumSum": _cumsum,
    "Gather": _gather,
    "GatherND": _gather_nd,
    "ScatterND": _scatter_nd,
    "Attention": _attention,
}
