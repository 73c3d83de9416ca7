"""The engine's graph in numpy, in float64: what passes and kernels are tested against.

Written from ONNX's definitions, with nothing taken from the engine but its records. Floats are never rounded on the
way, integers and bool keep their types.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from native import interpret_images, interpret_index
from native.interpret_functions import FUNCTIONS

from wavefit.native.graph import Graph, Node, Value
from wavefit.native.operation import Operation
from wavefit.native.pointwise import Pointwise

Array = np.ndarray


def run(graph: Graph, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs by name; floats as float64."""
    outputs = zip(graph.outputs, evaluate(graph, inputs), strict=True)
    return {value.name: array for value, array in outputs if array is not None}


def evaluate(graph: Graph, inputs: Mapping[str, Array]) -> list[Any]:
    """The outputs in order; floats as float64."""
    known: dict[Value, Array] = {value: as_exact(inputs[value.name]) for value in graph.inputs}

    def get(value: Value | None) -> Array | None:
        if value is None or value in known:
            return None if value is None else known[value]
        assert value.constant is not None, f"{value.name} is read before it is made"
        return as_exact(value.constant)

    for node in graph.nodes:
        known.update(zip(node.outputs, compute(node, [get(value) for value in node.inputs]), strict=True))
    return [get(value) for value in graph.outputs]


def as_exact(array: Array) -> Array:
    """Floats as float64, the rest as it is."""
    return array.astype(np.float64) if array.dtype.kind == "f" else array


def compute(node: Node | Operation, inputs: Sequence[Array | None]) -> list[Array]:
    """A node's outputs, its epilogue applied.

    Args:
        node: of it, its operator, attributes, epilogue, and the shapes and types of its outputs count.
        inputs: its own, then those of the epilogue.
    """
    exact = [None if array is None else as_exact(np.asarray(array)) for array in inputs]
    shapes = [tuple(output.shape) for output in node.outputs]
    with np.errstate(all="ignore"):
        if node.op == "Pointwise":
            assert node.epilogue is not None
            results = [pointwise(node.epilogue, exact)]
        else:
            results = [_OPERATORS[node.op](node.attributes, _centred(node, exact[: node.own]), shapes[0])]
            if node.epilogue is None:
                assert results[0].shape == shapes[0], (node.op, results[0].shape, shapes[0])
            else:
                results = [pointwise(node.epilogue, [results[0], *exact[node.own :]])]
    results = [np.broadcast_to(result, shape) for result, shape in zip(results, shapes, strict=True)]
    return [_typed(array, output.dtype) for array, output in zip(results, node.outputs, strict=True)]


def _centred(node: Node | Operation, own: list[Any]) -> list[Any]:
    """The inputs of a product of integers, the first without its zero point."""
    zero = node.attributes.get("zero_point")
    return own if zero is None else [own[0] - float(zero), *own[1:]]


def _typed(array: Array, dtype: str) -> Array:
    return (
        array if np.dtype(dtype).kind == "f" and array.dtype == np.float64 else as_exact(array.astype(dtype))
    )


def pointwise(expression: Pointwise, operands: Sequence[Array | None]) -> Array:
    """An expression over operands that broadcast."""
    assert len(operands) == expression.operands
    known = list(operands)
    for step in expression.steps:
        kind = np.float64 if np.dtype(step.dtype).kind == "f" else np.dtype(step.dtype)
        arguments = [
            np.asarray(each, kind) if isinstance(each, float) else known[each] for each in step.arguments
        ]
        known.append(np.asarray(FUNCTIONS[step.function](*arguments)).astype(kind))
    result = known[-1]
    assert result is not None
    return result


# ---- operators: each takes attributes, its own inputs, and the output's shape ----------------------------------------


def _matmul(_: dict[str, Any], inputs: Sequence[Any], __: tuple[int, ...]) -> Array:
    return np.matmul(inputs[0], inputs[1])


def _reduce(attributes: dict[str, Any], inputs: Sequence[Any], shape: tuple[int, ...]) -> Array:
    x, axes, kind = inputs[0], tuple(attributes["axes"]), attributes["kind"]
    whole = x.dtype.kind != "f"
    sums = x.dtype if whole else None
    by_kind = {
        "sum": lambda: x.sum(axes, dtype=sums),
        "mean": lambda: x.mean(axes),
        "max": lambda: x.max(axes),
        "min": lambda: x.min(axes),
        "prod": lambda: x.prod(axes, dtype=sums),
        "l1": lambda: np.abs(x).sum(axes, dtype=sums),
        "l2": lambda: np.sqrt((x * x).sum(axes, dtype=sums)),
        "sumsquare": lambda: (x * x).sum(axes, dtype=sums),
        "logsum": lambda: np.log(x.sum(axes)),
        "logsumexp": lambda: np.logaddexp.reduce(_flat(x, axes), -1),
    }
    return np.asarray(by_kind[kind]()).reshape(shape)


