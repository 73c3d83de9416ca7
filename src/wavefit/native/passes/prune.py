"""Nodes whose outputs nobody reads are taken out."""

from __future__ import annotations

from wavefit.native.graph import Graph


def run(graph: Graph) -> int:
    """Returns how many nodes were taken out."""
    before = len(graph.nodes)
    graph.prune()
    return before - len(graph.nodes)
