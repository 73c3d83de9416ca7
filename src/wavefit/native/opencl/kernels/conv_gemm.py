"""Convolutions of one group as implicit matrix products: output pixels by output channels, over taps and channels.

No patches are ever stored: a work-item computes where the input of its pixel and tap lies. A 1x1 convolution without
padding, whatever its strides, is a plain product. Inputs are channels-last, of any pitch between pixels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from wavefit.native import space
from wavefit.native.opencl import c
from wavefit.native.opencl.kernels import _choice, _conv, _product, _tiles
from wavefit.native.opencl.kernels._conv import Conv
from wavefit.native.opencl.kernels._product import Product
from wavefit.native.opencl.kernels._tiles import Side, Tile
from wavefit.native.operation import Config, Implementation, Limits, Operation, Packed, View

OPS = ("Conv",)


_OF_BYTES = 1.6  # registers of a sum where bytes are loaded one by one, as clang gives them out for gfx90c


def claims(operation: Operation) -> bool:
    return _conv.computable(operation, narrow=True) and one_group(operation)


def one_group(operation: Operation) -> bool:
    """Whether it is a product of constant weights with channels-last input, in sizes that an int counts."""
    shape = _conv.conv(operation)
    x, y = operation.input(0), operation.output
    steps = [s for n, s in zip(y.shape, y.strides, strict=True) if n > 1 and s != y.strides[1]]
    return (
        _conv.known(operation, 1)
        and len(x.shape) in (3, 4)
        and shape.group == 1
        and (x.shape[1] == 1 or x.strides[1] == 1)
        and steps == sorted(steps, reverse=True)  # rows are numbered N, H, W: so must the output's memory be
        and y.size > 0
        and not space.far(operation)
    )


def configurations(operation: Operation, limits: Limits) -> Iterator[Config]:
    """As for a matrix product; see :mod:`matmul`."""
    product, _ = _as_stored(operation)
    shape = _conv.conv(operation)
    return _choice.configurations(product, (_width(shape), 4), limits)


def build(operation: Operation, config: Config) -> Implementation:
    product, laid = _as_stored(operation)
    shape = _conv.conv(operation)
    tile = _tiles.tile(config)
    if plain(shape, operation):
        a = _product.matrix(product, "a", laid, 1, "in0")
    else:
        a = pixels(product, shape, tile, _plain(shape))
    b = _weights(shape)
    packed = (Packed(input=1, how="depth"),)
    return _product.implementation("conv_gemm", product, a, b, config, packed)


def pack(how: str, operation: Operation, array: np.ndarray) -> np.ndarray:
    """(O, C, kernel...) as (taps, C, O up to a multiple of 4)."""
    return _conv.pack_taps(array, 1, 4)


def cost(operation: Operation, config: Config, limits: Limits) -> float:
    """A product's, an eighth more where places are computed."""
    product, _ = _as_stored(operation)
    factor = 1.0 if plain(_conv.conv(operation), operation) else 1.125
    return _choice.seconds(product, _tiles.tile(config), limits) * factor


def _as_stored(operation: Operation) -> tuple[Product, View]:
    """As :func:`arranged`, one depth an element."""
    product, laid = arranged(operation)
    made = _tiles.plain(operation.input(0).dtype)
    if made.sums == "int" and _conv.conv(operation).ins % 4:
        made = replace(made, registers=_OF_BYTES)
    return replace(product, arithmetic=made), laid


def arranged(operation: Operation) -> tuple[Product, View]:
    """The product, and the input over (batch, rows..., columns) as a 1x1 convolution reads it."""
    shape, y = _conv.conv(operation), operation.output
    rank = len(y.shape)
    x = shape.x
    strides = [x.strides[0], 0, *(s * step for s, step in zip(x.strides[2:], shape.strides, strict=True))]
    read = View(shape=y.shape, strides=tuple(strides), offset=x.offset, dtype=x.dtype)
    bias = None
    if operation.has(_product.BIAS):
        given = operation.input(_product.BIAS)
        bias = View(
            shape=(1, y.shape[1], *[1] * (rank - 2)),
            strides=(0, given.strides[0], *[0] * (rank - 2)),
            offset=given.offset,
            dtype=given.dtype,
        )
    groups = [[], [0, *range(2, rank)], [1]]
    product, (laid,) = _product.arranged(operation, groups, [read], shape.ins * shape.taps, bias)
    return product, laid


