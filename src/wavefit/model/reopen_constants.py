"""Constant folding for reopening: exporters leave shapes and initial states behind as chains of nodes."""

from __future__ import annotations

import math
from typing import Any

_MAX_ELEMENTS = 1 << 20  # weights above it stay as they are
_RANDOM = (
    "RandomNormal",
    "RandomUniform",
    "RandomNormalLike",
    "RandomUniformLike",
    "Multinomial",
    "Bernoulli",
)


def fold(model: Any) -> None:
    """Replaces nodes that depend on no input by the arrays that they compute, in place.

    Args:
        model: an onnx.ModelProto with its weights.
    """
    from onnx import numpy_helper

    known = {
        tensor.name: tensor for tensor in model.graph.initializer if math.prod(tensor.dims) <= _MAX_ELEMENTS
    }
    arrays: dict[str, Any] = {}
    computed: dict[str, Any] = {}
    kept = []
    for node in model.graph.node:
        found = _evaluate(model, node, known, arrays)
        if found is None:
            kept.append(node)
            continue
        made = dict(zip(node.output, found, strict=False))
        arrays.update(made)
        computed.update(made)
    del model.graph.node[:]
    model.graph.node.extend(kept)
    needed = {name for node in kept for name in node.input} | {entry.name for entry in model.graph.output}
    needed |= {name for node in kept for attribute in node.attribute for name in _inside(attribute)}
    model.graph.initializer.extend(
        numpy_helper.from_array(array, name) for name, array in computed.items() if name in needed
    )


def _evaluate(model: Any, node: Any, known: dict[str, Any], arrays: dict[str, Any]) -> list[Any] | None:
    """What a node computes from constants alone; None where an input, a body or chance is in it."""
    from onnx import numpy_helper

    if node.op_type in _RANDOM or node.domain or any(_inside(attribute) for attribute in node.attribute):
        return None
    for name in node.input:
        if name and name not in arrays and name in known:
            arrays[name] = numpy_helper.to_array(known[name])
    if any(name and name not in arrays for name in node.input):
        return None
    found = _run(model, node, {name: arrays[name] for name in node.input if name})
    if found is None or any(getattr(array, "size", _MAX_ELEMENTS + 1) > _MAX_ELEMENTS for array in found):
        return None
    return found


def _run(model: Any, node: Any, feeds: dict[str, Any]) -> list[Any] | None:
    import onnx
    from onnx import helper
    from onnx.reference import ReferenceEvaluator

    inputs, outputs = ([onnx.ValueInfoProto(name=name) for name in names] for names in (feeds, node.output))
    graph = helper.make_graph([node], "constant", inputs, outputs)
    part = helper.make_model(graph, opset_imports=list(model.opset_import), ir_version=model.ir_version)
    try:
        found: list[Any] = ReferenceEvaluator(part).run(None, feeds)
    except (RuntimeError, ValueError, TypeError, KeyError, IndexError, AttributeError, AssertionError):
        return None  # an operator that the package onnx cannot run stays as it is
    return found


def _inside(attribute: Any) -> set[str]:
    """Names that a node's body (of an If or Loop) takes from outside, and its own."""
    bodies = [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]
    return {
        name
        for body in bodies
        for name in (
            *(name for node in body.node for name in node.input),
            *(entry.name for entry in body.output),
            *(name for node in body.node for inner in node.attribute for name in _inside(inner)),
        )
    }
