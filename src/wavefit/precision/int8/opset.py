"""A graph at a newer opset, with its nodes' names kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wavefit.errors import InputError
from wavefit.model.graph import printable
from wavefit.precision import graph

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

_LARGEST_BYTES = 1 << 30

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
    if graph.weight_bytes(model) > _LARGEST_BYTES:
        raise InputError("the model is larger than 1 GiB, the most that is converted to another opset")
    proto = ir.to_proto(model)
    wanted = [onnx.helper.make_opsetid("", version)]
    proto.ir_version = max(proto.ir_version, onnx.helper.find_min_ir_version_for(wanted))
    converted, problem = _converted(proto, version)
    if converted is None:
        culprit = _culprit(proto, version)
        raise InputError(
            f"{culprit} cannot be raised from opset {opset(model)} to {version}: {printable(problem, 300)}",
            "export the model again at a newer opset",
        )
    result = ir.from_proto(converted)
    passes.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(result)
    _name(model, result)
    return graph.infer(result)


def _converted(proto: onnx.ModelProto, version: int) -> tuple[onnx.ModelProto | None, str]:
    """The model at that opset, held to onnx's check; or why there is none."""
    import onnx

    errors = (RuntimeError, ValueError, onnx.checker.ValidationError, onnx.shape_inference.InferenceError)
    try:
        converted = onnx.version_converter.convert_version(proto, version)
        onnx.checker.check_model(converted)
    except errors as error:
        return None, str(error)
    return converted, ""


def _culprit(proto: onnx.ModelProto, version: int) -> str:
    """The first node that cannot be converted by itself."""
    import onnx

    known = {
        value.name: value for value in (*proto.graph.input, *proto.graph.value_info, *proto.graph.output)
    }
    tensors = {tensor.name: tensor for tensor in proto.graph.initializer}
    for node in proto.graph.node:
        given = [known[name] for name in dict.fromkeys(node.input) if name in known and name not in tensors]
        held = [tensors[name] for name in dict.fromkeys(node.input) if name in tensors]
        made = [known.get(name) or onnx.ValueInfoProto(name=name) for name in node.output if name]
        alone = onnx.helper.make_graph([node], "alone", given, made, initializer=held)
        model = onnx.helper.make_model(alone, opset_imports=proto.opset_import, ir_version=proto.ir_version)
        if _converted(model, version)[0] is None:
            return f"{node.op_type} {node.name!r}"
    return "the graph"


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
