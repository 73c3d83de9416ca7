"""Slices that are joined again become what they were cut from."""

from __future__ import annotations

from native.passes.build import Builder, ops, same_after

from wavefit.native.graph import Value
from wavefit.native.layout import Layout, lay_out
from wavefit.native.passes import join_slices


def _slice(build: Builder, x: Value, start: int, size: int, axis: int = 1, step: int = 1) -> Value:
    shape = (*x.shape[:axis], size, *x.shape[axis + 1 :])
    starts = tuple(start if dim == axis else 0 for dim in range(len(shape)))
    steps = tuple(step if dim == axis else 1 for dim in range(len(shape)))
    return build.node("Slice", [x], shape, starts=starts, steps=steps)


def _concat(build: Builder, *values: Value, axis: int = 1) -> Value:
    sizes = [value.shape[axis] for value in values]
    shape = (*values[0].shape[:axis], sum(sizes), *values[0].shape[axis + 1 :])
    return build.node("Concat", list(values), shape, axis=axis)


def test_halves_and_what_one_of_them_became_need_no_copy() -> None:
    """YOLO v8's C2f."""
    build = Builder()
    split = build.conv(build.input(1, 3, 4, 4), 6)
    halves = [_slice(build, split, start, 3) for start in (0, 3)]
    made = build.conv(halves[1], 3, 3)
    graph = build.graph(build.conv(_concat(build, *halves, made), 4))
    same_after(join_slices.run, graph, build.feeds())
    (joined,) = [node for node in graph.nodes if node.op == "Concat"]
    assert joined.inputs == [split, made]
    layout = lay_out(graph, lambda operation: 1e-6)
    assert isinstance(layout, Layout)
    assert [node.op for node in layout.nodes if node.op == "Copy"] == ["Copy"]  # the graph's input


def test_a_part_stays_a_slice_and_all_parts_alone_are_the_whole() -> None:
    build = Builder()
    x = build.conv(build.input(1, 3, 4, 4), 7)
    some = _concat(build, _slice(build, x, 1, 2), _slice(build, x, 3, 3), _slice(build, x, 6, 1))
    whole = _concat(build, _slice(build, x, 0, 3), _slice(build, x, 3, 4))
    graph = build.graph(build.conv(some, 2), build.conv(whole, 2))
    same_after(join_slices.run, graph, build.feeds())
    left = ops(graph)
    assert (left["Slice"], left.get("Concat", 0)) == (1, 0)


def test_gaps_other_orders_axes_and_steps_stay() -> None:
    build = Builder()
    x = build.conv(build.input(1, 3, 4, 4), 8)
    turned = _concat(build, _slice(build, x, 4, 4), _slice(build, x, 0, 4))
    gap = _concat(build, _slice(build, x, 0, 3), _slice(build, x, 4, 4))
    along = _concat(build, _slice(build, x, 0, 4), _slice(build, x, 4, 4), axis=2)
    stepped = _concat(build, _slice(build, x, 0, 2, step=2), _slice(build, x, 2, 2, step=2))
    graph = build.graph(turned, gap, along, stepped)
    before = ops(graph)
    same_after(join_slices.run, graph, build.feeds())
    assert ops(graph) == before
