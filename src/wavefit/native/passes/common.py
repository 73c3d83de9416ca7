"""Nodes that compute the same of the same are one, and equal constants are one value."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable

import numpy as np

from wavefit.native.graph import Graph, Node, Value

_LARGEST = 1 << 16  # bytes of a constant that is compared with others


def run(graph: Graph) -> int:
    """Merges equal constants, and nodes of equal operator, attributes, inputs and epilogue.

    Returns:
        How many nodes were taken out.
    """
    constants: dict[Hashable, Value] = {}
    for node in graph.nodes:
        shared = [value and _shared(value, constants) for value in node.inputs]
        if shared != node.inputs:
            graph.rewire(node, shared)
    seen: dict[Hashable, Node] = {}
    removed = 0
    for node in list(graph.nodes):
        first = seen.setdefault(_key(node), node)
        if first is node or any(value in graph.outputs for value in node.outputs):
            continue
        for old, new in zip(node.outputs, first.outputs, strict=True):
            graph.replace(old, new)
        first.source = (*first.source, *node.source)
        graph.remove(node)
        removed += 1
    return removed


def _shared(value: Value, constants: dict[Hashable, Value]) -> Value:
    if value.constant is None or value.constant.nbytes > _LARGEST:
        return value
    content = hashlib.blake2b(np.ascontiguousarray(value.constant).tobytes(), digest_size=16).digest()
    return constants.setdefault((value.dtype, value.shape, content), value)


def _key(node: Node) -> Hashable:
    return (
        node.op,
        tuple(node.inputs),
        node.own,
        node.epilogue,
        tuple(sorted((name, repr(value)) for name, value in node.attributes.items())),
        tuple((value.shape, value.dtype) for value in node.outputs),
    )
