"""Scales and shifts in weights."""

from __future__ import annotations

import numpy as np
import pytest
from native.passes.build import Builder, ops, same_after

from wavefit.native.passes import affine


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("group", [1, 2, 4])
def test_batch_norm_after_a_convolution(group, bias, dtype):
    build = Builder(dtype=dtype)
    x = build.input(2, 4, 5, 5)
    graph = build.graph(build.batch_norm(build.conv(x, 8, 3, group=group, bias=bias)))
    same_after(affine.run, graph, build.feeds(), 1e-12 if dtype == "float64" else 1e-6)
    assert ops(graph) == {"Conv": 1}
    assert graph.nodes[0].inputs[2] is not None


@pytest.mark.parametrize("group", [1, 2])
def test_batch_norm_after_a_transposed_convolution(group):
    build = Builder()
    x = build.input(1, 4, 3, 3)
    weight = build.weights(4, 6 // group, 2, 2)
    window = {"strides": (2, 2), "pads": (0, 1, 1, 0), "dilations": (1, 1), "output_padding": (0, 0)}
    y = build.node("ConvTranspose", [x, weight, None], (1, 6, 5, 5), group=group, **window)
    graph = build.graph(build.batch_norm(y))
    same_after(affine.run, graph, build.feeds())
    assert ops(graph) == {"ConvTranspose": 1}


def test_a_scale_after_a_product_goes_into_its_weight_and_the_shift_stays():
    build = Builder()
    x = build.input(2, 3, 4)
    y = build.apply("add", build.matmul(x, build.weights(4, 5)), build.weights(5))
    y = build.apply("add", build.apply("mul", y, build.weights(5)), build.weights(5))
    graph = build.graph(y)
    same_after(affine.run, graph, build.feeds())
    assert ops(graph) == {"MatMul": 1, "Pointwise": 1}
    assert [step.function for step in graph.nodes[1].epilogue.steps] == ["add"]


@pytest.mark.parametrize(("pad", "folded"), [(0, True), (1, False)])
@pytest.mark.parametrize("group", [1, 2])
def test_batch_norm_before_a_convolution_that_does_not_pad(group, pad, folded):
    build = Builder()
    x = build.batch_norm(build.input(2, 4, 5, 5))
    graph = build.graph(build.conv(x, 6, 3, group=group, bias=True, pad=pad))
    same_after(affine.run, graph, build.feeds())
    assert ops(graph) == ({"Conv": 1} if folded else {"Pointwise": 1, "Conv": 1})


def test_a_scale_before_a_convolution_that_pads():
    build = Builder()
    x = build.apply("mul", build.input(2, 4, 5, 5), build.weights(4, 1, 1))
    graph = build.graph(build.conv(x, 6, 3))
    same_after(affine.run, graph, build.feeds())
    assert ops(graph) == {"Conv": 1}
    assert graph.nodes[0].inputs[2] is None


def test_an_activation_between_keeps_them_apart():
    build = Builder()
    x = build.apply("relu", build.batch_norm(build.input(2, 4, 5, 5)))
    graph = build.graph(build.conv(x, 6))
    same_after(affine.run, graph, build.feeds())
    assert ops(graph) == {"Pointwise": 2, "Conv": 1}


@pytest.mark.parametrize("why", ["read twice", "given out", "per pixel", "of two tensors"])
def test_what_is_not_folded(why):
    build = Builder()
    x = build.input(2, 4, 5, 5)
    y = build.conv(x, 4)
    shape = (4, 5, 5) if why == "per pixel" else (4, 1, 1)
    z = build.apply("mul", y, x if why == "of two tensors" else build.weights(*shape))
    extra = {"read twice": [build.apply("exp", y)], "given out": [y]}.get(why, [])
    graph = build.graph(z, *extra)
    graph.prune()
    same_after(affine.run, graph, build.feeds())
    assert ops(graph)["Pointwise"] == 1 + (why == "read twice")


def test_a_scale_past_the_weights_range_is_not_folded():
    build = Builder(dtype="float16")
    x = build.input(1, 4, 3, 3)
    y = build.conv(x, 4)
    graph = build.graph(build.apply("mul", y, build.constant(np.full((4, 1, 1), 1e6), "float32")))
    same_after(affine.run, graph, build.feeds())
    assert ops(graph) == {"Conv": 1, "Pointwise": 1}


def test_weights_that_two_layers_share_are_scaled_for_one():
    build = Builder()
    x = build.input(1, 4, 3, 3)
    one = build.conv(x, 4)
    two = build.conv(x, 4)
    build.nodes[1].inputs[1] = build.nodes[0].inputs[1]
    graph = build.graph(build.batch_norm(one), build.apply("relu", two))
    same_after(affine.run, graph, build.feeds())
    assert ops(graph) == {"Conv": 2, "Pointwise": 1}
