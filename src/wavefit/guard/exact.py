"""The float64 run: the same graph with every float turned to double, on onnx's reference evaluator.

A result is only given where it is float64 throughout: an operator that falls back to another type, is not
implemented, or would take too long ends the attempt with the operator's name.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from wavefit.schema import Model

_SLOW = {
    "Upsample": 1 << 18,
    "RoiAlign": 1 << 14,
    "GridSample": 1 << 14,
    "DeformConv": 1 << 14,
    "LRN": 1 << 20,
    "LpPool": 1 << 14,
    "NonMaxSuppression": 1 << 14,
    "QLinearConv": 1 << 16,
    "ConvInteger": 1 << 16,
    "STFT": 1 << 16,
    "TfIdfVectorizer": 1 << 12,
    "ScatterElements": 1 << 18,
    "GatherElements": 1 << 18,
    "Col2Im": 1 << 18,
}
"""Operators that onnx runs as loops in Python, and the most elements (largest input) that they are given."""

_MAX_MODEL_BYTES = 2 << 30  # a double copy of the weights is twice that

_UNABLE = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    MemoryError,
    NotImplementedError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""What onnx's evaluator raises where an operator, type or attribute is beyond it."""


class NoFloat64(Exception):
    """The float64 run was given up; the message says at which operator and why."""


def run_float64(model: Model, inputs: Mapping[str, np.ndarray], limit_s: float) -> dict[str, np.ndarray]:
    """Every output of the model in float64 (integers and booleans as they are).

    Args:
        inputs: in the model's own types.
        limit_s: given up at the first operator after that many seconds.

    Raises:
        NoFloat64: an operator is not implemented, not in float64, too slow, or the model is too large.
    """
    if model.weight_bytes > _MAX_MODEL_BYTES:
        raise NoFloat64(f"its weights take {model.weight_bytes / 2**30:.1f} GiB")
    evaluator = _evaluator(model)
    feeds = {name: _double(array) for name, array in inputs.items()}
    return _run(evaluator, feeds, time.monotonic() + limit_s)


def _evaluator(model: Model) -> Any:
    import onnx
    from onnx.inliner import inline_local_functions
    from onnx.reference import ReferenceEvaluator

    from wavefit.guard.operators import FAST
    from wavefit.guard.resize import Resize

    try:
        proto = onnx.load(model.path)
        if proto.functions:
            proto = inline_local_functions(proto)
        doubled = to_double(proto)
        return ReferenceEvaluator(doubled, new_ops=[*FAST, Resize])
    except _UNABLE as error:
        raise NoFloat64(
            f"onnx's reference evaluator does not take the graph ({_first_line(error)})"
        ) from error


def _run(evaluator: Any, feeds: Mapping[str, np.ndarray], deadline: float) -> dict[str, np.ndarray]:
    """Runs node after node, frees what is no longer needed, and looks at every result's type."""
    results: dict[str, Any] = {"": None, **evaluator.rt_inits_, **feeds}
    last_use = _last_use(evaluator)
    for index, node in enumerate(evaluator.rt_nodes_):
        where = f"{node.op_type} {node.onnx_node.name!r}"
        inputs = [results[name] for name in node.input]
        _check_time(node, inputs, where, deadline)
        try:
            # Overflow and division by zero give Inf and NaN here as in any runtime; the comparison counts them.
            with np.errstate(all="ignore"):
                outputs = node.run(*inputs, **({"context": results} if node.need_context() else {}))
        except _UNABLE as error:
            raise NoFloat64(f"{where} failed on onnx's reference evaluator ({_first_line(error)})") from error
        for name, value in zip(node.output, outputs, strict=False):
            if isinstance(value, np.ndarray | np.generic) and value.dtype in (np.float32, np.float16):
                raise NoFloat64(f"{where} computes in {value.dtype} on onnx's reference evaluator")
            results[name] = value
        for name in last_use.get(index, ()):
            results.pop(name, None)
    return {name: np.asarray(results[name]) for name in evaluator.output_names}


