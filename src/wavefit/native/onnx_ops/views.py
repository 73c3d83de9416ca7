"""Operators that only name elements anew: views of what is there."""

from __future__ import annotations

from itertools import pairwise

from wavefit.native.graph import Value
from wavefit.native.onnx_ops._call import Call


def _same(call: Call) -> None:
    call.give(call.input())


def _dropout(call: Call) -> str | None:
    training = call.constant(2) if call.given(2) else None
    if call.given(2) and (training is None or training.reshape(-1)[0]):
        return "it is in training mode: export the model in eval mode"
    if call.wanted(1):
        return "its output mask is read"
    call.give(call.input())
    return None


def _reshape(call: Call) -> None:
    """Reshape, Flatten, Squeeze, Unsqueeze: the inferred shape says all."""
    call.reshape(call.input(), call.output())


def _transpose(call: Call) -> None:
    value = call.input()
    perm = tuple(call.attribute("perm") or reversed(range(len(value.shape))))
    if perm == tuple(range(len(perm))):
        call.give(value)
    else:
        call.transpose(value, perm, call.output())


def _slice(call: Call) -> str | None:
    """Bounds were attributes before version 10."""
    value = call.input()
    starts, ends = call.ints(1, "starts"), call.ints(2, "ends")
    axes, steps = call.ints(3, "axes"), call.ints(4)
    if (
        starts is None
        or ends is None
        or (call.given(3) and axes is None)
        or (call.given(4) and steps is None)
    ):
        return "its bounds depend on the data"
    rank = len(value.shape)
    axes = tuple(range(len(starts))) if axes is None else tuple(call.axis(axis, rank) for axis in axes)
    first, every = [0] * rank, [1] * rank
    shape = list(value.shape)
    for axis, start, end, step in zip(axes, starts, ends, steps or (1,) * len(axes), strict=True):
        taken = range(
            *slice(start, end if step > 0 else _before(end, value.shape[axis]), step).indices(shape[axis])
        )
        first[axis], every[axis], shape[axis] = taken.start if taken else 0, step, len(taken)
    cut(call, value, first, every, call.output())
    return None


def _before(end: int, size: int) -> int | None:
    """The end of a slice that runs backwards: far below 0 takes the first element too."""
    return None if end < -size else end


def cut(call: Call, value: Value, starts: list[int], steps: list[int], to: Value | tuple[int, ...]) -> Value:
    return call.add("Slice", [value], to, starts=tuple(starts), steps=tuple(steps))


def _split(call: Call) -> str | None:
    """A Slice for each output that is read."""
    value = call.input()
    axis = call.axis(int(call.attribute("axis", 0)), len(value.shape))
    sizes = _split_sizes(call, value.shape[axis])
    if sizes is None:
        return "its sizes depend on the data"
    starts = [0] * len(value.shape)
    for number, size in enumerate(sizes):
        if call.wanted(number):
            cut(call, value, starts, [1] * len(starts), call.output(number))
        starts[axis] += size
    return None


def _split_sizes(call: Call, whole: int) -> tuple[int, ...] | None:
    if call.given(1) or call.attribute("split"):
        return call.ints(1, "split")
    parts = len(call.outputs)
    size = -(-whole // parts)
    return tuple(min(size, max(whole - number * size, 0)) for number in range(parts))


def _expand(call: Call) -> None:
    value = call.input()
    if value.shape == call.output().shape:
        call.give(value)
    else:
        call.add("Expand", [value], call.output())


def _tile(call: Call) -> str | None:
    """Each axis becomes (repeats, size), and one again."""
    value, repeats = call.input(), call.ints(1)
    if repeats is None:
        return "its repeats depend on the data"
    if all(count == 1 for count in repeats):
        call.give(value)
        return None
    apart = tuple(size for pair in zip((1,) * len(repeats), value.shape, strict=True) for size in pair)
    repeated = tuple(size for pair in zip(repeats, value.shape, strict=True) for size in pair)
    call.reshape(call.add("Expand", [call.reshape(value, apart)], repeated), call.output())
    return None


def _concat(call: Call) -> None:
    values = [value for value in call.inputs if value is not None and value.size]
    axis = call.axis(int(call.attribute("axis", 1)), len(call.output().shape))
    if len(values) == 1:
        call.give(values[0])
    else:
        call.add("Concat", values or call.inputs[:1], call.output(), axis=axis)


def _depth_to_space(call: Call) -> None:
    n, c, h, w = call.input().shape
    block = int(call.attribute("blocksize"))
    deep = c // block**2
    if call.attribute("mode", "DCR") == "DCR":
        apart = call.reshape(call.input(), (n, block, block, deep, h, w))
        moved = call.transpose(apart, (0, 3, 4, 1, 5, 2))
    else:
        apart = call.reshape(call.input(), (n, deep, block, block, h, w))
        moved = call.transpose(apart, (0, 1, 4, 2, 5, 3))
    call.reshape(moved, call.output())


def _space_to_depth(call: Call) -> None:
    n, c, h, w = call.input().shape
    block = int(call.attribute("blocksize"))
    apart = call.reshape(call.input(), (n, c, h // block, block, w // block, block))
    perm = (0, 3, 5, 1, 2, 4) if call.attribute("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    call.reshape(call.transpose(apart, perm), call.output())


def _gather(call: Call) -> None:
    """At known neighbouring indices it is a Slice."""
    value, indices = call.input(0), call.input(1)
    axis = call.axis(int(call.attribute("axis", 0)), len(value.shape))
    if indices.constant is None:
        call.add("Gather", [value, indices], call.output(), axis=axis)
        return
    size = value.shape[axis]
    numbers = [int(index) + size * (int(index) < 0) for index in indices.constant.reshape(-1)]
    step = numbers[1] - numbers[0] if len(numbers) > 1 else 1
    if numbers and step and all(second - first == step for first, second in pairwise(numbers)):
        starts, steps = [0] * len(value.shape), [1] * len(value.shape)
        starts[axis], steps[axis] = numbers[0], step
        shape = (*value.shape[:axis], len(numbers), *value.shape[axis + 1 :])
        if shape == value.shape and step == 1:
            taken = value
        elif shape == call.output().shape:
            cut(call, value, starts, steps, call.output())
            return
        else:
            taken = cut(call, value, starts, steps, shape)
        call.reshape(taken, call.output())
    else:
        positive = call.value(indices.constant + size * (indices.constant < 0).astype(indices.constant.dtype))
        call.add("Gather", [value, positive], call.output(), axis=axis)


OPERATORS = {
    "Concat": _concat,
    "DepthToSpace": _depth_to_space,
    "Dropout": _dropout,
    "Expand": _expand,
    "Flatten": _reshape,
    "Gather": _gather,
    "Identity": _same,
    "Reshape": _reshape,
    "Slice": _slice,
    "SpaceToDepth": _space_to_depth,
    "Split": _split,
    "Squeeze": _reshape,
    "Tile": _tile,
    "Transpose": _transpose,
    "Unsqueeze": _reshape,
}
