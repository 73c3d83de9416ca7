"""Which inputs and outputs of a node may be half: what the operators' definitions in the ONNX standard admit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from wavefit.errors import InputError

if TYPE_CHECKING:
    import onnx_ir as ir

Low = Literal["fp16", "bf16"]

NAMES: dict[str, str] = {"fp16": "float16", "bf16": "bfloat16"}

_LAST_VERSION = 1000  # later than any of another domain

# Attributes that give the type of an output which no input has.
_TYPE_ATTRIBUTES = ("to", "dtype", "output_datatype", "output_dtype")

# Inputs that say where, or how large a step is: rounding them is another model, not the same one in half.
_EXACT_INPUTS = {
    "BitCast": ("input",),
    "DequantizeLinear": ("x_scale",),
    "OneHot": ("indices", "depth"),
    "QuantizeLinear": ("y_scale",),
    "Resize": ("roi", "scales"),
}

# Inputs of which only the shape is read, or which are given another type at once: any type will do.
_ANY_TYPE = {"Shape": 0, "Size": 0, "Cast": 0, "CastLike": 0}


@dataclass(frozen=True)
class Slots:
    """What of a node is half when the node is.

    Args:
        inputs: their indices.
        outputs: their indices.
        free: indices of inputs that take fp32 as well as half.
        attribute: that has to name the type, "" where none does.
        refusal: why nothing is half although the node handles floats; "" where something is, or it handles none.
    """

    inputs: frozenset[int] = frozenset()
    outputs: frozenset[int] = frozenset()
    free: frozenset[int] = frozenset()
    attribute: str = ""
    refusal: str = ""


@dataclass(frozen=True)
class _Slot:
    """One float32 tensor at a node, and what the definition says of it."""

    index: int
    variable: str  # tensors with the same one have the same type
    name: str  # the definition's
    admitted: bool  # half, by the definition


def dtype(low: str) -> ir.DataType:
    """onnx-ir's name of a precision."""
    import onnx_ir as ir

    return {"fp16": ir.DataType.FLOAT16, "bf16": ir.DataType.BFLOAT16}[low]


def is_fp32(value: ir.Value | None) -> bool:
    """Whether a value is a float32 tensor."""
    import onnx_ir as ir

    return value is not None and isinstance(value.type, ir.TensorType) and value.dtype == ir.DataType.FLOAT


def require_cast(model: ir.Model, low: str) -> None:
    """Holds the model's opset to what a cast needs.

    Raises:
        InputError: Cast takes no such type there: bfloat16 before opset 13, anything before 6.
    """
    opset = model.opset_imports.get("", 0)
    schema = _schema("Cast", opset, "") if opset >= 6 else None
    if schema is None or f"tensor({NAMES[low]})" not in schema.inputs[0].types:
        raise InputError(
            f"the model's opset is {opset}, and Cast takes no {NAMES[low]} there", "raise it to 13 or later"
        )


def slots(node: ir.Node, model: ir.Model, low: str) -> Slots:
    """What of a node of the main graph can be half."""
    import onnx_ir as ir

    values = [value for value in (*node.inputs, *node.outputs) if value is not None and value.name]
    unknown = next((value for value in values if value.type is None), None)
    if unknown is None and not any(is_fp32(value) for value in values):
        return Slots()
    opset = node.version or model.opset_imports.get(node.domain, 0)
    schema = _schema(node.op_type, opset, node.domain)
    if schema is None:
        return Slots(refusal=f"{_called(node)} has no definition in the ONNX standard")
    if unknown is not None:
        return Slots(refusal=f"the type of its value {unknown.name!r} could not be inferred")
    if any(attribute.type.name in ("GRAPH", "GRAPHS") for attribute in node.attributes.values()):
        return Slots(refusal=f"the body of {node.op_type} stays in fp32")
    if not all(isinstance(value.type, ir.TensorType) for value in values):
        return Slots(refusal=f"{node.op_type} handles sequences or optional values, whose elements stay fp32")
    return _admitted(node, schema, low)


