"""Layouts, run in numpy: every node reads and writes through its views, in storages that start as NaN."""

from __future__ import annotations

import copy
from collections import Counter

import numpy as np
from native.interpret import compute, evaluate
from native.passes.build import Builder

from wavefit.native.graph import Graph, Value
from wavefit.native.layout import Layout, Placed, Storage, lay_out
from wavefit.native.operation import Operation

_COMPUTED = frozenset(("Conv", "Pointwise", "MatMul", "Copy", "Reduce", "MaxPool", "Softmax", "Attention"))


def _cost(operation: Operation) -> float | None:
    """Convolutions want channels-last inputs, as most of the templates do."""
    if operation.op not in _COMPUTED:
        return None
    if operation.op == "Conv" and not operation.input(0).channels_last:
        return None
    return 1e-6


def _laid(graph: Graph) -> Layout:
    layout = lay_out(graph, _cost)
    assert isinstance(layout, Layout), layout
    return layout


def _strided(memory: np.ndarray, place: Placed) -> np.ndarray:
    view = place.view
    steps = tuple(stride * memory.itemsize for stride in view.strides)
    return np.lib.stride_tricks.as_strided(memory[view.offset :], view.shape, steps)


def _run(graph: Graph, layout: Layout, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    memory: dict[Storage, np.ndarray] = {}

    def shown(value: Value) -> np.ndarray:
        place = layout.places[value]
        if place.storage not in memory:
            kind = np.float64 if place.storage.dtype.startswith("float") else place.storage.dtype
            memory[place.storage] = np.full(
                place.storage.elements, np.nan if kind is np.float64 else 99, kind
            )
            if place.storage.value is not None:
                root = place.storage.value
                _strided(memory[place.storage], layout.places[root])[...] = root.constant
        return _strided(memory[place.storage], place)

    for value in graph.inputs:
        shown(value)[...] = feeds[value.name]
    for node in layout.nodes:
        inputs = [None if value is None else np.array(shown(value)) for value in node.inputs]
        for value, array in zip(node.outputs, compute(node, inputs), strict=True):
            shown(value)[...] = array
    return [np.array(shown(value)) for value in graph.outputs]


def _same(graph: Graph, build: Builder) -> Layout:
    """The layout, after its answers were held against those of the graph itself."""
    feeds = build.feeds()
    want = evaluate(copy.deepcopy(graph), feeds)
    layout = _laid(graph)
    for exact, got in zip(want, _run(graph, layout, feeds), strict=True):
        np.testing.assert_allclose(got, exact, rtol=1e-12, atol=1e-12)
    return layout


def _ops(layout: Layout) -> Counter[str]:
    return Counter(node.op for node in layout.nodes)


def test_a_residual_block_lies_channels_last_with_copies_only_at_its_ends() -> None:
    build = Builder()
    x = build.conv(build.input(2, 4, 5, 6), 8, 3)
    y = build.conv(build.apply("relu", build.conv(x, 8, 3)), 8, 3)
    layout = _same(build.graph(build.apply("add", x, y)), build)
    assert _ops(layout)["Copy"] == 2
    assert all(layout.places[node.output].view.channels_last for node in layout.nodes if node.op == "Conv")


def _concat(build: Builder, *values: Value, axis: int = 1) -> Value:
    shape = list(values[0].shape)
    shape[axis] = sum(value.shape[axis] for value in values)
    return build.node("Concat", list(values), tuple(shape), axis=axis)


def test_parts_of_a_concat_are_made_in_their_place() -> None:
    build = Builder()
    x = build.input(1, 4, 5, 6)
    joined = _concat(build, build.conv(x, 3, 1), build.conv(x, 5, 3))
    layout = _same(build.graph(build.conv(joined, 2, 1)), build)
    assert _ops(layout) == {"Copy": 2, "Conv": 3}  # the input, the output, and nothing between


def test_nested_concats_share_one_storage_and_repeated_parts_are_copied() -> None:
    build = Builder()
    x = build.conv(build.input(1, 4, 3, 3), 4, 1)
    dense = x
    for _ in range(3):
        dense = _concat(build, dense, build.conv(dense, 2, 3))
    layout = _same(build.graph(build.conv(dense, 2, 1)), build)
    assert _ops(layout)["Copy"] == 2
    build = Builder()
    x = build.conv(build.input(1, 4, 3, 3), 4, 1)
    twice = _concat(build, x, x)
    _same(build.graph(build.conv(twice, 2, 1), x), build)


def test_a_concat_of_inputs_and_constants_and_along_other_axes() -> None:
    build = Builder()
    a, b = build.input(2, 3, 4), build.input(2, 3, 4)
    joined = _concat(build, a, build.constant(np.ones((2, 3, 4)), "float32"), build.apply("relu", b), axis=2)
    _same(build.graph(_concat(build, joined, joined, axis=0)), build)


def test_channels_are_shuffled_by_one_copy() -> None:
    build = Builder()
    x = build.conv(build.input(1, 4, 3, 5), 12, 1)
    split = build.reshape(x, 1, 3, 4, 3, 5)
    shuffled = build.reshape(build.transpose(split, 0, 2, 1, 3, 4), 1, 12, 3, 5)
    layout = _same(build.graph(build.conv(shuffled, 4, 1)), build)
    assert _ops(layout)["Copy"] == 3  # input, shuffle, output


def test_heads_are_views() -> None:
    build = Builder()
    x = build.input(2, 6, 8)
    q, k, v = (
        build.transpose(build.reshape(build.matmul(x, build.weights(8, 8)), 2, 6, 2, 4), 0, 2, 1, 3)
        for _ in "qkv"
    )
    scores = build.softmax(build.matmul(q, build.transpose(k, 0, 1, 3, 2)), 3)
    mixed = build.reshape(build.transpose(build.matmul(scores, v), 0, 2, 1, 3), 2, 6, 8)
    layout = _same(build.graph(build.matmul(mixed, build.weights(8, 8))), build)
    assert _ops(layout)["Copy"] == 1  # the heads' results, joined


def test_flattening_an_image_reorders_it_and_outputs_are_the_callers_own() -> None:
    build = Builder()
    x = build.conv(build.input(2, 3, 4, 5), 6, 3)
    flat = build.reshape(x, 2, 120)
    cut = build.node("Slice", [flat], (2, 38), starts=(0, 5), steps=(1, 3))
    backwards = build.node("Slice", [flat], (2, 4), starts=(1, 119), steps=(-1, -30))
    layout = _same(build.graph(build.matmul(flat, build.weights(120, 3)), cut, backwards, x), build)
    for node in layout.nodes:
        for value in node.outputs:
            place = layout.places[value]
            assert place.storage.kind != "output" or (place.view.row_major and place.view.offset == 0)


def test_a_value_given_out_twice_an_input_and_a_constant_given_out() -> None:
    build = Builder()
    x = build.input(2, 3)
    y = build.apply("relu", x)
    c = build.constant(np.arange(4.0), "float32")
    _same(build.graph(y, x, c), build)


def test_what_no_kernel_takes_is_named() -> None:
    build = Builder()
    odd = build.node("Odd", [build.input(2, 3)], (2, 3))
    stuck = lay_out(build.graph(odd), _cost)
    assert isinstance(stuck, tuple)
    assert [(node.op, node.node) for node in stuck] == [("Odd", "Odd0")]
    assert "float32[2, 3]" in stuck[0].reason


def test_parts_are_made_in_their_place_through_reshapes_and_transposes() -> None:
    """ViT's patches after its class token, and detections of several scales."""
    build = Builder()
    patches = build.conv(build.input(2, 3, 4, 5), 6)
    tokens = build.transpose(build.reshape(patches, 2, 6, 20), 0, 2, 1)
    first = build.apply("relu", build.input(2, 1, 6))
    layout = _same(build.graph(_concat(build, first, tokens)), build)
    assert _ops(layout) == {"Copy": 1, "Conv": 1, "Pointwise": 1}  # the image's order alone


def test_parts_that_others_read_or_whose_order_would_be_lost_are_copied() -> None:
    build = Builder()
    image = build.conv(build.input(2, 3, 4, 5), 6)
    flat = build.reshape(image, 2, 6, 20)  # the convolution would have to write channels first
    _same(build.graph(_concat(build, flat, build.input(2, 6, 2), axis=2)), build)
    read = build.reshape(build.apply("relu", build.input(2, 6)), 2, 3, 2)
    layout = _same(build.graph(_concat(build, read, build.input(2, 3, 2), axis=2), read), build)
    assert _ops(layout)["Copy"] >= 2


def test_what_attention_makes_is_not_turned() -> None:
    build = Builder()
    x = build.input(2, 6, 8)
    q, k, v = (build.transpose(build.reshape(x, 2, 6, 2, 4), 0, 2, 1, 3) for _ in "qkv")
    mixed = build.node("Attention", [q, k, v, None], (2, 2, 6, 4), scale=0.5)
    joined = build.reshape(build.transpose(mixed, 0, 2, 1, 3), 2, 6, 8)
    layout = _same(build.graph(build.matmul(joined, build.weights(8, 8))), build)
    assert _ops(layout) == {"Attention": 1, "MatMul": 1}
