"""What nobody reads."""

from __future__ import annotations

from native.passes.build import Builder, ops, same_after

from wavefit.native.passes import prune


def test_nodes_that_lead_nowhere_go():
    build = Builder()
    x = build.input(2, 3)
    build.apply("exp", build.apply("relu", x))
    graph = build.graph(build.apply("tanh", x))
    same_after(prune.run, graph, build.feeds())
    assert ops(graph) == {"Pointwise": 1}
