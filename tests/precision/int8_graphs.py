"""Small graphs around one operator each, for what int8 makes of it: x -> Conv "first" -> ... -> Conv "last" -> y."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
from fakes.models import model, value, weight
from onnx import helper

_node = helper.make_node


def _draw(*shape: int) -> np.ndarray:
    seed = int(np.dot(shape, np.arange(1, len(shape) + 1)))
    return np.random.default_rng(seed).normal(0, 0.5, shape).astype(np.float32)


def _integers(name: str, values: list[int]) -> onnx.TensorProto:
    return weight(name, np.array(values, np.int64))


def _between(
    nodes: list[onnx.NodeProto], weights: list[onnx.TensorProto] | None = None, channels: int = 4
) -> onnx.ModelProto:
    first = _node("Conv", ["x", "w_first"], ["a"], "first", pads=[1, 1, 1, 1])
    last = _node("Conv", ["b", "w_last"], ["y"], "last")
    own = [weight("w_first", _draw(4, 4, 3, 3)), weight("w_last", _draw(4, channels, 1, 1))]
    output = value("y", ["N", 4, None, None])
    return model([first, *nodes, last], [value("x", ["N", 4, 8, 8])], [output], own + (weights or []))


def _one(
    operator: str, weights: list[onnx.TensorProto] | None = None, **attributes: object
) -> onnx.ModelProto:
    names = [each.name for each in weights or []]
    return _between([_node(operator, ["a", *names], ["b"], "node", **attributes)], weights)


def _two(operator: str) -> onnx.ModelProto:
    second = _node("Conv", ["a", "w_second"], ["a2"], "second", pads=[1, 1, 1, 1])
    node = _node(operator, ["a", "a2"], ["b"], "node")
    return _between([second, node], [weight("w_second", _draw(4, 4, 3, 3))])


def _concat() -> onnx.ModelProto:
    return _between([_node("Concat", ["a", "x"], ["b"], "node", axis=1)], channels=8)


def _split() -> onnx.ModelProto:
    split = _node("Split", ["a"], ["s", "t"], "split", axis=1)
    return _between([split, _node("Concat", ["t", "s"], ["b"], "node", axis=1)])


def _resize(mode: str) -> onnx.ModelProto:
    node = _node("Resize", ["a", "", "scales"], ["b"], "node", mode=mode)
    return _between([node], [weight("scales", np.array([1, 1, 2, 2], np.float32))])


def _shapes() -> onnx.ModelProto:
    """Unsqueeze, Squeeze, Flatten, Reshape, Transpose, Slice and Gather in a row."""
    nodes = [
        _node("Unsqueeze", ["a", "axis"], ["a1"], "unsqueeze"),
        _node("Squeeze", ["a1", "axis"], ["a2"], "squeeze"),
        _node("Flatten", ["a2"], ["a3"], "flatten"),
        _node("Reshape", ["a3", "shape"], ["a4"], "reshape"),
        _node("Transpose", ["a4"], ["a5"], "transpose", perm=[0, 1, 3, 2]),
        _node("Slice", ["a5", "axis", "end", "two"], ["a6"], "slice"),
        _node("Gather", ["a6", "rows"], ["b"], "node", axis=3),
    ]
    numbers = {"axis": [1], "shape": [-1, 4, 8, 8], "end": [6], "two": [2], "rows": [1, 2, 5]}
    return _between(nodes, [_integers(name, values) for name, values in numbers.items()])


def _clip(low: float, high: float) -> onnx.ModelProto:
    return _one("Clip", [weight("low", np.float32(low)), weight("high", np.float32(high))])


def _convolution(dimensions: int) -> onnx.ModelProto:
    nodes = [_node("Conv", ["x", "w_first"], ["a"], "first"), _node("Conv", ["a", "w_last"], ["y"], "last")]
    weights = [weight(name, _draw(4, 4, *[3] * dimensions)) for name in ("w_first", "w_last")]
    sides = [None] * dimensions
    return model(nodes, [value("x", ["N", 4, *[7] * dimensions])], [value("y", ["N", 4, *sides])], weights)


def _gemm() -> onnx.ModelProto:
    nodes = [
        _node("Gemm", ["x", "w0", "b0"], ["a"], "first", alpha=0.5, beta=2.0, transB=1),
        _node("Relu", ["a"], ["r"], "relu"),
        _node("Gemm", ["r", "w1"], ["y"], "last"),
    ]
    weights = [weight("w0", _draw(12, 16)), weight("b0", _draw(12)), weight("w1", _draw(12, 8))]
    return model(nodes, [value("x", ["N", 16])], [value("y", ["N", 8])], weights)


def _gemm_transposed() -> onnx.ModelProto:
    node = _node("Gemm", ["x", "w0", "b0"], ["y"], "first", transA=1)
    weights = [weight("w0", _draw(7, 16)), weight("b0", _draw(1, 16))]
    return model([node], [value("x", [7, 5])], [value("y", [5, 16])], weights)


def _tokens() -> onnx.ModelProto:
    """Rank 3: MatMul, bias, Relu, MatMul."""
    nodes = [
        _node("MatMul", ["x", "w0"], ["m"], "first"),
        _node("Add", ["m", "b0"], ["a"], "bias"),
        _node("Relu", ["a"], ["r"], "relu"),
        _node("MatMul", ["r", "w1"], ["y"], "last"),
    ]
    weights = [weight("w0", _draw(16, 12)), weight("b0", _draw(12)), weight("w1", _draw(12, 8))]
    return model(nodes, [value("x", ["N", 6, 16])], [value("y", ["N", 6, 8])], weights)


def _batched() -> onnx.ModelProto:
    node = _node("MatMul", ["x", "w0"], ["y"], "first")
    return model([node], [value("x", [6, 5, 16])], [value("y", [6, 5, 8])], [weight("w0", _draw(6, 16, 8))])


def _weights_left() -> onnx.ModelProto:
    node = _node("MatMul", ["w0", "x"], ["y"], "first")
    return model([node], [value("x", ["N", 6, 5])], [value("y", ["N", 7, 5])], [weight("w0", _draw(7, 6))])


def attention(width: int = 16, heads: int = 4, tokens: int = 6) -> onnx.ModelProto:
    """One block: projections, scores, softmax, weighted values, output projection and the residual."""
    nodes, weights = [], [weight("scale", np.float32((width / heads) ** -0.5))]
    for each in "qkv":
        order = [0, 2, 3, 1] if each == "k" else [0, 2, 1, 3]
        nodes += [
            _node("MatMul", ["x", f"w_{each}"], [f"m_{each}"], f"project_{each}"),
            _node("Add", [f"m_{each}", f"b_{each}"], [f"p_{each}"], f"bias_{each}"),
            _node("Reshape", [f"p_{each}", "split"], [f"h_{each}"], f"heads_{each}"),
            _node("Transpose", [f"h_{each}"], [each], f"transpose_{each}", perm=order),
        ]
        weights += [weight(f"w_{each}", _draw(width, width)[:, ::-1]), weight(f"b_{each}", _draw(width))]
    nodes += [
        _node("MatMul", ["q", "k"], ["s"], "scores"),
        _node("Mul", ["s", "scale"], ["t"], "scaled"),
        _node("Softmax", ["t"], ["p"], "softmax", axis=-1),
        _node("MatMul", ["p", "v"], ["o"], "values"),
        _node("Transpose", ["o"], ["ot"], "transpose_o", perm=[0, 2, 1, 3]),
        _node("Reshape", ["ot", "join"], ["oj"], "join_heads"),
        _node("MatMul", ["oj", "w_o"], ["m_o"], "project_o"),
        _node("Add", ["m_o", "b_o"], ["po"], "bias_o"),
        _node("Add", ["po", "x"], ["y"], "residual"),
    ]
    weights += [weight("w_o", _draw(width, width)), weight("b_o", _draw(width))]
    weights += [_integers("split", [0, tokens, heads, width // heads]), _integers("join", [0, tokens, width])]
    return model(nodes, [value("x", ["N", tokens, width])], [value("y", ["N", tokens, width])], weights)


GRAPHS: dict[str, tuple[Callable[[], onnx.ModelProto], dict[str, int]]] = {
    "add": (lambda: _two("Add"), {"QLinearConv": 3, "QLinearAdd": 1}),
    "add a constant": (
        lambda: _one("Add", [weight("k", _draw(1, 4, 1, 1))]),
        {"QLinearConv": 2, "QLinearAdd": 1},
    ),
    "mul": (lambda: _two("Mul"), {"QLinearConv": 3, "QLinearMul": 1}),
    "concat": (_concat, {"QLinearConv": 2, "QLinearConcat": 1}),
    "average pool": (
        lambda: _one("AveragePool", kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2]),
        {"QLinearConv": 2, "QLinearAveragePool": 1},
    ),
    "global average pool": (
        lambda: _one("GlobalAveragePool"),
        {"QLinearConv": 2, "QLinearGlobalAveragePool": 1},
    ),
    "leaky relu": (lambda: _one("LeakyRelu", alpha=0.1), {"QLinearConv": 2, "QLinearLeakyRelu": 1}),
    "sigmoid": (lambda: _one("Sigmoid"), {"QLinearConv": 2, "QLinearSigmoid": 1}),
    "softmax": (lambda: _one("Softmax", axis=-1), {"QLinearConv": 2, "QLinearSoftmax": 1}),
    "max pool": (lambda: _one("MaxPool", kernel_shape=[2, 2]), {"QLinearConv": 2}),
    "identity": (lambda: _one("Identity"), {"QLinearConv": 2}),
    "dropout": (lambda: _one("Dropout"), {"QLinearConv": 2}),
    "relu": (lambda: _one("Relu"), {"QLinearConv": 2}),
    "clip at 0 and 1": (lambda: _clip(0, 1), {"QLinearConv": 2}),
    "clip at -1 and 1": (lambda: _clip(-1, 1), {"QLinearConv": 2}),
    "shapes": (_shapes, {"QLinearConv": 2, "Gather": 1}),
    "split": (_split, {"QLinearConv": 2, "Split": 1, "QLinearConcat": 1}),
    "resize nearest": (lambda: _resize("nearest"), {"QLinearConv": 2, "Resize": 1}),
    "depthwise": (
        lambda: _one("Conv", [weight("w", _draw(4, 1, 3, 3))], group=4, pads=[1, 1, 1, 1]),
        {"QLinearConv": 3},
    ),
    "grouped and dilated": (
        lambda: _one("Conv", [weight("w", _draw(4, 2, 3, 3))], group=2, pads=[2, 2, 2, 2], dilations=[2, 2]),
        {"QLinearConv": 3},
    ),
    "1-d": (lambda: _convolution(1), {"QLinearConv": 2}),
    "3-d": (lambda: _convolution(3), {"QLinearConv": 2}),
    "gemm": (_gemm, {"QGemm": 2}),
    "gemm of a transposed input": (_gemm_transposed, {"QGemm": 1}),
    "matmul of tokens": (_tokens, {"MatMulIntegerToFloat": 2}),
    "batched matmul": (_batched, {"MatMulIntegerToFloat": 1}),
    "weights on the left": (_weights_left, {"MatMulIntegerToFloat": 1}),
    "attention": (
        attention,
        {"MatMulIntegerToFloat": 4, "QLinearMatMul": 2, "QLinearMul": 1, "QLinearSoftmax": 1},
    ),
}
"""Graph, and the int8 kernels that ONNX Runtime's CPU provider makes of it."""

FLOAT: dict[str, Callable[[], onnx.ModelProto]] = {
    "transposed convolution": lambda: _one("ConvTranspose", [weight("w", _draw(4, 4, 2, 2))], strides=[2, 2]),
    "resize linear": lambda: _resize("linear"),
}
"""Graphs with a node in the middle that stays float on the CPU."""
