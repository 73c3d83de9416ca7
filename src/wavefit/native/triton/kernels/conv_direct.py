"""Convolutions that are no dense products: depthwise, few outputs a group, computed weights, transposed.

Each element of the output adds up its taps; constant weights are packed as (channels of a group, taps..., outputs), so
that neighbouring outputs read neighbours.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod

import numpy as np
from msgspec.structs import replace

from wavefit.native.operation import Buffer, Config, Implementation, Limits, Operation, Packed, View
from wavefit.native.triton import text
from wavefit.native.triton.kernels import _conv, _cost, _product, _walk, conv_gemm
from wavefit.native.triton.text import Axis

OPS = ("Conv", "ConvTranspose")
_MOST = 128  # taps, which are written out


def claims(operation: Operation) -> bool:
    x, w = operation.input(0), operation.input(1)
    return (
        len(operation.outputs) == 1
        and len(x.shape) in (3, 4, 5)
        and _product.multiplies(x.dtype, w.dtype)
        and prod(w.shape[2:]) <= _MOST
        and (not conv_gemm.claims(operation) or w.shape[1] <= 4)
        and text.present(operation)
        and text.computes(operation)
    )


def configurations(operation: Operation, limits: Limits) -> Iterator[Config]:
    """``block`` elements of a program of ``warps`` waves."""
    return _walk.configurations(limits)


def cost(operation: Operation, config: Config, limits: Limits) -> float:
    length = prod(operation.input(1).shape[1:])
    work = 2 * operation.output.size * length / ((limits.flops or 1e13) * 0.15)
    return _cost.seconds(text.traffic(operation), operation.output.size, limits) + work


def build(operation: Operation, config: Config) -> Implementation:
    length = prod(operation.input(1).shape[1:])
    made = _walk.build(
        "conv_direct",
        operation,
        config,
        lambda axes: _taps(operation, axes),
        2 * operation.output.size * length,
    )
    if not operation.constant[1]:
        return made
    (launch,) = made.launches
    swapped = tuple(
        Buffer(kind="packed") if (each.kind, each.index) == ("input", 1) else each
        for each in launch.arguments
    )
    return replace(
        made, launches=(replace(launch, arguments=swapped),), packed=(Packed(input=1, how="taps"),)
    )


def pack(how: str, operation: Operation, array: np.ndarray) -> np.ndarray:
    """(outputs, channels, taps...) as (channels, taps..., outputs); transposed ones as (channels, taps..., outputs)."""
    return np.moveaxis(array, 0 if operation.op == "Conv" else 1, -1)


def _weights(operation: Operation) -> View:
    """The weights as they lie, over (outputs, channels, taps...); of transposed ones (channels, outputs, taps...)."""
    w = operation.input(1)
    if not operation.constant[1]:
        return w
    out = 0 if operation.op == "Conv" else 1
    order = [axis for axis in range(len(w.shape)) if axis != out] + [out]
    strides, step = [0] * len(w.shape), 1
    for axis in reversed(order):
        strides[axis] = step
        step *= w.shape[axis]
    return View(shape=w.shape, strides=tuple(strides), dtype=w.dtype)


def _taps(operation: Operation, axes: Sequence[Axis]) -> list[str]:
    shape, weights = _conv.conv(operation), _weights(operation)
    small = shape.x.dtype in _product.BYTES
    outs = operation.output.shape[1] // shape.group
    ins = shape.x.shape[1] // shape.group
    channel, mask = axes[1].expression, axes[0].mask
    group = f"({channel} // {outs})" if shape.group > 1 else "0"
    lines = [f"y = tl.zeros_like(at).to(tl.{'int32' if small else 'float32'})"]
    inner: list[str] = []
    for place in product(*(range(size) for size in shape.kernel)):
        where, inside = _places(operation, place, axes)
        guard = " & ".join(f"({each})" for each in [*inside, *([mask] if mask else [])])
        source = [axes[0], Axis(f"{group} * {ins} + q" if shape.group > 1 else "q"), *where]
        masked = f", mask={guard}, other={shape.zero_point if small else '0.0'}" if guard else ""
        inner.append(f"x = tl.load(in0 + ({text.index(shape.x, source)}){masked})")
        taps = [Axis(str(tap)) for tap in place]
        own = f"{channel} % {outs}" if shape.group > 1 and operation.op != "Conv" else channel
        if operation.op == "Conv":
            of_weight = [Axis(own), Axis("q"), *taps]
        else:
            of_weight = [source[1], Axis(own), *taps]
        inner.append(f"w = tl.load(in1 + ({text.index(weights, of_weight)} + at * 0))")
        kind = "int32" if small else "float32"
        less = f" - {shape.zero_point}" if small and shape.zero_point else ""
        inner.append(f"y += (x.to(tl.{kind}){less}) * w.to(tl.{kind})")
    if ins == 1:
        lines += ["q = 0", *inner]
    else:
        lines += [f"for q in range(0, {ins}):", *(f"    {line}" for line in inner)]
    lines.append("y = y.to(tl.float32)")
    if operation.has(2):
        lines.append(f"y += {text.load(operation.input(2), 'in2', [Axis(channel)])}")
    return lines


def _places(
    operation: Operation, place: tuple[int, ...], axes: Sequence[Axis]
) -> tuple[list[Axis], list[str]]:
    """Where a tap reads, and what says that it reads inside the input."""
    shape = _conv.conv(operation)
    where, inside = [], []
    for axis, tap in enumerate(place):
        size, out = shape.x.shape[axis + 2], axes[axis + 2].expression
        stride, begin, move = shape.strides[axis], shape.begins[axis], tap * shape.dilations[axis]
        if operation.op == "Conv":
            at = f"({out} * {stride} + {move - begin})"
            inside.append(f"({at} >= 0) & ({at} < {size})")
        else:
            from_ = f"({out} + {begin - move})"
            at = f"({from_} // {stride})"
            inside.append(f"({from_} >= 0) & ({from_} % {stride} == 0) & ({at} < {size})")
        where.append(Axis(at))
    return where, inside
