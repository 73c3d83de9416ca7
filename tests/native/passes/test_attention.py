"""Attention as exporters write it."""

from __future__ import annotations

import numpy as np
import pytest
from native.passes.build import Builder, ops, same_after

from wavefit.native.graph import Value
from wavefit.native.passes import attention

SHAPE = (2, 3, 4, 5)  # batch, heads, M, D


def _parts(build: Builder) -> tuple[Value, Value, Value]:
    return build.input(*SHAPE), build.input(2, 3, 6, 5), build.input(2, 3, 6, 7)


def _product(build: Builder, q: Value, k: Value) -> Value:
    return build.matmul(q, build.transpose(k, 0, 1, 3, 2))


@pytest.mark.parametrize("scale", ["mul", "div", "both sides", "none"])
@pytest.mark.parametrize("mask", ["added", "first", "none"])
def test_scale_and_mask(scale, mask):
    build = Builder()
    q, k, v = _parts(build)
    bias = build.input(2, 1, 1, 6)
    if scale == "both sides":
        turned = build.apply("mul", build.transpose(k, 0, 1, 3, 2), 0.6)
        scores = build.matmul(build.apply("mul", q, 0.6), turned)
    else:
        scores = _product(build, q, k)
    if scale in ("mul", "div"):
        scores = build.apply(scale, scores, 3.0)
    if mask != "none":
        scores = build.apply("add", *((bias, scores) if mask == "first" else (scores, bias)))
    graph = build.graph(build.matmul(build.softmax(scores, 3), v))
    same_after(attention.run, graph, build.feeds())
    assert ops(graph) == {"Attention": 1}
    want = {"mul": 3.0, "div": 1 / 3, "both sides": 0.36, "none": 1.0}[scale]
    assert graph.nodes[0].attributes["scale"] == pytest.approx(want)
    assert graph.nodes[0].inputs == [q, k, v, None if mask == "none" else bias]


def test_keys_split_into_heads_by_one_transpose():
    build = Builder()
    q, v = build.input(2, 3, 4, 5), build.input(2, 3, 6, 7)
    k = build.input(2, 6, 3, 5)
    scores = build.matmul(q, build.transpose(k, 0, 2, 3, 1))
    graph = build.graph(build.matmul(build.softmax(scores, 3), v))
    same_after(attention.run, graph, build.feeds())
    assert ops(graph) == {"Transpose": 1, "Attention": 1}
    assert graph.nodes[0].attributes["perm"] == (0, 2, 1, 3)


@pytest.mark.parametrize("hidden", ["yes", "no"])
def test_a_where_of_minus_infinity_is_a_mask(hidden):
    build = Builder()
    q, k, v = _parts(build)
    scores, condition = _product(build, q, k), build.input(4, 6, dtype="bool")
    low = build.constant(-np.inf, "float32")
    arms = (low, scores) if hidden == "yes" else (scores, low)
    scores = build.apply("where", condition, *arms)
    graph = build.graph(build.matmul(build.softmax(scores, 3), v))
    feeds = build.feeds()
    feeds["in3"][:, 0] = hidden == "no"  # each row has a key
    same_after(attention.run, graph, feeds)
    assert ops(graph) == {"Pointwise": 1, "Attention": 1}


@pytest.mark.parametrize("low", [-1e4, -1e9])
def test_a_small_finite_number_for_scores_is_a_mask_only_where_no_row_is_hidden(low):
    """softmax of a row of equal numbers is uniform, and of scores plus that number it is not."""
    for rows, made in ((np.tri(4, 6), {"Attention": 1}), (np.zeros((4, 6)), None)):
        build = Builder()
        q, k, v = _parts(build)
        scores = build.apply("where", build.constant(rows, "bool"), _product(build, q, k), low)
        graph = build.graph(build.matmul(build.softmax(scores, 3), v))
        same_after(attention.run, graph, build.feeds())
        assert ("Attention" in ops(graph)) == (made is not None)


def test_rows_that_are_hidden_as_a_whole_stay_zero():
    """PyTorch's export: Where(IsNaN(softmax), 0, softmax)."""
    build = Builder()
    q, k, v = _parts(build)
    mask = build.input(4, 6)
    weights = build.softmax(build.apply("add", _product(build, q, k), mask), 3)
    weights = build.apply("where", build.apply("isnan", weights, dtype="bool"), 0.0, weights)
    graph = build.graph(build.matmul(weights, v))
    feeds = build.feeds()
    feeds["in3"] = np.where(np.tri(4, 6, -1) > 0, 0.0, -np.inf)
    same_after(attention.run, graph, feeds)
    assert ops(graph) == {"Attention": 1}


def test_two_masks_are_added():
    build = Builder()
    q, k, v = _parts(build)
    position, mask = build.input(1, 3, 4, 6), build.input(2, 1, 1, 6)
    scores = build.apply("add", build.apply("add", _product(build, q, k), position), mask)
    graph = build.graph(build.matmul(build.softmax(scores, 3), v))
    same_after(attention.run, graph, build.feeds())
    assert ops(graph) == {"Pointwise": 1, "Attention": 1}


@pytest.mark.parametrize("why", ["weights given out", "scores read twice", "softmax over queries"])
def test_no_attention(why):
    build = Builder()
    q, k, v = _parts(build)
    scores = _product(build, q, k)
    weights = build.softmax(scores, 2 if why == "softmax over queries" else 3)
    extra = {"weights given out": [weights], "scores read twice": [build.apply("exp", scores)]}.get(why, [])
    graph = build.graph(build.matmul(weights, v), *extra)
    graph.prune()
    same_after(attention.run, graph, build.feeds())
    assert "Attention" not in ops(graph)
