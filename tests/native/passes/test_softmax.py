"""Softmax from exponentials."""

from __future__ import annotations

import pytest
from native.passes.build import Builder, ops, same_after

from wavefit.native.passes import softmax


@pytest.mark.parametrize("maximum", [True, False])
@pytest.mark.parametrize("axis", [1, 2])
def test_exponentials_over_their_sum(maximum, axis):
    build = Builder()
    x = build.input(2, 3, 4)
    d = build.apply("sub", x, build.reduce(x, "max", axis)) if maximum else x
    e = build.apply("exp", d)
    graph = build.graph(build.apply("div", e, build.reduce(e, "sum", axis)))
    same_after(softmax.run, graph, build.feeds())
    assert ops(graph) == {"Softmax": 1}
    assert graph.nodes[0].inputs == graph.inputs


def test_a_sum_of_other_exponentials_is_none():
    build = Builder()
    x, y = build.input(2, 3), build.input(2, 3)
    e, other = build.apply("exp", x), build.apply("exp", y)
    graph = build.graph(build.apply("div", e, build.reduce(other, "sum", 1)))
    same_after(softmax.run, graph, build.feeds())
    assert "Softmax" not in ops(graph)


def test_a_sum_over_two_axes_is_none():
    build = Builder()
    e = build.apply("exp", build.input(2, 3))
    graph = build.graph(build.apply("div", e, build.reduce(e, "sum", 0, 1)))
    same_after(softmax.run, graph, build.feeds())
    assert "Softmax" not in ops(graph)
