"""Bias, residual addition and activation where the result is made."""

from __future__ import annotations

import pytest
from native.passes.build import Builder, ops, same_after

from wavefit.native.passes import elementwise, epilogue


def _both(graph):
    elementwise.run(graph)
    epilogue.run(graph)


def test_a_residual_block_is_its_convolutions():
    build = Builder()
    x = build.input(1, 4, 5, 5)
    y = build.apply("relu", build.conv(x, 4, 3))
    y = build.apply("relu", build.apply("add", build.conv(y, 4, 3), x))
    graph = build.graph(y)
    same_after(_both, graph, build.feeds())
    assert ops(graph) == {"Conv": 2}


def test_of_two_convolutions_that_are_added_the_later_one_adds():
    build = Builder()
    x = build.input(1, 4, 5, 5)
    one, two = build.conv(x, 4, 3), build.conv(x, 4)
    graph = build.graph(build.apply("relu", build.apply("add", two, one)))
    same_after(_both, graph, build.feeds())
    first, second = graph.nodes
    assert first.epilogue is None
    assert second.inputs[second.own :] == [first.output]


def test_an_operand_that_is_computed_later_is_waited_for():
    build = Builder()
    x = build.input(1, 4, 5, 5)
    y = build.conv(x, 4)
    gate = build.softmax(x, 1)
    z = build.apply("mul", y, build.transpose(gate, 0, 1, 3, 2))
    graph = build.graph(z)
    same_after(_both, graph, build.feeds())
    assert [node.op for node in graph.nodes] == ["Softmax", "Transpose", "Conv"]


@pytest.mark.parametrize("op", ["MatMul", "Reduce", "Softmax", "MaxPool"])
def test_other_operators_have_epilogues_too(op):
    build = Builder()
    x = build.input(1, 4, 6, 6)
    made = {
        "MatMul": lambda: build.matmul(x, build.weights(6, 3)),
        "Reduce": lambda: build.reduce(x, "mean", 2, 3),
        "Softmax": lambda: build.softmax(x, 1),
        "MaxPool": lambda: build.node(
            "MaxPool", [x], (1, 4, 3, 3), kernel_shape=(2, 2), strides=(2, 2), pads=(0,) * 4, dilations=(1, 1)
        ),
    }[op]()
    graph = build.graph(build.apply("tanh", build.apply("add", made, build.weights(4, 1, 1))))
    same_after(_both, graph, build.feeds())
    assert ops(graph) == {op: 1}


@pytest.mark.parametrize("why", ["read twice", "given out", "repeated", "integers", "view", "before"])
def test_what_stays_a_node_of_its_own(why):
    build = Builder()
    x = build.input(1, 4, 5, 5)
    pooled = build.reduce(x, "mean", 2, 3)
    y = {"repeated": pooled, "view": build.transpose(x, 0, 1, 3, 2), "before": x}.get(why) or build.conv(x, 4)
    z = build.apply("add", y, x)
    z = build.apply("greater", z, 0.0, dtype="bool") if why == "integers" else z
    z = build.conv(z, 3) if why == "before" else z
    extra = {"read twice": [build.softmax(y, 1)], "given out": [y]}.get(why, [])
    graph = build.graph(z, *extra)
    graph.prune()
    same_after(_both, graph, build.feeds())
    assert ops(graph)["Pointwise"] == 1


def test_a_result_added_to_itself():
    build = Builder()
    y = build.conv(build.input(1, 4, 5, 5), 4)
    graph = build.graph(build.apply("add", y, y))
    same_after(epilogue.run, graph, build.feeds())
    assert ops(graph) == {"Conv": 1}


def test_a_second_pointwise_joins_the_first_ones_epilogue():
    build = Builder()
    x = build.input(1, 4, 5, 5)
    y = build.apply("add", build.conv(x, 4), x)
    y = build.apply("mul", build.apply("relu", y), build.weights(4, 1, 1))
    graph = build.graph(y)
    same_after(epilogue.run, graph, build.feeds())
    assert ops(graph) == {"Conv": 1}
    assert graph.nodes[0].epilogue.operands == 3
