"""A graph's answers in float64 by numpy: its operators as plainly as they are defined."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wavefit.native.graph import Graph, Node, Value
from wavefit.native.pointwise import Pointwise

Array = np.ndarray

FUNCTIONS: dict[str, Callable[..., Array]] = {
    "copy": lambda x: x,
    "cast": lambda x: x,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "neg": np.negative,
    "pow": np.power,
    "sqrt": np.sqrt,
    "reciprocal": np.reciprocal,
    "exp": np.exp,
    "tanh": np.tanh,
    "erf": np.vectorize(math.erf, otypes=[np.float64]),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "softplus": lambda x: np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0),
    "relu": lambda x: np.maximum(x, 0),
    "clip": np.clip,
    "round": np.rint,
    "greater": np.greater,
    "not": np.logical_not,
    "isnan": np.isnan,
    "where": np.where,
}


def evaluate(graph: Graph, feeds: dict[str, Array]) -> list[Array]:
    """The outputs for inputs by name; every value's shape is checked against what the graph says."""
    known: dict[Value, Array] = {value: widened(feeds[value.name]) for value in graph.inputs}

    def of(value: Value | None) -> Any:
        if value is None:
            return None
        return known[value] if value.constant is None else widened(value.constant)

    for node in graph.nodes:
        inputs = [of(value) for value in node.inputs]
        results = _run(node, inputs)
        for value, array in zip(node.outputs, results, strict=True):
            assert array.shape == value.shape, (node.op, node.name, array.shape, value.shape)
            known[value] = array
    return [of(value) for value in graph.outputs]


def widened(array: Array) -> Array:
    return array.astype(np.float64) if array.dtype.kind == "f" else array


def expression(pointwise: Pointwise, operands: Sequence[Array]) -> Array:
    known: list[Any] = list(operands)
    for step in pointwise.steps:
        made = FUNCTIONS[step.function](*(a if isinstance(a, float) else known[a] for a in step.arguments))
        kind = np.float64 if step.dtype in ("float32", "float16") else np.dtype(step.dtype)
        known.append(np.asarray(made).astype(kind))
    return known[-1] if pointwise.steps else known[0]


def _run(node: Node, inputs: list[Any]) -> list[Array]:
    own, operands = inputs[: node.own], inputs[node.own :]
    if node.op == "Pointwise":
        assert node.epilogue is not None
        return [np.array(np.broadcast_to(expression(node.epilogue, operands), node.output.shape))]
    if "zero_point" in node.attributes:
        own = [own[0] - float(node.attributes["zero_point"]), *own[1:]]
    result = OPERATORS[node.op](node, *own)
    if node.epilogue is not None:
        result = np.broadcast_to(expression(node.epilogue, [result, *operands]), node.output.shape)
    return [np.asarray(result)]


def _windows(x: Array, node: Node, kernel: Sequence[int], fill: float) -> Array:
    """The elements under each window: (N, C, positions..., kernel...)."""
    a, rank = node.attributes, len(kernel)
    pads, space = a["pads"], node.output.shape[2:]
    reach = [(size - 1) * d + 1 for size, d in zip(kernel, a["dilations"], strict=True)]
    wide = [
        max(0, (n - 1) * s + r - x.shape[2 + i] - pads[i])
        for i, (n, s, r) in enumerate(zip(space, a["strides"], reach, strict=True))
    ]
    around = [(0, 0), (0, 0), *((pads[i], max(wide[i], pads[rank + i])) for i in range(rank))]
    padded = np.pad(x, around, constant_values=fill)
    made = np.empty((*x.shape[:2], *space, *kernel))
    for tap in itertools.product(*map(range, kernel)):
        places = tuple(
            slice(t * d, t * d + (n - 1) * s + 1, s)
            for t, d, n, s in zip(tap, a["dilations"], space, a["strides"], strict=True)
        )
        made[(..., *tap)] = padded[(slice(None), slice(None), *places)]
    return made


def _conv(node: Node, x: Array, w: Array, bias: Array | None = None) -> Array:
    group, rank = node.attributes["group"], w.ndim - 2
    taken = _windows(x, node, w.shape[2:], 0.0)
    per, out = w.shape[1], w.shape[0] // group
    parts = []
    for g in range(group):
        window = np.moveaxis(taken[:, g * per : (g + 1) * per], 1, 1 + rank)
        axes = (tuple(range(1 + rank, 2 + 2 * rank)), tuple(range(1, 2 + rank)))
        parts.append(np.moveaxis(np.tensordot(window, w[g * out : (g + 1) * out], axes), -1, 1))
    y = np.concatenate(parts, axis=1)
    return y if bias is None else y + bias.reshape(-1, *(1,) * rank)


