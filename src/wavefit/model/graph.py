"""Walks over an ONNX model's protobuf: nodes and tensors, those of subgraphs and functions included."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

DEFAULT_DOMAINS = ("", "ai.onnx")


class Stored(NamedTuple):
    """A tensor stored in the model, and how to call it in a sentence."""

    tensor: Any  # onnx.TensorProto
    label: str
    constant: bool  # an attribute of a node, not an initializer


def graphs(graph: Any) -> Iterator[Any]:
    """That GraphProto, then the bodies of its If, Loop and Scan nodes, at any depth."""
    yield graph
    for node in graph.node:
        for body in bodies(node):
            yield from graphs(body)


def bodies(node: Any) -> Iterator[Any]:
    """The subgraphs in a node's attributes."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def nodes(graph: Any) -> Iterator[Any]:
    """All nodes of a graph and its subgraphs."""
    for part in graphs(graph):
        yield from part.node


def function_nodes(function: Any) -> Iterator[Any]:
    """All nodes of a FunctionProto and its subgraphs."""
    for node in function.node:
        yield node
        for body in bodies(node):
            yield from nodes(body)


def stored(model: Any) -> Iterator[Stored]:
    """Every tensor that the model stores: initializers, and tensors in attributes of nodes."""
    for graph in graphs(model.graph):
        for tensor in graph.initializer:
            yield Stored(tensor, f"initializer {tensor.name!r}", constant=False)
        yield from _attributes(graph.node)
    for function in model.functions:
        yield from _attributes(function_nodes(function))


def _attributes(some: Iterable[Any]) -> Iterator[Stored]:
    for node in some:
        for attribute in node.attribute:
            tensors = [attribute.t] if attribute.HasField("t") else []
            for tensor in (*tensors, *attribute.tensors):
                yield Stored(tensor, f"attribute {attribute.name!r} of {called(node)}", constant=True)


def called(node: Any) -> str:
    """A node in a sentence: "Conv node 'conv1'"; by its output where it has no name."""
    if node.name:
        return f"{node.op_type} node {node.name!r}"
    return (
        f"the {node.op_type} node that makes {node.output[0]!r}" if node.output else f"a {node.op_type} node"
    )


def printable(text: str, longest: int = 500) -> str:
    """Text out of a file or another program's message, fit for one line."""
    line = "".join(char if char.isprintable() else " " for char in text)
    line = " ".join(line.split())
    return line if len(line) <= longest else f"{line[:longest]}..."


def opset(model: Any) -> int | None:
    """The version of the default operator set, or None where the model imports none."""
    return next((entry.version for entry in model.opset_import if entry.domain in DEFAULT_DOMAINS), None)
