"""Kernels that find their inputs' places in tables: sizes are known, so each axis' places are numbers in the source.

The output is walked in the order in which it lies in memory.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from wavefit.native import space
from wavefit.native.operation import Operation, View


def in_memory_order(operation: Operation) -> tuple[Operation, list[int]]:
    """The operation with the axes of all views sorted by the output's strides, and which axis each one was.

    Inputs from ``own`` on are put over the output's shape; its own have as many axes as the output, of their sizes.
    """
    out = operation.output
    order = sorted(range(len(out.shape)), key=lambda axis: -abs(out.strides[axis]))

    def turned(view: View) -> View:
        return msgspec.structs.replace(
            view, shape=tuple(view.shape[a] for a in order), strides=tuple(view.strides[a] for a in order)
        )

    inputs = [
        view if view is None else turned(view if number < operation.own else space.over(view, out.shape))
        for number, view in enumerate(operation.inputs)
    ]
    return msgspec.structs.replace(operation, inputs=tuple(inputs), outputs=(turned(out),)), order


def integers(name: str, values: np.ndarray) -> str:
    """A table of int in constant memory."""
    return f"__constant int {name}[{values.size}] = {{{', '.join(str(int(each)) for each in values.reshape(-1))}}};"


def floats(name: str, values: np.ndarray) -> str:
    """A table of float in constant memory, each exact."""
    texts: Sequence[str] = [f"{float.hex(float(np.float32(each)))}f" for each in values.reshape(-1)]
    return f"__constant float {name}[{values.size}] = {{{', '.join(texts)}}};"