def _conv_transpose(node: Node, x: Array, w: Array, bias: Array | None = None) -> Array:
    """Two spatial axes; each input element adds its multiple of the kernel."""
    a = node.attributes
    y = np.zeros(tuple(n + p for n, p in zip(node.output.shape, (0, 0, 64, 64), strict=True)))
    per, out = x.shape[1] // a["group"], w.shape[1]
    for n, c, i, j in np.ndindex(x.shape):
        g = c // per
        for u, v in np.ndindex(w.shape[2:]):
            row, column = (
                i * a["strides"][0] + u * a["dilations"][0],
                j * a["strides"][1] + v * a["dilations"][1],
            )
            y[n, g * out : (g + 1) * out, row, column] += x[n, c, i, j] * w[c, :, u, v]
    top, left = a["pads"][:2]
    y = y[:, :, top : top + node.output.shape[2], left : left + node.output.shape[3]]
    return y if bias is None else y + bias.reshape(-1, 1, 1)


def _max_pool(node: Node, x: Array) -> Array:
    kernel = node.attributes["kernel_shape"]
    least = np.iinfo(x.dtype).min if x.dtype.kind in "iu" else -np.inf
    return _windows(x, node, kernel, least).max(axis=tuple(range(-len(kernel), 0)))


def _average_pool(node: Node, x: Array) -> Array:
    kernel = node.attributes["kernel_shape"]
    axes = tuple(range(-len(kernel), 0))
    mask = np.ones(x.shape)
    if node.attributes["count_include_pad"]:
        half, pads = len(kernel), node.attributes["pads"]
        around = [(0, 0), (0, 0), *((pads[i], pads[half + i]) for i in range(half))]
        x, mask = np.pad(x, around), np.ones([n + sum(p) for n, p in zip(x.shape, around, strict=True)])
        node = Node(node.op, node.name, [], node.outputs, {**node.attributes, "pads": (0,) * len(pads)})
    return _windows(x, node, kernel, 0.0).sum(axis=axes) / _windows(mask, node, kernel, 0.0).sum(axis=axes)


def _reduce(node: Node, x: Array) -> Array:
    kind = node.attributes["kind"]
    function = {"sum": np.sum, "mean": np.mean, "max": np.max}[kind]
    return np.asarray(function(x, axis=tuple(node.attributes["axes"]))).reshape(node.output.shape)


def _softmax(node: Node, x: Array) -> Array:
    axis = node.attributes["axis"]
    with np.errstate(invalid="ignore"):
        powers = np.exp(x - x.max(axis=axis, keepdims=True))
    return powers / powers.sum(axis=axis, keepdims=True)


def _layer_norm(node: Node, x: Array, scale: Array, bias: Array | None = None) -> Array:
    axes = tuple(range(node.attributes["axis"], x.ndim))
    d = x - x.mean(axis=axes, keepdims=True)
    y = d / np.sqrt((d * d).mean(axis=axes, keepdims=True) + node.attributes["epsilon"]) * scale
    return y if bias is None else y + bias


def _attention(node: Node, q: Array, k: Array, v: Array, mask: Array | None = None) -> Array:
    scores = node.attributes["scale"] * (q @ np.swapaxes(k, -1, -2))
    scores = scores if mask is None else scores + mask
    with np.errstate(invalid="ignore"):
        powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return (powers / powers.sum(axis=-1, keepdims=True)) @ v


def _pad(node: Node, x: Array) -> Array:
    pads = node.attributes["pads"]
    around = list(zip(pads[: x.ndim], pads[x.ndim :], strict=True))
    return np.pad(x, around, constant_values=node.attributes["value"])


def _slice(node: Node, x: Array) -> Array:
    a = node.attributes
    for axis, (start, step, size) in enumerate(zip(a["starts"], a["steps"], node.output.shape, strict=True)):
        x = np.take(x, start + step * np.arange(size), axis=axis)
    return x


OPERATORS: dict[str, Callable[..., Array]] = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "MatMul": lambda node, a, b: a @ b,
    "MaxPool": _max_pool,
    "AveragePool": _average_pool,
    "Reduce": _reduce,
    "Softmax": _softmax,
    "LayerNormalization": _layer_norm,
    "Attention": _attention,
    "Pad": _pad,
    "Slice": _slice,
    "Reshape": lambda node, x: x.reshape(node.output.shape),
    "Transpose": lambda node, x: x.transpose(node.attributes["perm"]),
    "Expand": lambda node, x: np.broadcast_to(x, node.output.shape),
    "Concat": lambda node, *parts: np.concatenate(parts, axis=node.attributes["axis"]),
    "Copy": lambda node, x: x,
}