def _check_time(node: Any, inputs: list[Any], where: str, deadline: float) -> None:
    size = max((value.size for value in inputs if isinstance(value, np.ndarray)), default=0)
    if size > _SLOW.get(node.op_type, size):
        raise NoFloat64(f"{where} would take too long on onnx's reference evaluator ({size} elements)")
    if time.monotonic() > deadline:
        raise NoFloat64(f"it took too long, stopped before {where}")


def _last_use(evaluator: Any) -> dict[int, list[str]]:
    """Intermediates by the index of the last node that reads them. Empty where a subgraph may read any of them."""
    if any(node.need_context() for node in evaluator.rt_nodes_):
        return {}
    last: dict[str, int] = {}
    for index, node in enumerate(evaluator.rt_nodes_):
        last.update(dict.fromkeys([*node.output, *node.input], index))
    by_node: dict[int, list[str]] = {}
    for name in set(last) - set(evaluator.output_names) - set(evaluator.rt_inits_) - {""}:
        by_node.setdefault(last[name], []).append(name)
    return by_node


def to_double(proto: Any) -> Any:
    """The model with float32, float16 and bfloat16 turned to float64, in weights, constants, types and casts.

    ``proto`` is changed and returned. Exact: every such value is a float64 too.
    """
    from onnx import TensorProto

    floats = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)
    for graph in _graphs(proto.graph):
        for tensor in graph.initializer:
            _double_tensor(tensor, floats)
        for info in (*graph.input, *graph.output, *graph.value_info):
            if info.type.tensor_type.elem_type in floats:
                info.type.tensor_type.elem_type = TensorProto.DOUBLE
        for node in graph.node:
            _double_node(node, floats)
    return proto


def _double_node(node: Any, floats: tuple[int, ...]) -> None:
    from onnx import AttributeProto, TensorProto, helper, numpy_helper

    if node.op_type == "Constant":
        _double_constant(node)
    for attribute in node.attribute:
        if attribute.type == AttributeProto.TENSOR:
            _double_tensor(attribute.t, floats)
        # Cast's "to", random and EyeLike's "dtype", QuantizeLinear's "output_dtype"
        if attribute.name in ("to", "dtype", "output_dtype") and attribute.i in floats:
            attribute.i = TensorProto.DOUBLE
    names = {attribute.name for attribute in node.attribute}
    if node.op_type == "ConstantOfShape" and "value" not in names:
        node.attribute.append(helper.make_attribute("value", numpy_helper.from_array(np.zeros(1))))
    if node.op_type in ("RandomNormal", "RandomUniform") and "dtype" not in names:
        node.attribute.append(helper.make_attribute("dtype", TensorProto.DOUBLE))


def _double_constant(node: Any) -> None:
    """``value_float`` and ``value_floats`` become a float64 ``value``."""
    from onnx import helper, numpy_helper

    for attribute in list(node.attribute):
        if attribute.name in ("value_float", "value_floats"):
            values = attribute.f if attribute.name == "value_float" else list(attribute.floats)
            tensor = numpy_helper.from_array(np.array(values, np.float64))
            node.attribute.remove(attribute)
            node.attribute.append(helper.make_attribute("value", tensor))


def _double_tensor(tensor: Any, floats: tuple[int, ...]) -> None:
    from onnx import numpy_helper

    if tensor.data_type in floats:
        array = numpy_helper.to_array(tensor).astype(np.float64)
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def _graphs(graph: Any) -> Iterator[Any]:
    from onnx import AttributeProto

    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                yield from _graphs(attribute.g)
            for inner in attribute.graphs:
                yield from _graphs(inner)


def _double(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float64) if array.dtype.name in ("float32", "float16", "bfloat16") else array


def _first_line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return (text[0] if text else type(error).__name__)[:160]
