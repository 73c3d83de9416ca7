"""What old exporters write in a roundabout way, put plainly: constants computed, a Sum of two as an Add."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from wavefit.precision.linear import new_constant

if TYPE_CHECKING:
    import onnx_ir as ir

_MOVING = {"Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Identity"}
_LARGEST = 1 << 26  # elements of a constant that is computed


def simplify(model: ir.Model) -> None:
    """Moves constants once and for all, and names a Sum of two values what int8 kernels call it; in place."""
    for node in list(model.graph):
        if node.domain:
            continue
        if node.op_type == "Sum" and len(node.inputs) == 2 and model.opset_imports.get("", 0) >= 7:
            node.op_type = "Add"  # which broadcasts from opset 7 on, as Sum does from 8
        elif node.op_type in _MOVING:
            _fold(model, node)


def _fold(model: ir.Model, node: ir.Node) -> None:
    """Puts the result of a node that only moves constants in its place."""
    values = [value for value in node.inputs if value is not None]
    output = node.outputs[0]
    if output.is_graph_output() or not all(_is_small_constant(value) for value in values):
        return
    array = _run(model, node, values)
    if array.ndim < 2:  # no weights of a layer
        return
    constant = new_constant(model.graph, f"{output.name}_folded", array)
    for user, index in tuple(output.uses()):
        user.replace_input_with(index, constant)
    model.graph.remove(node, safe=True)
    for value in values:
        if not value.uses() and not value.is_graph_output() and value.name in model.graph.initializers:
            del model.graph.initializers[str(value.name)]


def _is_small_constant(value: ir.Value) -> bool:
    stored = value.const_value
    return (
        stored is not None
        and value.producer() is None
        and not value.is_graph_input()
        and int(np.prod(stored.shape.numpy())) <= _LARGEST
    )


def _run(model: ir.Model, node: ir.Node, values: list[ir.Value]) -> np.ndarray:
    """The node's result by onnx's own reference."""
    import onnx
    import onnx_ir as ir
    from onnx.reference import ReferenceEvaluator

    names = [str(value.name) for value in values]
    proto = ir.to_proto(node)
    graph = onnx.helper.make_graph(
        [proto],
        "constant",
        [onnx.ValueInfoProto(name=name) for name in names],
        [onnx.ValueInfoProto(name=str(node.outputs[0].name))],
    )
    opset = onnx.helper.make_opsetid("", model.opset_imports.get("", 1))
    evaluator = ReferenceEvaluator(onnx.helper.make_model(graph, opset_imports=[opset]))
    arrays = {
        name: value.const_value.numpy()
        for name, value in zip(names, values, strict=True)
        if value.const_value
    }
    (array,) = evaluator.run(None, arrays)
    return np.asarray(array)
