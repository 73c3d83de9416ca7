"""Views of views: the operators that move no data, as arithmetic on shape, strides and offset."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from msgspec.structs import replace

from wavefit.native.operation import View


def shown(memory: np.ndarray, view: View) -> np.ndarray:
    """The elements of a view of flat memory, of the view's type; no copy."""
    steps = tuple(stride * memory.itemsize for stride in view.strides)
    return np.lib.stride_tricks.as_strided(memory[view.offset :], view.shape, steps)


def reshape(view: View, shape: tuple[int, ...]) -> View | None:
    """The same elements in row-major order under another shape; None where they must be copied for it.

    As numpy's reshape without a copy: runs of axes are matched by their sizes, and within a run of the old shape every
    axis must continue the next.
    """
    if view.size == 0 or view.size == 1:
        return replace(view, shape=shape, strides=(0,) * len(shape))
    old = [(size, stride) for size, stride in zip(view.shape, view.strides, strict=True) if size != 1]
    new = [size for size in shape if size != 1]
    strides: list[int] = []
    while new:
        taken, made = [old.pop(0)], [new.pop(0)]
        while (have := math.prod(size for size, _ in taken)) != (want := math.prod(made)):
            if have < want:
                taken.append(old.pop(0))
            else:
                made.append(new.pop(0))
        if any(outer != size * inner for (_, outer), (size, inner) in pairwise(taken)):
            return None
        inner = taken[-1][1]
        strides += [inner * math.prod(made[number + 1 :]) for number in range(len(made))]
    steps = iter(strides)
    return replace(view, shape=shape, strides=tuple(0 if size == 1 else next(steps) for size in shape))


def transpose(view: View, perm: Sequence[int]) -> View:
    return replace(
        view,
        shape=tuple(view.shape[axis] for axis in perm),
        strides=tuple(view.strides[axis] for axis in perm),
    )


def cut(view: View, starts: Sequence[int], steps: Sequence[int], shape: tuple[int, ...]) -> View:
    """Every ``steps``-th element from ``starts`` on, for every axis; steps may be negative."""
    offset = view.offset + sum(start * stride for start, stride in zip(starts, view.strides, strict=True))
    strides = tuple(step * stride for step, stride in zip(steps, view.strides, strict=True))
    return replace(view, shape=shape, strides=strides, offset=offset)


def expand(view: View, shape: tuple[int, ...]) -> View:
    """Axes of size 1, and missing ones before the first, repeated up to the shape."""
    missing = len(shape) - len(view.shape)
    sizes = (1,) * missing + view.shape
    strides = (0,) * missing + view.strides
    repeated = (0 if size == 1 else stride for size, stride in zip(sizes, strides, strict=True))
    return replace(view, shape=shape, strides=tuple(repeated))


def part(view: View, axis: int, start: int, size: int) -> View:
    """A stretch of one axis: where an input of a Concat lies in its output."""
    shape = (*view.shape[:axis], size, *view.shape[axis + 1 :])
    return replace(view, shape=shape, offset=view.offset + start * view.strides[axis])
