"""BatchNormalization folded into the layer before it: what equalisation needs, and what every runtime does.

With the statistics fixed, gamma (x - mean) / sqrt(var + epsilon) + beta is one factor and one offset a channel (Ioffe
and Szegedy 2015), which the layer's weights and bias take in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from wavefit.precision.graph import constant, copy
from wavefit.precision.linear import attribute, linear, only_user

if TYPE_CHECKING:
    import onnx_ir as ir


def fold(model: ir.Model) -> ir.Model:
    """A graph without the BatchNormalizations that alone read the output of a Conv, ConvTranspose, Gemm or MatMul."""
    model = copy(model)
    for node in tuple(model.graph):
        if node.op_type == "BatchNormalization" and node.domain in ("", "ai.onnx"):
            _fold(node)
    return model


def _fold(node: ir.Node) -> None:
    producer = node.inputs[0].producer() if node.inputs[0] is not None else None
    if producer is not None and producer.op_type == "Add":
        producer = next((value.producer() for value in producer.inputs if value and value.producer()), None)
    layer = linear(producer) if producer is not None else None
    if layer is None or layer.result is not node.inputs[0] or only_user(layer.result) is not node:
        return
    if not layer.can_have_bias or attribute(node, "training_mode", 0) or layer.node.graph is not node.graph:
        return
    shape = node.inputs[0].shape if node.inputs[0] is not None else None
    if layer.node.op_type == "MatMul" and (shape is None or len(shape) != 2):
        return  # it normalises along axis 1, and a product's outputs lie on the last
    arrays = [constant(value) for value in node.inputs[1:]]
    if any(array is None or array.size != layer.outputs for array in arrays):
        return
    if any(list(value.uses()) or value.is_graph_output() for value in node.outputs[1:]):
        return
    gamma, beta, mean, variance = (array.astype(np.float64) for array in arrays if array is not None)
    factor = gamma / np.sqrt(variance + attribute(node, "epsilon", 1e-5))
    matrix, bias = layer.matrix(), layer.bias()
    layer.set_matrix((matrix * factor.reshape(layer.groups, -1, 1, 1)).astype(matrix.dtype))
    layer.set_bias(((bias if bias is not None else 0.0) - mean) * factor + beta)
    _take_out(node, layer.result)


def _take_out(node: ir.Node, value: ir.Value) -> None:
    """Lets the layer's value take the place, and the name, of the normalised one."""
    import onnx_ir as ir

    graph, out = node.graph, node.outputs[0]
    assert isinstance(graph, ir.Graph)
    name = out.name
    ir.convenience.replace_all_uses_with(out, value, replace_graph_outputs=True)
    graph.remove(node, safe=True)  # lets go of its inputs too
    out.name = f"{name}_normalised"
    value.name = name
