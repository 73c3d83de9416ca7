"""Elementwise functions merged."""

from __future__ import annotations

from native.passes.build import Builder, ops, same_after

from wavefit.native.passes import elementwise


def test_a_value_read_at_several_places_of_one_expression():
    build = Builder()
    x = build.apply("add", build.input(2, 3), build.input(3))
    y = build.apply("mul", x, build.apply("sigmoid", x))
    graph = build.graph(build.apply("relu", build.apply("sub", y, x)))
    same_after(elementwise.run, graph, build.feeds())
    assert ops(graph) == {"Pointwise": 1}
    (node,) = graph.nodes
    assert len(node.inputs) == 2
    assert [step.function for step in node.epilogue.steps].count("add") == 1


def test_what_the_graph_gives_out_or_another_node_reads_is_stored():
    build = Builder()
    x = build.apply("exp", build.input(2, 3))
    y = build.apply("tanh", x)
    graph = build.graph(build.apply("relu", y), build.reduce(y, "sum", 1), x)
    same_after(elementwise.run, graph, build.feeds())
    assert ops(graph) == {"Pointwise": 3, "Reduce": 1}


def test_a_small_tensor_is_computed_once_not_for_each_element():
    build = Builder()
    gate = build.apply("sigmoid", build.input(2, 3, 1))
    graph = build.graph(build.apply("mul", build.input(2, 3, 9), gate))
    same_after(elementwise.run, graph, build.feeds())
    assert ops(graph) == {"Pointwise": 2}


def test_the_operands_of_one_expression_are_bounded():
    build = Builder()
    total = build.input(4)
    for _ in range(20):
        total = build.apply("add", total, build.input(4))
    graph = build.graph(total)
    same_after(elementwise.run, graph, build.feeds())
    assert 3 <= ops(graph)["Pointwise"] <= 4
    assert max(len(node.inputs) for node in graph.nodes) == elementwise.MOST_OPERANDS


def test_casts_in_a_row_are_one():
    build = Builder()
    x = build.input(3)
    y = build.apply("cast", build.apply("cast", x, dtype="float16"), dtype="float32")
    graph = build.graph(build.apply("cast", build.apply("relu", y), dtype="int32"))
    same_after(elementwise.run, graph, build.feeds())
    (node,) = graph.nodes
    assert [(step.function, step.dtype) for step in node.epilogue.steps] == [
        ("relu", "float32"),
        ("cast", "int32"),
    ]


def test_a_cast_that_cuts_stays_within_the_expression():
    build = Builder()
    x = build.apply("cast", build.input(5), dtype="int32")
    graph = build.graph(build.apply("mul", build.apply("cast", x), 3.0))
    same_after(elementwise.run, graph, {"in0": build.rng.standard_normal(5) * 9})
    assert ops(graph) == {"Pointwise": 1}
    assert len(graph.nodes[0].epilogue.steps) == 3


def test_sources_are_all_named():
    build = Builder()
    graph = build.graph(build.apply("relu", build.apply("exp", build.input(3))))
    elementwise.run(graph)
    assert graph.nodes[0].source == ("Pointwise0", "Pointwise1")
