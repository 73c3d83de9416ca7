"""Types of a node's outputs, by onnx's own inference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from wavefit.errors import InputError
from wavefit.model.graph import DEFAULT_DOMAINS, printable
from wavefit.native.graph import Value

if TYPE_CHECKING:
    import onnx_ir as ir

Type = tuple[tuple[int, ...], str]
"""Shape, and numpy's name of the elements' type."""

_LIKE_FIRST = frozenset(  # operators that onnx infers nothing for, and whose output is like their first input
    ("GroupNormalization", "MeanVarianceNormalization", "SimplifiedLayerNormalization")
)
_READ_ELEMENTS = 4096  # shapes, scales, axes: what inference reads the numbers of is small


def infer(node: ir.Node, inputs: Sequence[Value | None], opset: int, op: str, name: str) -> list[Type | None]:
    """A type for each output, None where it is not known: other domains, or a shape that depends on the data.

    Raises:
        InputError: the node does not take inputs of these shapes.
    """
    import onnx
    import onnx_ir as ir

    if op in _LIKE_FIRST and inputs[0] is not None:
        return [(inputs[0].shape, inputs[0].dtype), *[None] * (len(node.outputs) - 1)]
    if node.domain not in DEFAULT_DOMAINS or not onnx.defs.has(node.op_type, opset, ""):
        return [None] * len(node.outputs)
    if any(attribute.type.name in ("GRAPH", "GRAPHS") for attribute in node.attributes.values()):
        return [None] * len(node.outputs)
    types, data = {}, {}
    for given, value in zip(node.inputs, inputs, strict=True):
        if given is None or value is None:
            continue
        types[str(given.name)] = _type_proto(value)
        if value.constant is not None and value.size <= _READ_ELEMENTS:
            data[str(given.name)] = onnx.numpy_helper.from_array(np.asarray(value.constant, order="C"))
    opsets = [onnx.helper.make_opsetid("", opset)]
    try:
        schema = onnx.defs.get_schema(node.op_type, opset, "")
        found = onnx.shape_inference.infer_node_outputs(
            schema, ir.to_proto(node), types, data, opset_imports=opsets
        )
    except (onnx.shape_inference.InferenceError, RuntimeError, ValueError) as error:
        said = printable(str(error), 200)
        raise InputError(f"{op} node {name!r} does not take these input shapes: {said}") from error
    return [_type(found.get(str(value.name))) for value in node.outputs]


def _type_proto(value: Value) -> Any:
    from onnx import helper

    kind = helper.np_dtype_to_tensor_dtype(_numpy(value.dtype))
    return helper.make_tensor_type_proto(kind, value.shape)


def _numpy(dtype: str) -> np.dtype[Any]:
    """The type of that name, those that numpy takes from ml_dtypes too."""
    if dtype in ("string", "object") or dtype.startswith("str"):
        return np.dtype(object)
    try:
        return np.dtype(dtype)
    except TypeError:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, dtype))


def _type(proto: Any) -> Type | None:
    from onnx import helper

    if proto is None or not proto.HasField("tensor_type") or not proto.tensor_type.HasField("shape"):
        return None
    dims = proto.tensor_type.shape.dim
    if not all(dim.HasField("dim_value") for dim in dims):
        return None
    kind = helper.tensor_dtype_to_np_dtype(proto.tensor_type.elem_type)
    return tuple(dim.dim_value for dim in dims), "string" if kind == np.dtype(object) else kind.name
