"""Views merged, folded and taken out."""

from __future__ import annotations

import numpy as np
from native.passes.build import Builder, ops, same_after

from wavefit.native.passes import views


def test_transposes_that_undo_each_other_go():
    build = Builder()
    x = build.input(2, 3, 4)
    y = build.transpose(build.transpose(x, 2, 0, 1), 1, 2, 0)
    graph = build.graph(build.apply("relu", y))
    same_after(views.run, graph, build.feeds())
    assert ops(graph) == {"Pointwise": 1}


def test_transposes_and_reshapes_in_a_row_are_one_each():
    build = Builder()
    x = build.input(2, 3, 4)
    y = build.transpose(build.transpose(x, 2, 0, 1), 0, 2, 1)
    y = build.reshape(build.reshape(y, 12, 2), 3, 8)
    graph = build.graph(build.apply("relu", y))
    same_after(views.run, graph, build.feeds())
    assert ops(graph) == {"Transpose": 1, "Reshape": 1, "Pointwise": 1}
    assert graph.nodes[0].attributes["perm"] == (2, 1, 0)


def test_a_transpose_read_elsewhere_stays_for_that_reader():
    build = Builder()
    x = build.input(2, 3)
    first = build.transpose(x, 1, 0)
    graph = build.graph(first, build.apply("relu", build.transpose(first, 1, 0)))
    same_after(views.run, graph, build.feeds())
    assert ops(graph) == {"Transpose": 1, "Pointwise": 1}


def test_moving_axes_of_size_one_is_a_reshape():
    build = Builder()
    graph = build.graph(build.transpose(build.input(1, 3, 4), 1, 0, 2))
    same_after(views.run, graph, build.feeds())
    assert ops(graph) == {"Reshape": 1}


def test_an_output_keeps_its_name_when_its_view_goes():
    build = Builder()
    y = build.apply("relu", build.input(2, 3))
    graph = build.graph(build.reshape(y, 2, 3))
    same_after(views.run, graph, build.feeds())
    assert ops(graph) == {"Pointwise": 1}


def test_an_input_given_out_keeps_both_names():
    build = Builder()
    graph = build.graph(build.reshape(build.input(2, 3), 2, 3))
    same_after(views.run, graph, build.feeds())
    assert ops(graph) == {"Reshape": 1}


def test_constants_are_turned_and_cut_now():
    build = Builder()
    x = build.input(2, 3)
    weight = build.transpose(build.weights(5, 4), 1, 0)
    part = build.node("Slice", [weight], (3, 2), starts=(3, 1), steps=(-1, 2))
    graph = build.graph(build.matmul(x, build.reshape(part, 3, 2)))
    same_after(views.run, graph, build.feeds())
    assert ops(graph) == {"MatMul": 1}


def test_elementwise_functions_repeat_their_operands_themselves():
    build = Builder()
    x, row = build.input(2, 3), build.input(3)
    graph = build.graph(build.apply("add", x, build.node("Expand", [row], (2, 3))))
    same_after(views.run, graph, build.feeds())
    assert ops(graph) == {"Pointwise": 1}


def test_a_cut_that_reverses_is_none_that_can_go():
    build = Builder()
    x = build.input(3)
    graph = build.graph(build.node("Slice", [x], (3,), starts=(2,), steps=(-1,)))
    same_after(views.run, graph, {"in0": np.array([1.0, 2.0, 3.0])})
    assert ops(graph) == {"Slice": 1}


def test_leading_axes_that_are_joined_for_a_transpose_stay_apart():
    """As PyTorch exports the keys of an attention; joining batch and heads of a transposed tensor is a copy."""
    build = Builder()
    x = build.transpose(build.input(2, 4, 3, 5), 0, 2, 1, 3)
    y = build.transpose(build.reshape(x, 6, 4, 5), 0, 2, 1)
    graph = build.graph(build.apply("relu", build.reshape(y, 2, 3, 5, 4)))
    same_after(views.run, graph, build.feeds())
    assert ops(graph) == {"Transpose": 1, "Pointwise": 1}
    assert graph.nodes[0].attributes["perm"] == (0, 2, 3, 1)


def test_axes_that_are_split_in_another_way_after_a_transpose_are_joined():
    build = Builder()
    y = build.transpose(build.reshape(build.input(2, 3, 4, 5), 6, 4, 5), 0, 2, 1)
    graph = build.graph(build.reshape(y, 3, 2, 5, 4))
    same_after(views.run, graph, build.feeds())
    assert ops(graph) == {"Reshape": 2, "Transpose": 1}


def test_an_axis_of_one_before_them_is_no_matter():
    build = Builder()
    x = build.node(
        "Slice", [build.input(3, 2, 3, 4, 5)], (1, 2, 3, 4, 5), starts=(1, 0, 0, 0, 0), steps=(1,) * 5
    )
    y = build.transpose(build.reshape(x, 6, 4, 5), 0, 2, 1)
    graph = build.graph(build.reshape(y, 2, 3, 5, 4))
    same_after(views.run, graph, build.feeds())
    assert ops(graph) == {"Slice": 1, "Reshape": 1, "Transpose": 1}
    assert graph.nodes[1].output.shape == (2, 3, 4, 5)
