"""Views rearranged for a kernel: axes sorted by their strides and merged, so that little index arithmetic is left.

All views of an operation are first put over one shape (a stride of 0 repeats). An axis is merged into the one before it
where that is the same walk through every buffer: a dense ReLU of any rank becomes one axis.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from wavefit.native.operation import Operation, View

_INT = 2**31 - 1

Axis = tuple[int, tuple[int, ...]]
"""Elements along a merged axis, and its stride in each view."""


def broadcast(view: View, rank: int) -> View:
    """The view with axes of size 1 put before it, up to that rank: numpy's rule."""
    missing = rank - len(view.shape)
    return msgspec.structs.replace(
        view, shape=(1,) * missing + view.shape, strides=(0,) * missing + view.strides
    )


def over(view: View, shape: tuple[int, ...]) -> View:
    """The view broadcast to a shape, as numpy does."""
    view = broadcast(view, len(shape))
    strides = tuple(0 if n == 1 else s for n, s in zip(view.shape, view.strides, strict=True))
    return msgspec.structs.replace(view, shape=shape, strides=strides)


def arranged(
    views: Sequence[View], groups: Sequence[Sequence[int]], lead: int = 0
) -> tuple[list[View], list[int]]:
    """Views of one shape with the axes of each group sorted and merged, and how many axes each group then has.

    Args:
        views: of equal shapes.
        groups: axes in the order that the groups shall have; each group keeps at least one axis.
        lead: the view by whose strides the axes of a group are sorted; its smallest stride comes last.
    """
    axes: list[Axis] = []
    ranks = []
    for group in groups:
        merged = _merged(views, group, lead)
        axes += merged
        ranks.append(len(merged))
    shape = tuple(size for size, _ in axes)
    laid = [
        msgspec.structs.replace(view, shape=shape, strides=tuple(strides[number] for _, strides in axes))
        for number, view in enumerate(views)
    ]
    return laid, ranks


def _merged(views: Sequence[View], group: Sequence[int], lead: int) -> list[Axis]:
    shape, leading = views[lead].shape, views[lead].strides
    axes = sorted((a for a in group if shape[a] > 1), key=lambda a: -abs(leading[a]) or -(2**62))
    merged: list[Axis] = []
    for axis in axes:
        size, strides = shape[axis], tuple(view.strides[axis] for view in views)
        if merged and merged[-1][1] == tuple(size * stride for stride in strides):
            size *= merged.pop()[0]
        merged.append((size, strides))
    return merged or [(1, (0,) * len(views))]


def flat(operation: Operation) -> Operation:
    """An elementwise operation with all its views over the output's shape, sorted by it and merged."""
    shape = operation.output.shape
    views = [over(view, shape) for view in (operation.output, *operation.inputs) if view is not None]
    laid, _ = arranged(views, [range(len(shape))])
    return msgspec.structs.replace(operation, outputs=(laid[0],), inputs=tuple(laid[1:]))


def spread(operation: Operation) -> Operation:
    """The operation with its epilogue's operands over the output's shape, of which a scalar has one axis."""
    shape = operation.output.shape or (1,)
    own = operation.own
    later = [view if view is None else over(view, shape) for view in operation.inputs[own:]]
    output = msgspec.structs.replace(operation.output, shape=shape, strides=operation.output.strides or (0,))
    return msgspec.structs.replace(operation, inputs=(*operation.inputs[:own], *later), outputs=(output,))


def far(operation: Operation) -> bool:
    """Whether a place in a buffer may need more than 32 bits."""
    views = [view for view in (*operation.inputs, *operation.outputs) if view is not None]
    return any(farthest(view) > _INT for view in views)


def farthest(view: View) -> int:
    """The largest place that a view's index takes, with every stride counted as if it went forward."""
    return view.offset + sum((n - 1) * abs(s) for n, s in zip(view.shape, view.strides, strict=True))


def rounded(number: int, multiple: int) -> int:
    """The least multiple that is not below the number."""
    return -(-number // multiple) * multiple
