"""What is computed twice is computed once."""

from __future__ import annotations

from native.passes.build import Builder, ops, same_after

from wavefit.native.passes import common


def test_equal_nodes_on_equal_constants_are_one():
    build = Builder()
    x = build.input(2, 3)
    one, other = (build.apply("add", x, build.constant([1.0, 2.0, 3.0])) for _ in range(2))
    graph = build.graph(build.apply("mul", build.apply("exp", one), build.apply("exp", other)))
    same_after(common.run, graph, build.feeds())
    assert ops(graph) == {"Pointwise": 3}


def test_other_attributes_types_or_constants_are_other_nodes():
    build = Builder()
    x = build.input(4, 4)
    parts = [
        build.transpose(x, 1, 0),
        build.transpose(x, 0, 1),
        build.apply("add", x, build.constant([[1.0]])),
        build.apply("add", x, build.constant([1.0])),
        build.apply("add", x, build.constant([2.0])),
    ]
    graph = build.graph(build.node("Concat", list(parts), (20, 4), axis=0))
    same_after(common.run, graph, build.feeds())
    assert ops(graph) == {"Transpose": 2, "Pointwise": 3, "Concat": 1}


def test_two_outputs_stay_two():
    build = Builder()
    x = build.input(2, 3)
    graph = build.graph(build.apply("exp", x), build.apply("exp", x))
    same_after(common.run, graph, build.feeds())
    assert ops(graph) == {"Pointwise": 2}
