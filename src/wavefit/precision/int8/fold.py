"""Folds what an int8 kernel does not have into the weights before them: BatchNormalization, a MatMul's bias, alpha."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import numpy as np

from wavefit.precision import graph
from wavefit.precision.compensation import fold_batchnorm
from wavefit.precision.int8.constants import Constants
from wavefit.precision.int8.qdq_operators import bias_of, takes_int8, weight
from wavefit.precision.linear import attribute

if TYPE_CHECKING:
    import onnx_ir as ir


def folded(model: ir.Model, nodes: Collection[str] | None = None, gemm: bool = True) -> ir.Model:
    """A copy with the same answers and fewer nodes.

    BatchNormalization goes into the layer before it. For those nodes (None for all), MatMul and the Add of a bias
    become Gemm where the input is a matrix (unless ``gemm`` is False), and Gemm has alpha and beta of 1. The first
    node's name stays, and the last one's output.
    """
    result = fold_batchnorm.fold(model)
    constants = Constants(result)
    for node in list(result.graph):
        if nodes is not None and node.name not in nodes:
            continue
        if node.op_type == "MatMul" and gemm and takes_int8(node):
            _fold_bias(result, constants, node)
        elif node.op_type == "Gemm" and takes_int8(node):
            _fold_factors(constants, node)
    constants.drop_unread()
    return result


def _fold_bias(model: ir.Model, constants: Constants, product: ir.Node) -> None:
    import onnx_ir as ir

    found = _sole_reader(product)
    shape = product.inputs[0].shape if product.inputs[0] is not None else None
    held = weight(product)
    if (
        found is None
        or held is None
        or shape is None
        or len(shape) != 2
        or held.shape is None
        or len(held.shape) != 2
    ):
        return
    bias = bias_of(found)
    if bias is None:
        return
    constant = constants.add(f"{product.name}_bias", bias)
    gemm = ir.Node("", "Gemm", [product.inputs[0], held, constant], name=product.name)
    gemm.outputs[0].type = product.outputs[0].type
    model.graph.insert_before(product, gemm)
    _take_over(model, gemm, found)
    model.graph.remove(product, safe=True)


def _fold_factors(constants: Constants, gemm: ir.Node) -> None:
    import onnx_ir as ir

    for name, slot in (("alpha", 1), ("beta", 2)):
        factor = float(attribute(gemm, name, 1.0))
        value = gemm.inputs[slot] if slot < len(gemm.inputs) else None
        array = graph.constant(value)
        if factor == 1.0 or value is None or array is None:
            continue
        scaled = (array.astype(np.float64) * factor).astype(array.dtype)
        gemm.replace_input_with(slot, constants.add(f"{value.name}_times_{name}", scaled))
        gemm.attributes[name] = ir.AttrFloat32(name, 1.0)


def _take_over(model: ir.Model, node: ir.Node, following: ir.Node) -> None:
    """Gives a node the output of the one behind it, which goes."""
    last = following.outputs[0]
    name, shape, kind = last.name, last.shape, last.type
    made = node.outputs[0]
    is_output = last.is_graph_output()
    last.name = f"{name}_before"
    last.replace_all_uses_with(made, replace_graph_outputs=is_output)
    model.graph.remove(following, safe=True)
    made.name, made.shape, made.type = name, shape, kind


def _sole_reader(node: ir.Node) -> ir.Node | None:
    uses = list(node.outputs[0].uses())
    if len(uses) != 1 or node.outputs[0].is_graph_output():
        return None
    found = uses[0].node
    return found if found.graph is node.graph else None
