"""A graph at a newer opset, with its nodes' names kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wavefit.errors import InputError
from wavefit.model.graph import printable
from wavefit.precision import graph

if TYPE_CHECKING:
    import onnx_ir as ir

PER_CHANNEL = 13
"""The first opset whose DequantizeLinear has a scale for each channel."""
HALF_SCALES = 19
"""The first whose QuantizeLinear takes half."""
WIDE = 21
"""The first whose QuantizeLinear gives 16 bits."""


def raised(model: ir.Model, version: int) -> ir.Model:
    """A copy at that opset of the default domain, or at its own where that is newer.

    Node names stay; a node that the conversion adds is called by its first output.

    Raises:
        InputError: an operator cannot be converted; the message names it.
    """
    import onnx
    import onnx_ir as ir
    import onnx_ir.passes.common as passes

    if opset(model) >= version:
        return graph.copy(model)
    if graph.weight_bytes(model) > 1 << 30:
        raise InputError("the model is larger than 1 GiB, the most that is converted to another opset")
    try:
        converted = onnx.version_converter.convert_version(ir.to_proto(model), version)
    except (RuntimeError, onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise InputError(
            f"the graph cannot be raised from opset {opset(model)} to {version}: {printable(str(error), 300)}",
            "export the model again at a newer opset",
        ) from error
    result = ir.from_proto(converted)
    passes.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(result)
    _name(model, result)
    return graph.infer(result)


def opset(model: ir.Model) -> int:
    """Of the default domain; 1 where the model does not say."""
    return model.graph.opset_imports.get("", 1)


def _name(before: ir.Model, after: ir.Model) -> None:
    """Names the nodes of ``after`` as those of ``before`` that make the same values."""
    names = {output.name: name for name, node in graph.nodes(before).items() for output in node.outputs}
    taken: set[str] = set()
    for node in after.graph:
        known = next((names[each.name] for each in node.outputs if each.name in names), None)
        name = known or node.name or node.outputs[0].name or node.op_type
        while name in taken:
            name += "_"
        node.name = name
        taken.add(name)