def _flat(x: Array, axes: tuple[int, ...]) -> Array:
    """Those axes as one, the last."""
    kept = [axis for axis in range(x.ndim) if axis not in axes]
    return x.transpose(*kept, *axes).reshape(*(x.shape[axis] for axis in kept), -1)


def _softmax(attributes: dict[str, Any], inputs: Sequence[Any], _: tuple[int, ...]) -> Array:
    return softmax(inputs[0], attributes["axis"], bool(attributes.get("log", False)))


def softmax(x: Array, axis: int, log: bool = False) -> Array:
    shifted = x - np.nan_to_num(x.max(axis, keepdims=True), neginf=0.0)
    total = np.exp(shifted).sum(axis, keepdims=True)
    return shifted - np.log(total) if log else np.exp(shifted) / total


def _layer_norm(attributes: dict[str, Any], inputs: Sequence[Any], _: tuple[int, ...]) -> Array:
    x, scale, bias = inputs
    axes = tuple(range(attributes["axis"] % x.ndim, x.ndim))
    return _standard(x, axes, attributes["epsilon"]) * scale + (0.0 if bias is None else bias)


def _instance_norm(attributes: dict[str, Any], inputs: Sequence[Any], _: tuple[int, ...]) -> Array:
    x, scale, bias = inputs
    shape = (-1,) + (1,) * (x.ndim - 2)
    normal = _standard(x, tuple(range(2, x.ndim)), attributes["epsilon"])
    return normal * scale.reshape(shape) + bias.reshape(shape)


def _standard(x: Array, axes: tuple[int, ...], epsilon: float) -> Array:
    centred = x - x.mean(axes, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(axes, keepdims=True) + epsilon)


def _lrn(attributes: dict[str, Any], inputs: Sequence[Any], _: tuple[int, ...]) -> Array:
    x, size = inputs[0], attributes["size"]
    before, squares = (size - 1) // 2, inputs[0] ** 2
    sums = np.stack(
        [squares[:, max(c - before, 0) : c - before + size].sum(1) for c in range(x.shape[1])], axis=1
    )
    return x / (attributes["bias"] + attributes["alpha"] / size * sums) ** attributes["beta"]


def _attention(attributes: dict[str, Any], inputs: Sequence[Any], _: tuple[int, ...]) -> Array:
    """Softmax of the scaled and masked products; a row that the mask leaves nothing of is 0."""
    q, k, v = inputs[:3]
    mask = inputs[3] if len(inputs) > 3 and inputs[3] is not None else 0.0
    scores = np.matmul(q, np.swapaxes(k, -1, -2)) * attributes["scale"] + mask
    nothing = np.isneginf(scores).all(-1, keepdims=True)
    return np.matmul(np.where(nothing, 0.0, softmax(scores, -1)), v)


def _copy(_: dict[str, Any], inputs: Sequence[Any], __: tuple[int, ...]) -> Array:
    return inputs[0]


def _concat(attributes: dict[str, Any], inputs: Sequence[Any], _: tuple[int, ...]) -> Array:
    return np.concatenate(list(inputs), attributes["axis"])


def _reshape(_: dict[str, Any], inputs: Sequence[Any], shape: tuple[int, ...]) -> Array:
    return inputs[0].reshape(shape)


def _transpose(attributes: dict[str, Any], inputs: Sequence[Any], _: tuple[int, ...]) -> Array:
    return inputs[0].transpose(attributes["perm"])


def _slice(attributes: dict[str, Any], inputs: Sequence[Any], shape: tuple[int, ...]) -> Array:
    for axis, (start, step, size) in enumerate(
        zip(attributes["starts"], attributes["steps"], shape, strict=True)
    ):
        inputs = [inputs[0].take(start + step * np.arange(size), axis)]
    return inputs[0]


def _expand(_: dict[str, Any], inputs: Sequence[Any], shape: tuple[int, ...]) -> Array:
    return np.broadcast_to(inputs[0], shape)


_OPERATORS = {
    **interpret_images.OPERATORS,
    **interpret_index.OPERATORS,
    "Attention": _attention,
    "Concat": _concat,
    "Copy": _copy,
    "Expand": _expand,
    "InstanceNormalization": _instance_norm,
    "LRN": _lrn,
    "LayerNormalization": _layer_norm,
    "MatMul": _matmul,
    "Reduce": _reduce,
    "Reshape": _reshape,
    "Slice": _slice,
    "Softmax": _softmax,
    "Transpose": _transpose,
}
