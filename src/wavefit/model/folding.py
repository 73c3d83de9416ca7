"""Folding of the small integer arithmetic that exporters write around shapes.

Shape inference follows Shape, Gather and Concat by itself, but not the slices, divisions and comparisons around them:
without their values, the shapes behind a Reshape, Slice, Resize or Expand stay unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from wavefit.model.graph import DEFAULT_DOMAINS
from wavefit.model.values import SMALL, Value

# Operators that are plain functions of their inputs and cheap at this size.
_NAMES = """
    Abs Add And Cast Ceil Clip Concat ConstantOfShape Div Equal Expand Floor Gather Greater GreaterOrEqual Identity
    Less LessOrEqual Max Min Mod Mul Neg Not Or Pow Range ReduceMax ReduceMin ReduceProd ReduceSum Reshape Round
    ScatterElements ScatterND Shape Size Slice Sqrt Squeeze Sub Tile Transpose Unsqueeze Where
"""
_FOLDED = frozenset(_NAMES.split())

# What onnx's reference implementation raises on values that an operator does not take.
_REFUSALS = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


def fold(proto: Any, values: Mapping[str, Value]) -> int:
    """Replaces nodes whose inputs are known small constants by Constant nodes; returns how many."""
    from onnx import helper, numpy_helper

    known = _constants(proto.graph)
    folded = 0
    for index, node in enumerate(proto.graph.node):
        results = _evaluate(node, known, values, proto.opset_import)
        if len(results) != 1 or node.output[0] in known:
            continue
        name = node.output[0]
        known[name] = results[0]
        value = numpy_helper.from_array(results[0], name)
        proto.graph.node[index].CopyFrom(helper.make_node("Constant", [], [name], node.name, value=value))
        folded += 1
    return folded


def _constants(graph: Any) -> dict[str, np.ndarray]:
    from onnx import numpy_helper

    tensors = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        for attribute in node.attribute:
            if node.op_type == "Constant" and attribute.name == "value" and node.output:
                tensors[node.output[0]] = attribute.t
    return {
        name: numpy_helper.to_array(tensor)
        for name, tensor in tensors.items()
        if np.prod(tensor.dims, dtype=float) <= SMALL
    }


def _evaluate(
    node: Any, known: Mapping[str, np.ndarray], values: Mapping[str, Value], opsets: Any
) -> list[np.ndarray]:
    """The node's outputs, [] where it cannot or should not be evaluated."""
    if node.op_type not in _FOLDED or node.domain not in DEFAULT_DOMAINS or not _small(node, values):
        return []
    feeds = {name: known[name] for name in node.input if name in known}
    if node.op_type in ("Shape", "Size") and not feeds:
        shape = values[node.input[0]].shape if node.input[0] in values else None
        if shape is None:
            return []
        # A view that takes no memory, whatever the shape.
        feeds = {node.input[0]: np.broadcast_to(np.float32(0), shape)}
    if len(feeds) != len({name for name in node.input if name}):
        return []
    return _run(node, feeds, opsets)


def _small(node: Any, values: Mapping[str, Value]) -> bool:
    """Whether all outputs are known to be small, so that a hostile Range or Expand is never carried out."""
    shapes = [values[name].shape if name in values else None for name in node.output]
    return all(shape is not None and np.prod(shape, dtype=float) <= SMALL for shape in shapes)


def _run(node: Any, feeds: Mapping[str, np.ndarray], opsets: Any) -> list[np.ndarray]:
    from onnx import TensorProto, helper
    from onnx.reference import ReferenceEvaluator

    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in feeds.items()
    ]
    outputs = [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in node.output]
    model = helper.make_model(helper.make_graph([node], "fold", inputs, outputs), opset_imports=opsets)
    try:
        with np.errstate(all="ignore"):
            results = ReferenceEvaluator(model).run(None, dict(feeds))
    except _REFUSALS:
        return []
    return [np.asarray(result) for result in results]
