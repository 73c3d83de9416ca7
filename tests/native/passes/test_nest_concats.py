"""Concats of all that came before become Concats of the last one and what is new."""

from __future__ import annotations

from native.passes.build import Builder, same_after

from wavefit.native.graph import Graph, Value
from wavefit.native.layout import Layout, lay_out
from wavefit.native.passes import nest_concats


def _concat(build: Builder, *values: Value) -> Value:
    channels = sum(value.shape[1] for value in values)
    return build.node("Concat", list(values), (1, channels, 4, 4), axis=1)


def _dense(layers: int) -> tuple[Builder, Graph]:
    """PyTorch's DenseNet block: each layer joins all features, and adds one."""
    build = Builder()
    features = [build.conv(build.input(1, 3, 4, 4), 5)]
    for _ in range(layers):
        joined = _concat(build, *features) if len(features) > 1 else features[0]
        features.append(build.conv(build.apply("relu", joined), 2, 3))
    return build, build.graph(build.conv(_concat(build, *features), 3))


def _copies(graph: Graph) -> int:
    layout = lay_out(graph, lambda operation: 1e-6)
    assert isinstance(layout, Layout)
    return sum(node.op == "Copy" for node in layout.nodes)


def test_all_parts_are_made_in_their_place() -> None:
    build, graph = _dense(4)
    before = _copies(graph)
    build, graph = _dense(4)
    same_after(nest_concats.run, graph, build.feeds())
    assert [len(node.inputs) for node in graph.nodes if node.op == "Concat"] == [2, 2, 2, 2]
    assert _copies(graph) == before - 9  # of 2 + 3 + 4 parts that the first three Concats had of their own


def test_other_orders_axes_and_whole_repeats_stay() -> None:
    build = Builder()
    a, b, c = (build.conv(build.input(1, 3, 4, 4), 4) for _ in range(3))
    first, turned = _concat(build, a, b), _concat(build, b, a, c)
    along = build.node("Concat", [a, b, c], (1, 4, 12, 4), axis=2)
    graph = build.graph(first, turned, along, _concat(build, a, b))
    same_after(nest_concats.run, graph, build.feeds())
    assert [len(node.inputs) for node in graph.nodes if node.op == "Concat"] == [2, 3, 3, 2]