def plain(shape: Conv, operation: Operation) -> bool:
    """Whether every output pixel reads one input pixel, and none of the padding."""
    return shape.taps == 1 and not any(operation.attributes.get("pads") or ())


def _width(shape: Conv) -> int:
    return 4 if shape.ins % 4 == 0 else 1


def _even(shape: Conv) -> bool:
    """Whether four channels lie at a multiple of four elements."""
    x = shape.x
    steps = [s for axis, (n, s) in enumerate(zip(x.shape, x.strides, strict=True)) if n > 1 and axis != 1]
    return all(step % 4 == 0 for step in (*steps, x.offset))


def _weights(shape: Conv) -> Side:
    pitch = _conv.round_up(shape.outs, 4)
    return Side(
        name="b",
        along="side",
        width=4,
        size=pitch,
        setup=lambda i, side: [],
        at=lambda i, k: [],
        place=lambda i, k: f"{k} * {pitch} + br{i}",
        valid=lambda i: "",
        load=lambda at, i: c.load_factor(shape.w.dtype, "in1", at, 4, aligned=True),
        zero=_tiles.plain(shape.w.dtype).zero,
    )


@dataclass(frozen=True)
class Reading:
    """How input channels are read.

    Args:
        channels: of one element.
        elements: of one tap.
        width: elements of a load.
        load: the expression that loads them from a place; ``{channel}`` in it is the first one's number.
        zero: the element that stands for padding.
    """

    channels: int
    elements: int
    width: int
    load: Callable[[str], str]
    zero: str = "0.0f"


def _plain(shape: Conv) -> Reading:
    width = 4 if shape.ins % 4 == 0 else 1
    dtype, even, less = shape.x.dtype, width > 1 and _even(shape), shape.zero_point
    zero = _tiles.plain(dtype).zero
    return Reading(
        1, shape.ins, width, lambda place: c.load_factor(dtype, "in0", place, width, even, less), zero
    )


def pixels(product: Product, shape: Conv, tile: Tile, reading: Reading) -> Side:
    """The loader of input patches: a row is an output pixel, the depth runs over taps and then channels."""
    x, ins = shape.x, reading.elements
    kernel = (1,) * (2 - len(shape.kernel)) + shape.kernel
    out = (1,) * (2 - len(shape.out)) + shape.out
    size = (1,) * (2 - len(shape.size)) + shape.size
    strides, begins, dilations = (
        (default,) * (2 - len(each)) + tuple(each)
        for default, each in ((1, shape.strides), (0, shape.begins), (1, shape.dilations))
    )
    steps = (0,) * (2 - len(shape.size)) + x.strides[2:]

    def setup(i: int, side: str) -> list[str]:
        lines = c.split(side, (x.shape[0], *out), [f"an{i}", f"ay{i}", f"ax{i}"])
        return [
            *lines,
            f"const int aiy{i} = ay{i} * {strides[0]} - {begins[0]}, aix{i} = ax{i} * {strides[1]} - {begins[1]};",
            f"const int aat{i} = {x.offset} + an{i} * {x.strides[0]};",
        ]

    def at(i: int, k: str) -> list[str]:
        number = (
            "kt" if ins % tile.k == 0 else k
        )  # the same for the whole work-group where a step stays in a tap
        scale = f" * {reading.channels}" if reading.channels > 1 else ""
        return [
            f"const int atap{i} = {number} / {ins}, ach{i} = ({k} - atap{i} * {ins}){scale};",
            f"const int aky{i} = atap{i} / {kernel[1]}, akx{i} = atap{i} - aky{i} * {kernel[1]};",
            f"const int apy{i} = aiy{i} + aky{i} * {dilations[0]}, apx{i} = aix{i} + akx{i} * {dilations[1]};",
        ]

    return Side(
        name="a",
        along="depth",
        width=reading.width,
        size=product.rows,
        setup=setup,
        at=at,
        place=lambda i, k: f"aat{i} + apy{i} * {steps[0]} + apx{i} * {steps[1]} + ach{i}",
        valid=lambda i: f"(uint)apy{i} < {size[0]}u && (uint)apx{i} < {size[1]}u",
        load=lambda place, i: reading.load(place).replace("{channel}", f"ach{i}"),
        zero=reading.zero,
    )
