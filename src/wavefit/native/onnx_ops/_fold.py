"""Nodes that work on constants alone: computed once, by onnx's reference."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from wavefit.model.graph import DEFAULT_DOMAINS
from wavefit.native.graph import Value
from wavefit.native.onnx_ops._infer import Type

if TYPE_CHECKING:
    import onnx_ir as ir

_SMALL = 1 << 16  # elements that a constant may grow to
_LARGEST = 1 << 27  # elements of a weight that is turned into another of its size
_RUN_BY_KERNELS = frozenset(  # slow in the reference, or no function of their inputs
    [
        "Conv",
        "ConvTranspose",
        "ConvInteger",
        "QLinearConv",
        "DeformConv",
        "MaxPool",
        "AveragePool",
        "LpPool",
        "Resize",
        "Upsample",
        "LRN",
        "LSTM",
        "GRU",
        "RNN",
        "GridSample",
        "RoiAlign",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
        "Bernoulli",
        "Multinomial",
    ]
)
_OF_UNKNOWN_SIZE = frozenset(("NonZero", "Unique", "Compress", "NonMaxSuppression", "StringSplit"))

# what onnx's reference raises on values that an operator does not take
_REFUSALS = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
    NotImplementedError,
)


def fold(
    node: ir.Node, inputs: Sequence[Value | None], types: Sequence[Type | None], opset: int
) -> list[np.ndarray] | None:
    """The outputs as arrays; None where they are not known, or where too much would be made of too little."""
    if node.domain not in DEFAULT_DOMAINS:
        return None
    if node.op_type in ("Shape", "Size") and inputs[0] is not None:
        return [_measured(node, inputs[0].shape)]
    if not all(value is None or value.constant is not None for value in inputs):
        return None
    arrays = [value.constant for value in inputs if value is not None and value.constant is not None]
    repeated = _repeated(node, arrays, types)
    if repeated is not None:
        return [repeated]
    if node.op_type in _RUN_BY_KERNELS or not _bounded(node.op_type, arrays, types):
        return None
    return _evaluate(node, inputs, opset)


def _measured(node: ir.Node, shape: tuple[int, ...]) -> np.ndarray:
    if node.op_type == "Size":
        return np.array(math.prod(shape), np.int64)
    start, end = (
        node.attributes[name].as_int() if name in node.attributes else None for name in ("start", "end")
    )
    return np.array(shape[start:end], np.int64)


def _repeated(node: ir.Node, arrays: Sequence[np.ndarray], types: Sequence[Type | None]) -> np.ndarray | None:
    """ConstantOfShape and Expand take no memory here, however large."""
    if types[0] is None or node.op_type not in ("ConstantOfShape", "Expand"):
        return None
    shape, dtype = types[0]
    if node.op_type == "Expand":
        return np.broadcast_to(arrays[0], shape)
    value = node.attributes["value"].as_tensor().numpy() if "value" in node.attributes else np.zeros(1, dtype)
    return np.broadcast_to(value.reshape(()), shape)


def _bounded(op: str, arrays: Sequence[np.ndarray], types: Sequence[Type | None]) -> bool:
    given = sum(array.size for array in arrays)
    if any(kind is None for kind in types):
        return op in _OF_UNKNOWN_SIZE and given <= _SMALL
    made = sum(math.prod(kind[0]) for kind in types if kind is not None)
    return made <= _SMALL or (made <= 2 * given and made <= _LARGEST)


def _evaluate(node: ir.Node, inputs: Sequence[Value | None], opset: int) -> list[np.ndarray] | None:
    import onnx
    import onnx_ir as ir
    from onnx.reference import ReferenceEvaluator

    feeds = {
        str(given.name): value.constant
        for given, value in zip(node.inputs, inputs, strict=True)
        if given is not None and value is not None
    }
    graph = onnx.helper.make_graph(
        [ir.to_proto(node)],
        "constant",
        [onnx.ValueInfoProto(name=name) for name in feeds],
        [onnx.ValueInfoProto(name=str(value.name)) for value in node.outputs if value.name],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
    try:
        with np.errstate(all="ignore"):
            made = iter(ReferenceEvaluator(model).run(None, feeds))
    except _REFUSALS:
        return None
    found = [np.asarray(next(made) if value.name else 0) for value in node.outputs]
    return found if all(array.dtype != object for array in found) else None
