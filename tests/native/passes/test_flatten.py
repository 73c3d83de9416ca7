"""Weights in the order of the image that they read: the same answers, and no copy."""

from __future__ import annotations

import pytest
from native.passes.build import Builder, same_after

from wavefit.native.graph import Graph, Value
from wavefit.native.layout import Layout, lay_out
from wavefit.native.passes import flatten


def _copies(graph: Graph) -> int:
    layout = lay_out(graph, lambda operation: 1e-6)
    assert isinstance(layout, Layout)
    return sum(node.op == "Copy" for node in layout.nodes)


def _image(build: Builder, relu: bool) -> Value:
    image = build.conv(build.input(2, 3, 4, 5), 6, 3)
    return build.apply("relu", image) if relu else image


def _flat(build: Builder, image: Value) -> Value:
    batch, *rest = image.shape
    return build.reshape(image, batch, rest[0] * rest[1] * rest[2])


@pytest.mark.parametrize("relu", [False, True])
def test_an_image_is_read_where_it_lies(relu: bool) -> None:
    build = Builder()
    flat = _flat(build, _image(build, relu))
    outputs = [build.matmul(flat, build.weights(120, columns)) for columns in (7, 3)]
    graph = build.graph(*outputs)
    assert _copies(graph) == 1
    same_after(flatten.run, graph, build.feeds())
    assert _copies(graph) == 0
    assert flatten.run(graph) == 0


def test_what_others_read_too_stays() -> None:
    build = Builder()
    flat = _flat(build, _image(build, False))
    graph = build.graph(build.matmul(flat, build.weights(120, 7)), build.apply("exp", flat))
    assert flatten.run(graph) == 0


def test_an_output_of_the_graph_stays() -> None:
    build = Builder()
    flat = _flat(build, _image(build, False))
    assert flatten.run(build.graph(flat, build.matmul(flat, build.weights(120, 7)))) == 0


def test_an_input_that_lies_channels_first_stays() -> None:
    build = Builder()
    graph = build.graph(build.matmul(_flat(build, build.input(2, 6, 4, 5)), build.weights(120, 7)))
    assert flatten.run(graph) == 0


def test_one_pixel_and_joined_batches_stay() -> None:
    build = Builder()
    pixel = build.conv(build.input(2, 3, 1, 1), 6)
    joined = build.reshape(_image(build, False), 1, 240)
    graph = build.graph(
        build.matmul(build.reshape(pixel, 2, 6), build.weights(6, 7)),
        build.matmul(joined, build.weights(240, 7)),
    )
    assert flatten.run(graph) == 0
