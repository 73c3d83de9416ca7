"""Small edits of a graph: rounded constants, casts where they are wanted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from wavefit.errors import InputError
from wavefit.precision.graph import copy
from wavefit.precision.half.types import dtype

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir


def prepared(model: ir.Model, assignment: Mapping[str, str]) -> ir.Model:
    """A copy to be edited.

    Raises:
        InputError: the assignment names a node that the graph does not have.
    """
    known = {node.name for node in model.graph}
    stray = next((name for name in assignment if name not in known), None)
    if stray is not None:
        raise InputError(f"a precision is asked for node {stray!r}, which the graph does not have")
    return copy(model)


def half(array: np.ndarray, low: str) -> np.ndarray:
    """The array rounded to nearest, ties to even; Inf past the largest, but no finite number becomes -Inf.

    The usual masks of attention (-1e9, -3.4e38) become the lowest finite number: a row that is masked as a whole has a
    Softmax then, as in fp32, where -Inf would make it NaN.
    """
    import ml_dtypes
    import numpy as np

    kind = dtype(low).numpy()
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        rounded = array.astype(kind)
    lost = np.isneginf(rounded) & ~np.isneginf(array)
    return np.where(lost, np.asarray(ml_dtypes.finfo(kind).min, kind), rounded)


def add_constant(graph: ir.Graph, name: str, array: np.ndarray) -> ir.Value:
    """A new initializer."""
    import onnx_ir as ir

    tensor = ir.Tensor(array, name=name)
    value = ir.Value(
        name=name, shape=ir.Shape(array.shape), type=ir.TensorType(tensor.dtype), const_value=tensor
    )
    graph.register_initializer(value)
    return value


def add_cast(graph: ir.Graph, source: ir.Value, to: ir.DataType, name: str, node: str) -> ir.Value:
    """A Cast right after what makes ``source``; returns its output."""
    import onnx_ir as ir

    cast = ir.node("Cast", [source], {"to": int(to)}, name=node)
    output = cast.outputs[0]
    output.name, output.type, output.shape = name, ir.TensorType(to), source.shape
    producer = source.producer()
    if producer is not None:
        graph.insert_after(producer, cast)
    elif len(graph):
        graph.insert_before(graph[0], cast)
    else:
        graph.append(cast)
    return output


def replace(model: ir.Model, old: ir.Value, new: ir.Value) -> None:
    """Puts one value in another's place among the outputs of the graph and of every body."""
    for graph in model.graphs():
        for index, value in enumerate(graph.outputs):
            if value is old:
                graph.outputs[index] = new


def is_constant(value: ir.Value) -> bool:
    """Whether a value is an initializer with its numbers."""
    return value.const_value is not None and value.producer() is None


def drop_unused(graph: ir.Graph) -> None:
    """Takes away initializers that nothing reads any more."""
    for name, value in list(graph.initializers.items()):
        if not value.uses() and not value.is_graph_output():
            del graph.initializers[name]
