"""Graphs in int8: QuantizeLinear/DequantizeLinear pairs around nodes, which runtimes fuse into int8 kernels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from typing import TYPE_CHECKING

import numpy as np

from wavefit.errors import InputError
from wavefit.precision import graph
from wavefit.precision.int8 import fold, opset
from wavefit.precision.int8.calibrate import Quantised
from wavefit.precision.int8.qdq_operators import (
    OPERATORS,
    PRODUCTS,
    activations,
    passes,
    readers,
    tail,
    takes_int8,
)
from wavefit.precision.int8.qdq_places import places
from wavefit.precision.int8.qdq_write import Writer
from wavefit.precision.int8.targets import Target

if TYPE_CHECKING:
    import onnx_ir as ir


def quantisable(model: ir.Model, target: Target | None = None) -> tuple[str, ...]:
    """Names of the nodes that an int8 kernel exists for, in the graph's order.

    Relu, Clip and a MatMul's bias are not among them: they go with the node before. Nor are Reshape, MaxPool and the
    like, which carry the integers of the nodes around them. Nor are those without products of their own, such as Add
    and Concat, that no int8 node reads: all they would gain is a rounding.

    Args:
        target: whose kernels; None for those of any.
    """
    operators = OPERATORS if target is None else target.operators
    able = {
        name for name, node in graph.nodes(model).items() if node.op_type in operators and takes_int8(node)
    }
    gains: set[str] = set()
    for node in reversed(list(model.graph)):
        last = tail(node) if node.name in able else node
        read = any(reader.name in gains for output in last.outputs for reader, _ in readers(output))
        if (read and (node.name in able or passes(node))) or (node.name in able and node.op_type in PRODUCTS):
            gains.add(str(node.name))
    return tuple(name for name in graph.nodes(model) if name in gains & able)


def activation_values(model: ir.Model, nodes: Set[str]) -> tuple[str, ...]:
    """The values whose range :func:`quantize` needs to run those nodes in int8, in the graph's order."""
    _check(model, nodes)
    held = places(fold.folded(model, nodes), nodes).held
    return tuple(dict.fromkeys(held.values()))


def possible_values(model: ir.Model, nodes: Set[str]) -> tuple[str, ...]:
    """The values whose range :func:`quantize` needs for any subset of those nodes, in the graph's order.

    Results before a Relu or Clip are among them: whether a Clip cuts anything off is seen there.
    """
    _check(model, nodes)
    seen = fold.folded(model, nodes)
    found = set(places(seen, nodes).held.values())
    for node in seen.graph:
        if node.name in nodes:
            read = [node.inputs[slot] for slot in activations(node)]
            found.update(
                str(value.name) for value in (*read, *node.outputs, *tail(node).outputs) if value is not None
            )
    order = [str(value.name) for value in (*model.graph.inputs, *_outputs(model))]
    return tuple(name for name in order if name in found)


def _outputs(model: ir.Model) -> Iterator[ir.Value]:
    for node in model.graph:
        yield from node.outputs


def quantize(
    model: ir.Model,
    nodes: Set[str],
    parameters: Mapping[str, Quantised],
    target: Target,
    rounding: Mapping[str, np.ndarray] | None = None,
) -> ir.Model:
    """A copy that computes those nodes in int8 and the others as before; at opset 13 at least.

    Weights are stored per output channel, biases as int32. BatchNormalization behind a Conv, a bias behind a MatMul
    and a Gemm's alpha and beta are folded in first (:func:`.fold.folded`). For a graph of int8 and
    half, quantize first and convert the other nodes after.

    Args:
        nodes: names, of :func:`quantisable`'s. A subset gives mixed precision.
        parameters: of every value in :func:`activation_values`, by name.
        rounding: int8 weights to store in place of the nearest, by initializer name of the folded graph.

    Raises:
        InputError: a node has no int8 kernel, a value has no parameters, or the graph cannot be raised to the opset.
    """
    _check(model, nodes)
    made = opset.raised(model, _opset(model, target))
    made = fold.folded(made, nodes, "Gemm" in target.operators)
    found = places(made, nodes)
    missing = sorted(set(found.held.values()) - set(parameters))
    if missing:
        raise InputError(f"value {missing[0]!r} has no calibrated range", "calibrate activation_values()")
    writer = Writer(made, nodes, target, dict(rounding or {}))
    writer.activations(found, parameters)
    for node in list(made.graph):
        if node.name in nodes:
            writer.constants_of(node, found, parameters)
    writer.finish()
    return graph.infer(made)


def _check(model: ir.Model, nodes: Set[str]) -> None:
    able = set(quantisable(model))
    for name in sorted(nodes):
        if name not in able:
            raise InputError(f"node {name!r} has no int8 kernel, or is not in the graph")


def _opset(model: ir.Model, target: Target) -> int:
    import onnx_ir as ir

    if target.activation.endswith("16"):
        return opset.WIDE
    halves = any(
        value.dtype != ir.DataType.FLOAT for node in graph.float_nodes(model) for value in node.outputs
    )
    return opset.HALF_SCALES if halves else opset.PER_CHANNEL
