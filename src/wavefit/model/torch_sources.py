"""Which nodes of the exported program each node of its ONNX file came from, kept in the file.

The dynamo exporter decomposes the program first and notes on every ONNX node the decomposed node that it translates;
PyTorch notes on every decomposed node where it came from (``from_node``). Its optimiser then folds nodes away: a
convolution with the normalisation behind it becomes one Conv that tells of the normalisation alone. So a program node
that no ONNX node tells of belongs to the ONNX nodes of those that read it.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

SOURCES = "wavefit.program_nodes"
"""The key of an ONNX node's metadata: names of nodes of the .pt2, separated by commas."""

_SCOPES = "pkg.torch.onnx.name_scopes"  # a list's repr; the last one is the decomposed node's name


def note(onnx_model: Any, decomposed: Any, program: Any) -> None:
    """Writes :data:`SOURCES` on every node of the ONNX graph of which it is known.

    Args:
        onnx_model: the onnx_ir.Model that the exporter made.
        decomposed: the ExportedProgram that it translated.
        program: the ExportedProgram that was given to it, and is saved.
    """
    origin = {node.name: _origin(node) for node in decomposed.graph.nodes if node.op == "call_function"}
    owners: dict[str, set[int]] = defaultdict(set)  # program node -> places of ONNX nodes
    nodes = list(onnx_model.graph)
    for place, node in enumerate(nodes):
        name = _decomposed_name(node.metadata_props)
        owners[origin.get(name, name)].add(place)
    for node in reversed(program.graph.nodes):
        if node.op == "call_function" and node.name not in owners:
            owners[node.name] = set().union(*(owners.get(user.name, set()) for user in node.users))
    sources: dict[int, list[str]] = defaultdict(list)
    for node in program.graph.nodes:
        for place in owners.get(node.name, ()) if node.op == "call_function" else ():
            sources[place].append(node.name)
    for place, names in sources.items():
        nodes[place].metadata_props[SOURCES] = ",".join(names)


def _origin(node: Any) -> str:
    """The node's name in the program before it was decomposed."""
    steps = node.meta.get("from_node") or ()
    name: str = node.name
    while steps:
        name, steps = steps[-1].name, steps[-1].from_node
    return name


def _decomposed_name(properties: Mapping[str, str]) -> str:
    try:
        scopes = ast.literal_eval(properties.get(_SCOPES, ""))
    except (SyntaxError, ValueError):
        return ""
    return str(scopes[-1]) if isinstance(scopes, list) and scopes else ""
