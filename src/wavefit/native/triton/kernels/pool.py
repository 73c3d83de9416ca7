"""MaxPool and AveragePool of any rank and any strides; a window's taps are written out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod

import numpy as np

from wavefit.native.operation import Config, Implementation, Limits, Operation
from wavefit.native.triton import text
from wavefit.native.triton.kernels import _cost, _walk
from wavefit.native.triton.text import Axis

OPS = ("MaxPool", "AveragePool")
_MOST = 400  # taps


def claims(operation: Operation) -> bool:
    dtype = operation.input(0).dtype
    return (
        operation.own == 1
        and len(operation.outputs) == 1
        and len(operation.output.shape) >= 3
        and prod(operation.attributes["kernel_shape"]) <= _MOST
        and (dtype in text.FLOATS or (operation.op == "MaxPool" and dtype in ("int8", "uint8", "int32")))
        and text.present(operation)
        and text.computes(operation)
    )


def configurations(operation: Operation, limits: Limits) -> Iterator[Config]:
    """``block`` elements of a program of ``warps`` waves."""
    return _walk.configurations(limits)


def cost(operation: Operation, config: Config, limits: Limits) -> float:
    taps = prod(operation.attributes["kernel_shape"])
    moved = text.traffic(operation) * (1 + 0.02 * min(taps, 50))
    return _cost.seconds(moved, operation.output.size, limits)


def build(operation: Operation, config: Config) -> Implementation:
    taps = prod(operation.attributes["kernel_shape"])
    return _walk.build(
        "pool", operation, config, lambda axes: _window(operation, axes), taps * operation.output.size
    )


def _window(operation: Operation, axes: Sequence[Axis]) -> list[str]:
    attributes, x = operation.attributes, operation.input(0)
    kernel, rank = attributes["kernel_shape"], len(x.shape) - 2
    pads, strides = attributes["pads"], attributes["strides"]
    dilations = attributes.get("dilations") or (1,) * rank
    average = operation.op == "AveragePool"
    lowest = "0.0" if average else _lowest(x.dtype)
    lines = [f"y = {lowest}", "count = 0"]
    for place in product(*(range(size) for size in kernel)):
        places, inside, counted = list(axes[:2]), [], []
        for axis, tap in enumerate(place):
            size, made = x.shape[axis + 2], operation.output.shape[axis + 2]
            move = tap * dilations[axis] - pads[axis]
            at = f"{axes[axis + 2].expression} * {strides[axis]} + {move}"
            lines.append(f"p{axis} = {at}")
            least, most = move, (made - 1) * strides[axis] + move
            if least < 0 or most >= size:
                inside.append(f"(p{axis} >= 0) & (p{axis} < {size})")
            end = size + (pads[axis + rank] if attributes.get("count_include_pad") else 0)
            if most >= end or (least < 0 and not attributes.get("count_include_pad")):
                start = -pads[axis] if attributes.get("count_include_pad") else 0
                counted.append(f"(p{axis} >= {start}) & (p{axis} < {end})")
            places.append(Axis(f"p{axis}"))
        guard = " & ".join([*inside, *([axes[0].mask] if axes[0].mask else [])])
        masked = f", mask={guard}, other={lowest}" if guard else ""
        loaded = text.register_of(x.dtype, f"tl.load(in0 + ({text.index(x, places)}){masked})")
        lines.append(f"y = y + {loaded}" if average else f"y = tl.maximum(y, {loaded})")
        if average:
            lines.append(
                f"count = count + ({' & '.join(counted)}).to(tl.int32)" if counted else "count = count + 1"
            )
    if average:
        lines.append("y = y / tl.maximum(count, 1)")
    return lines


def _lowest(dtype: str) -> str:
    return 'float("-inf")' if dtype in text.FLOATS else str(np.iinfo(dtype).min)