def _admitted(node: ir.Node, schema: Any, low: str) -> Slots:
    wanted = f"tensor({NAMES[low]})"
    inputs = list(_slots(node.inputs, schema.inputs, wanted))
    outputs = list(_slots(node.outputs, schema.outputs, wanted))
    free = {slot.index for slot in inputs if _takes_any(node, slot)}
    data = [slot for slot in inputs if slot.index not in free]
    attribute = _type_attribute(node, schema)
    exact = {slot.variable for slot in data if slot.name in _EXACT_INPUTS.get(node.op_type, ())}
    set_by_inputs = {slot.variable for slot in data} | {formal.type_str for formal in schema.inputs}
    lowered = [
        slot.index
        for slot in outputs
        if slot.admitted and slot.variable not in exact and (slot.variable in set_by_inputs or attribute)
    ]
    if outputs and not lowered:
        return Slots(free=frozenset(free), refusal=_refusal(node, schema, low, exact))
    taken = [slot.index for slot in data if slot.admitted and slot.variable not in exact]
    if data and not outputs and not taken:
        return Slots(free=frozenset(free), refusal=_refusal(node, schema, low, exact))
    return Slots(frozenset(taken), frozenset(lowered), frozenset(free), attribute if lowered else "")


def _slots(values: Iterable[ir.Value | None], formals: Any, wanted: str) -> Iterable[_Slot]:
    for index, value in enumerate(values):
        if is_fp32(value):
            formal = formals[min(index, len(formals) - 1)]  # the last one may be variadic
            alike = index < len(formals) or formal.is_homogeneous
            variable = formal.type_str if alike else f"{formal.type_str}{index}"
            yield _Slot(index, variable, formal.name, wanted in formal.types)


def _takes_any(node: ir.Node, slot: _Slot) -> bool:
    return slot.admitted and _ANY_TYPE.get(node.op_type) == slot.index


def _type_attribute(node: ir.Node, schema: Any) -> str:
    """The attribute that gives the type of an output which shares it with no input."""
    if node.op_type == "BitCast":  # reads the bits of its input: they are those of one type
        return ""
    if node.op_type == "ConstantOfShape":
        return "value"
    return next((name for name in _TYPE_ATTRIBUTES if name in schema.attributes), "")


def _refusal(node: ir.Node, schema: Any, low: str, exact: set[str]) -> str:
    wanted = f"tensor({NAMES[low]})"
    for formal in schema.inputs:
        if formal.type_str in exact and wanted in formal.types:
            exact_name = _EXACT_INPUTS[node.op_type][0]
            return (
                f"{node.op_type} would have its {exact_name} in {NAMES[low]} too, which is not to be rounded"
            )
    later = _first_opset(node, low)
    hint = f", from opset {later} it does" if later > schema.since_version else ""
    return (
        f"{_called(node)} takes no {NAMES[low]} by its ONNX definition of opset {schema.since_version}{hint}"
    )


def _first_opset(node: ir.Node, low: str) -> int:
    """The first opset with a definition of which a float output may be half; 0 where there is none.

    Of an operator that makes no floats it is an input.
    """
    from onnx import defs

    first, version = 0, int(defs.onnx_opset_version()) if not node.domain else _LAST_VERSION
    makes_floats = any(is_fp32(value) for value in node.outputs)
    while version > 0 and (schema := _schema(node.op_type, version, node.domain)) is not None:
        formals = schema.outputs if makes_floats else schema.inputs
        if any({"tensor(float)", f"tensor({NAMES[low]})"} <= set(formal.types) for formal in formals):
            first = schema.since_version
        version = schema.since_version - 1
    return first


def _called(node: ir.Node) -> str:
    return f"{node.domain}::{node.op_type}" if node.domain else node.op_type


def _schema(op: str, opset: int, domain: str) -> Any:
    from onnx import defs

    if not defs.has(op, opset, domain):
        return None
    schema = defs.get_schema(op, opset, domain)
    return None if schema.deprecated else schema
