"""LayerNormalization from its means."""

from __future__ import annotations

import pytest
from native.passes.build import Builder, ops, same_after

from wavefit.native.graph import Value
from wavefit.native.passes import layer_norm


def _normalised(build: Builder, x: Value, axes: tuple[int, ...], square: str, root: str) -> Value:
    d = build.apply("sub", x, build.reduce(x, "mean", *axes))
    squares = build.apply("pow", d, 2.0) if square == "pow" else build.apply("mul", d, d)
    variance = build.apply("sqrt", build.apply("add", build.reduce(squares, "mean", *axes), 1e-5))
    if root == "div":
        return build.apply("div", d, variance)
    inverse = build.apply("div", 1.0, variance) if root == "one over" else build.apply("reciprocal", variance)
    return build.apply("mul", inverse, d)


@pytest.mark.parametrize("root", ["div", "one over", "reciprocal"])
@pytest.mark.parametrize("square", ["pow", "mul"])
@pytest.mark.parametrize("axes", [(2,), (1, 2)])
def test_normalisation_with_scale_and_bias(axes, square, root):
    build = Builder()
    x = build.input(2, 3, 4)
    y = _normalised(build, x, axes, square, root)
    shape = x.shape[axes[0] :]
    y = build.apply("add", build.weights(1, *shape), build.apply("mul", y, build.weights(*shape)))
    graph = build.graph(y)
    same_after(layer_norm.run, graph, build.feeds())
    assert ops(graph) == {"LayerNormalization": 1}
    assert graph.nodes[0].attributes == {"axis": axes[0], "epsilon": 1e-5}


def test_normalisation_alone():
    build = Builder()
    graph = build.graph(_normalised(build, build.input(2, 3, 4), (2,), "pow", "div"))
    same_after(layer_norm.run, graph, build.feeds())
    assert ops(graph) == {"LayerNormalization": 1}


def test_a_computed_scale_stays_beside_it():
    build = Builder()
    x, scale = build.input(2, 3, 4), build.input(4)
    y = build.apply("mul", _normalised(build, x, (2,), "pow", "div"), scale)
    graph = build.graph(y)
    same_after(layer_norm.run, graph, build.feeds())
    assert ops(graph) == {"LayerNormalization": 1, "Pointwise": 1}


def test_means_over_other_axes_are_none():
    build = Builder()
    graph = build.graph(_normalised(build, build.input(2, 3, 4), (1,), "pow", "div"))
    same_after(layer_norm.run, graph, build.feeds())
    assert "LayerNormalization" not in ops(graph)
