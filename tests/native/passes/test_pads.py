"""A Pad is done by what reads it, where that is the same."""

from __future__ import annotations

import pytest
from native.passes.build import Builder, ops, same_after

from wavefit.native.graph import Value
from wavefit.native.passes import pads

SPATIAL = (0, 0, 1, 0, 0, 0, 2, 1)


def _pad(
    build: Builder, x: Value, by: tuple[int, ...] = SPATIAL, value: float = 0.0, mode: str = "constant"
) -> Value:
    shape = tuple(n + a + b for n, a, b in zip(x.shape, by[:4], by[4:], strict=True))
    return build.node("Pad", [x], shape, pads=by, mode=mode, value=value)


def _pool(build: Builder, op: str, x: Value, pad: int, **attributes: object) -> Value:
    shape = (*x.shape[:2], *((n + 2 * pad - 3) // 2 + 1 for n in x.shape[2:]))
    window = {"kernel_shape": (3, 3), "strides": (2, 2), "pads": (pad,) * 4, "dilations": (1, 1)}
    return build.node(op, [x], shape, **window, **attributes)


@pytest.mark.parametrize("pad", [0, 1])
def test_a_convolution_pads(pad):
    build = Builder()
    graph = build.graph(build.conv(_pad(build, build.input(2, 3, 5, 6)), 4, 3, pad=pad))
    same_after(pads.run, graph, build.feeds())
    assert ops(graph) == {"Conv": 1}
    assert graph.nodes[0].attributes["pads"] == (1 + pad, pad, 2 + pad, 1 + pad)


@pytest.mark.parametrize(
    ("value", "by"), [(1.0, SPATIAL), (0.0, (0, 1, 0, 0, 0, 0, 0, 0)), (0.0, (0, 0, 1, 0, 0, 0, -1, 0))]
)
def test_a_convolution_pads_with_zeros_and_space_only(value, by):
    build = Builder()
    x = build.input(2, 3, 5, 6)
    if min(by) < 0:
        padded = build.node("Pad", [x], (2, 3, 5, 6), pads=by, mode="constant", value=value)
        graph = build.graph(build.conv(padded, 4, 3))
        assert pads.run(graph) == 0
        return
    graph = build.graph(build.conv(_pad(build, x, by, value), 4, 3))
    same_after(pads.run, graph, build.feeds())
    assert ops(graph) == {"Pad": 1, "Conv": 1}


def test_reflection_stays():
    build = Builder()
    graph = build.graph(build.conv(_pad(build, build.input(1, 3, 5, 6), mode="reflect"), 4, 3))
    assert pads.run(graph) == 0


@pytest.mark.parametrize(
    ("pad", "counted", "taken"), [(0, 0, True), (0, 1, True), (1, 1, True), (1, 0, False)]
)
def test_an_average_counts_what_was_padded(pad, counted, taken):
    build = Builder()
    x = _pad(build, build.input(2, 3, 6, 6))
    graph = build.graph(_pool(build, "AveragePool", x, pad, count_include_pad=counted))
    same_after(pads.run, graph, build.feeds())
    assert ("Pad" not in ops(graph)) == taken


@pytest.mark.parametrize(
    ("value", "relu", "taken"), [(float("-inf"), False, True), (0.0, True, True), (0.0, False, False)]
)
def test_a_maximum_ignores_what_no_element_is_less_than(value, relu, taken):
    build = Builder()
    x = build.input(2, 3, 6, 6)
    x = build.apply("relu", x) if relu else build.apply("sub", x, 9.0)
    graph = build.graph(_pool(build, "MaxPool", _pad(build, x, value=value), 0))
    same_after(pads.run, graph, build.feeds())
    assert ("Pad" not in ops(graph)) == taken


def test_a_maximum_over_nothing_but_zeros_stays():
    build = Builder()
    x = build.apply("relu", build.input(2, 3, 6, 6))
    graph = build.graph(_pool(build, "MaxPool", _pad(build, x, (0, 0, 3, 3, 0, 0, 3, 3)), 0))
    same_after(pads.run, graph, build.feeds())
    assert "Pad" in ops(graph)


def test_a_pad_that_others_read_stays():
    build = Builder()
    x = _pad(build, build.input(1, 3, 5, 6))
    graph = build.graph(build.conv(x, 4, 3), build.apply("relu", x))
    same_after(pads.run, graph, build.feeds())
    assert "Pad" in ops(graph)
