"""Tensors in 16 bits: which values are, and what becomes of constants that half does not hold."""

from __future__ import annotations

import numpy as np
from native.passes.build import Builder

from wavefit.native.half import store


def test_everything_between_is_half_and_what_the_caller_sees_is_not() -> None:
    build = Builder(dtype="float32")
    x = build.input(2, 3, 4, 4)
    hidden = build.apply("relu", build.conv(x, 5, 3, bias=True))
    graph = build.graph(build.conv(hidden, 4))
    store(graph, "float16")
    first, relu, last = graph.nodes
    assert [value.dtype for value in graph.inputs + graph.outputs] == ["float32", "float32"]
    assert first.output.dtype == relu.output.dtype == "float16"
    for node in (first, last):
        weight = node.inputs[1]
        assert weight is not None
        assert weight.constant is not None
        assert weight.dtype == weight.constant.dtype.name == "float16"


def test_constants_past_half_are_held_to_it_and_infinity_stays() -> None:
    build = Builder(dtype="float32")
    masked = build.apply("add", build.input(4), build.constant([-1e9, 7e4, -np.inf, np.nan]))
    graph = build.graph(build.apply("exp", masked))
    store(graph, "float16")
    (constant,) = [value.constant for value in graph.nodes[0].inputs if value and value.constant is not None]
    np.testing.assert_array_equal(constant, np.array([-65504, 65504, -np.inf, np.nan], np.float16))


def test_integers_stay_integers() -> None:
    build = Builder(dtype="float32")
    places = build.input(3, dtype="int64")
    table = build.weights(7, 2)
    graph = build.graph(build.apply("exp", build.node("Gather", [table, places], (3, 2), axis=0)))
    store(graph, "float16")
    assert places.dtype == "int64"
    assert table.dtype == "float16"


def test_what_an_output_is_a_view_of_is_not_half() -> None:
    """SqueezeNet ends in a Softmax and a Reshape: the caller would read twice as many bytes as there are."""
    build = Builder(dtype="float32")
    hidden = build.apply("exp", build.input(2, 6))
    made = build.apply("tanh", hidden)
    graph = build.graph(build.transpose(build.reshape(made, 2, 3, 2), 0, 2, 1))
    store(graph, "float16")
    assert (hidden.dtype, made.dtype) == ("float16", "float32")
    assert {node.output.dtype for node in graph.nodes if node.op in ("Reshape", "Transpose")} == {"float32"}
