"""Nodes of a program that stay in fp32 where the rest runs in half precision.

Autocast decides by operator alone. A kept node runs with autocast off and its inputs in fp32; what it gives goes on in
fp32 to other kept nodes and to the program's outputs, and is cast back to half for all others, as in an ONNX file with
casts where precisions meet.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

from wavefit.errors import RouteError

KEPT = "wavefit_kept"
"""A key of a node's ``meta``: it stays in fp32."""

_HALVES = (torch.float16, torch.bfloat16)


def mark(module: torch.fx.GraphModule, names: Iterable[str]) -> None:
    """Marks nodes by their names in the exported program; those that give no float are left out.

    Raises:
        RouteError: the program has no such node.
    """
    nodes = {node.name: node for node in module.graph.nodes if node.op == "call_function"}
    for name in names:
        if name not in nodes:
            raise RouteError(
                f"the exported program has no node {name!r} to keep in fp32", "make the variant again"
            )
        if any(_is_float(leaf) for leaf in tree_leaves(nodes[name].meta.get("val"))):
            nodes[name].meta[KEPT] = True


def split(module: torch.fx.GraphModule, half: torch.dtype, device_type: str) -> None:
    """Rewrites the marked nodes, in place; without any nothing changes."""
    graph = module.graph
    for node in graph.nodes:
        if node.target is operator.getitem and node.args[0].meta.get(KEPT):
            node.meta[KEPT] = True
    kept = [node for node in graph.nodes if node.meta.get(KEPT)]
    for node in kept:
        _cast_back(graph, node, half)
        if node.target is not operator.getitem:
            node.args = (node.target, device_type, *node.args)
            node.target = in_fp32
    if kept:
        module.recompile()


def _cast_back(graph: torch.fx.Graph, node: torch.fx.Node, half: torch.dtype) -> None:
    others = [user for user in node.users if not user.meta.get(KEPT) and user.op != "output"]
    if not others:
        return
    with graph.inserting_after(node):
        cast = graph.call_function(to_half, (node, half))
    for user in others:
        user.replace_input_with(node, cast)


def in_fp32(op: Any, device_type: str, *args: Any, **kwargs: Any) -> Any:
    """Runs an operator on fp32 inputs, whatever autocast would do."""
    args, kwargs = tree_map_only(torch.Tensor, _whole, (args, kwargs))
    with torch.autocast(device_type, enabled=False):
        return op(*args, **kwargs)


def to_half(value: torch.Tensor, half: torch.dtype) -> torch.Tensor:
    return value.to(half) if value.dtype == torch.float32 else value


def _whole(value: torch.Tensor) -> torch.Tensor:
    return value.float() if value.dtype in _HALVES else value


def _is_float(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype == torch.float32
