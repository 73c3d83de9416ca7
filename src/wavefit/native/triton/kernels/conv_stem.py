"""A network's first convolution: few channels, large taps, an image as it comes in.

One kernel lays the image out with its channels side by side (padded to a power of two) and its border of zeros; a
row of taps is then one stretch of memory, and a step of the product some rows of taps, loaded as wide as any. Gathered
element by element, as :mod:`conv_gemm` does, the same layer takes two to three times as long on an H200 at 128 images.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from dataclasses import replace as changed

import numpy as np

from wavefit.native.operation import Config, Implementation, Kernel, Limits, Operation
from wavefit.native.triton import text
from wavefit.native.triton.kernels import _conv, _cost, _product, _tiles, conv_gemm
from wavefit.native.triton.kernels._conv import Conv
from wavefit.native.triton.kernels._product import Side

OPS = ("Conv",)
_MOST = 8  # channels
_PIXELS = 256  # of a program that lays out


def claims(operation: Operation) -> bool:
    shape = _conv.conv(operation) if conv_gemm.claims(operation) else None
    return (
        shape is not None
        and shape.group == 1
        and len(shape.kernel) == 2
        and shape.ins <= _MOST
        and shape.kernel[1] > 1
        and shape.dilations == (1, 1)
        and shape.x.dtype in text.FLOATS
    )


def configurations(operation: Operation, limits: Limits) -> Iterator[Config]:
    """``m`` by ``n`` by ``k``, ``split``, ``warps``, ``stages``: see :class:`_product.Tile`."""
    shape = _conv.conv(operation)
    segment = _laid(shape, 16).segment
    depths = tuple(dict.fromkeys(max(16, segment * rows) for rows in (1, 2, 4)))
    product = conv_gemm.product_of(operation)
    return _tiles.configurations(product, depths, lambda k: _laid(shape, k).steps, limits)


def cost(operation: Operation, config: Config, limits: Limits) -> float:
    shape, each = _conv.conv(operation), _product.tile(config)
    laid = _laid(shape, each.k)
    image = _cost.seconds(shape.x.size * shape.x.itemsize + laid.bytes, laid.pixels, limits)
    return image + _tiles.seconds(conv_gemm.product_of(operation), each, laid.steps, limits)


def build(operation: Operation, config: Config) -> Implementation:
    shape, each = _conv.conv(operation), _product.tile(config)
    laid = _laid(shape, each.k)
    product = changed(conv_gemm.product_of(operation), packed=f"rows {each.k}")
    length = laid.steps * each.k
    b = Side(
        (f"weights = in1 + (n[None, :] * {length} + k[:, None])",),
        (f"b = tl.load(weights + step * {each.k})",),
    )
    image = (_lay_out(shape, laid, _product.kind(operation)), laid.bytes)
    return _product.implementation(
        "conv_stem", product, _rows(shape, laid, each.k), b, each, config, laid.steps, image
    )


def pack(how: str, operation: Operation, array: np.ndarray) -> np.ndarray:
    """(O, I, rows, columns) as (O, rows, columns, I): channels, columns and rows padded with zeros."""
    shape = _conv.conv(operation)
    k = int(how.split()[1])
    laid = _laid(shape, k)
    outs, ins, rows, columns = array.shape
    held = np.zeros((outs, laid.steps * laid.rows, laid.segment), array.dtype)
    moved = np.pad(array.transpose(0, 2, 3, 1), ((0, 0), (0, 0), (0, 0), (0, laid.channels - ins)))
    held[:, :rows, : columns * laid.channels] = moved.reshape(outs, rows, -1)
    return held


@dataclass(frozen=True)
class _Laid:
    """How the image lies: (batch, height, width, channels), and what a step takes of it."""

    batch: int
    height: int
    width: int
    channels: int
    segment: int  # elements of a row of taps, padded
    rows: int  # of taps in a step
    steps: int
    itemsize: int

    @property
    def pixels(self) -> int:
        return self.batch * self.height * self.width

    @property
    def bytes(self) -> int:
        return self.pixels * self.channels * self.itemsize


def _laid(shape: Conv, k: int) -> _Laid:
    channels = max(2, text.power_of_two(shape.ins))
    segment = max(16, text.power_of_two(shape.kernel[1] * channels))
    rows = max(1, k // segment)
    steps = -(-shape.kernel[0] // rows)
    height, width = (
        (out - 1) * stride + taken
        for out, stride, taken in zip(
            shape.y.shape[2:], shape.strides, (rows * steps, segment // channels), strict=True
        )
    )
    size = 2 if shape.w.itemsize == 2 else 4
    return _Laid(shape.y.shape[0], height, width, channels, segment, rows, steps, size)


def _lay_out(shape: Conv, laid: _Laid, kind: str) -> Kernel:
    """Each program some pixels: read channel by channel, as images lie, and stored side by side."""
    n, c, h, w = shape.x.strides
    (top, left), (rows, columns) = shape.begins, shape.x.shape[2:]
    inside = [f"(y >= 0) & (y < {rows}) & (x >= 0) & (x < {columns})", f"(channel < {shape.ins})"]
    if laid.pixels % _PIXELS:
        inside.append(f"(pixel < {laid.pixels})")
    body = [
        f"pixel = (tl.program_id(0) * {_PIXELS} + tl.arange(0, {_PIXELS}))[None, :]",
        f"channel = tl.arange(0, {laid.channels})[:, None]",
        *text.split("pixel", (laid.batch, laid.height, laid.width), ["image_number", "row", "column"]),
        f"y = row - {top}",
        f"x = column - {left}",
        f"place = image_number * {n} + channel * {c} + y * {h} + x * {w} + {shape.x.offset}",
        f"found = tl.load(in0 + place, mask={' & '.join(inside)}, other=0.0).to(tl.{kind})",
        f"there = tl.trans(pixel * {laid.channels} + channel)",
        "tl.store(image + there, tl.trans(found)"
        + (f", mask=tl.trans((pixel + channel * 0) < {laid.pixels})" if laid.pixels % _PIXELS else "")
        + ")",
    ]
    grid = (-(-laid.pixels // _PIXELS),)
    types = [("in0", shape.x.dtype), ("image", kind)]
    return text.kernel("lay_out", types, body, grid, {"num_warps": 4, "num_stages": 1})


def _rows(shape: Conv, laid: _Laid, k: int) -> Side:
    line = laid.width * laid.channels
    names = ["o0", "o1", "o2"]
    setup = [
        *text.split("m", (laid.batch, *shape.y.shape[2:]), names),
        f"at = o0 * {laid.height * line} + o1 * {shape.strides[0] * line} + o2 * {shape.strides[1] * laid.channels}",
    ]
    within = "k" if k == laid.segment else f"(k // {laid.segment}) * {line} + k % {laid.segment}"
    setup.append(f"taps = image + (at[:, None] + ({within})[None, :])")
    return Side(tuple(setup), (f"a = tl.load(taps + step * {laid.rows * line})",))
