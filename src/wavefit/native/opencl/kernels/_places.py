"""Elements whose whole place is data: the last axis of the indices names the first axes of a tensor."""

from __future__ import annotations

from collections.abc import Sequence

from wavefit.native.opencl import c
from wavefit.native.operation import View

INDICES = ("int64", "int32")


def picked(indices: View, axes: Sequence[str], sizes: Sequence[int], prefix: str = "p") -> list[str]:
    """Statements that read one place, ``p0``, ``p1``...: counted from the end where negative, held to the tensor.

    ONNX leaves an index past the end open, and no kernel reads or writes outside its buffers.

    Args:
        indices: the buffer ``in1``.
        axes: coordinates in the indices' shape but its last axis.
        sizes: of the axes that are named, as many as the last axis is long.
        prefix: of the variables' names, unique in the scope.
    """
    lines = []
    for number, size in enumerate(sizes):
        name = f"{prefix}{number}"
        lines += [
            f"int {name} = (int)in1[{c.index(indices, [*axes, str(number)])}];",
            f"{name} = clamp({name} < 0 ? {name} + {size} : {name}, 0, {size - 1});",
        ]
    return lines


def flat(shape: Sequence[int], axes: Sequence[str]) -> str:
    """The row-major number of a place."""
    text = "0"
    for size, axis in zip(shape, axes, strict=True):
        text = axis if text == "0" else f"({text}) * {size} + {axis}"
    return text
