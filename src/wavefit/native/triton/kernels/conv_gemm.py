"""Convolution as an implicit matrix product: pixels by taps and channels, no matrix of patches in memory.

Channels-last input is read in steps that stay within a tap, so that a step's channels lie side by side. Where a group
has few channels, or the input lies otherwise (an image as it comes in), single elements are gathered.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace as changed

import numpy as np
from msgspec.structs import replace

from wavefit.native import space
from wavefit.native.operation import Config, Implementation, Limits, Operation, View
from wavefit.native.triton import text
from wavefit.native.triton.kernels import _conv, _product, _tiles
from wavefit.native.triton.kernels._conv import Conv
from wavefit.native.triton.kernels._product import Product, Side

OPS = ("Conv",)
_FEW = 16  # channels of a group, below which taps are gathered into one step


def claims(operation: Operation) -> bool:
    x, w, y = operation.input(0), operation.input(1), operation.output
    rows = [s for axis, (n, s) in enumerate(zip(y.shape, y.strides, strict=True)) if n > 1 and axis != 1]
    return (
        operation.op == "Conv"
        and len(x.shape) in (3, 4, 5)
        and len(operation.outputs) == 1
        and operation.constant[1]
        and _product.multiplies(x.dtype, w.dtype)
        and text.present(operation)
        and text.computes(operation)
        and rows == sorted(rows, reverse=True)
        and _conv.conv(operation).outs > 1
    )


def configurations(operation: Operation, limits: Limits) -> Iterator[Config]:
    """``m`` by ``n`` by ``k``, ``split``, ``warps``, ``stages``: see :class:`_product.Tile`."""
    shape = _conv.conv(operation)
    return _tiles.configurations(product_of(operation), _depths(shape), lambda k: _steps(shape, k), limits)


def cost(operation: Operation, config: Config, limits: Limits) -> float:
    shape, each = _conv.conv(operation), _product.tile(config)
    seconds = _tiles.seconds(product_of(operation), each, _steps(shape, each.k), limits)
    return seconds * (2.0 if _gathers(shape) else 1.0)


def build(operation: Operation, config: Config) -> Implementation:
    shape, each = _conv.conv(operation), _product.tile(config)
    product = changed(product_of(operation), packed=f"depth {each.k}")
    b = _weights(shape, each.k)
    a = _gathered(shape, each.k) if _gathers(shape) else channels(shape, each.k)
    return _product.implementation("conv_gemm", product, a, b, each, config, _steps(shape, each.k))


def pack(how: str, operation: Operation, array: np.ndarray) -> np.ndarray:
    """(O, I, taps...) as (O, taps..., I): channels, or all of it where taps are gathered, padded to whole steps."""
    shape = _conv.conv(operation)
    if how == "sums":
        return _product.sums(array, shape.zero_point, shape.x.dtype)
    step = int(how.split()[1])
    moved = np.moveaxis(array, 1, -1)
    flat = moved.reshape(len(array), 1, -1) if _gathers(shape) else moved.reshape(len(array), shape.taps, -1)
    extra = -flat.shape[-1] % step
    return np.pad(flat, ((0, 0), (0, 0), (0, extra)))


def _gathers(shape: Conv) -> bool:
    side_by_side = shape.x.strides[1] == 1 or shape.x.shape[1] == 1
    return shape.ins < _FEW or not side_by_side


def _depths(shape: Conv) -> tuple[int, ...] | None:
    if _gathers(shape):
        whole = text.power_of_two(shape.taps * shape.ins)
        return tuple(dict.fromkeys(max(16 * (4 // shape.x.itemsize), min(whole, k)) for k in (32, 64, 128)))
    few = max(16, 16 * (4 // shape.x.itemsize) // 2)
    return (few,) if shape.ins <= few else None


def _steps(shape: Conv, k: int) -> int:
    if _gathers(shape):
        return -(-shape.ins * shape.taps // k)
    return shape.taps * -(-shape.ins // k)


def product_of(operation: Operation) -> Product:
    """The convolution as a product, one for each group."""
    shape = _conv.conv(operation)
    grouped = operation if shape.group == 1 else _by_group(operation)
    rank = len(operation.output.shape)
    space_axes = [axis for axis in range(rank) if axis != 1]
    if shape.group == 1:
        views, ranks, _ = _product.arranged(operation, [[], space_axes, [1]])
    else:
        moved = [axis + (axis > 1) for axis in space_axes]
        views, ranks, _ = _product.arranged(grouped, [[1], moved, [2]])
    return Product(
        operation=operation,
        rows=shape.pixels,
        columns=shape.outs,
        depth=shape.ins * shape.taps,
        batch=shape.group,
        views=views,
        ranks=ranks,
        bias=operation.has(2),
        zero_point=shape.zero_point,
    )


def _by_group(operation: Operation) -> Operation:
    """The operation with its channel axis split into groups and channels of a group, in the output and operands."""
    group = _conv.conv(operation).group
    rank = len(operation.output.shape)

    def split(view: View) -> View:
        view = space.broadcast(view, rank)
        channels, stride = view.shape[1], view.strides[1]
        if channels == 1:
            return replace(
                view,
                shape=(view.shape[0], 1, 1, *view.shape[2:]),
                strides=(view.strides[0], 0, 0, *view.strides[2:]),
            )
        inner = channels // group
        return replace(
            view,
            shape=(view.shape[0], group, inner, *view.shape[2:]),
            strides=(view.strides[0], stride * inner, stride, *view.strides[2:]),
        )

    own = operation.own
    later = [view if view is None else split(view) for view in operation.inputs[own:]]
    return replace(operation, inputs=(*operation.inputs[:own], *later), outputs=(split(operation.output),))


def _pixel(shape: Conv) -> list[str]:
    """Statements that find each row's first tap: ``at`` its place, ``y0``, ``y1``... its coordinates."""
    names = [f"o{axis}" for axis in range(1 + len(shape.kernel))]
    lines = text.split("m", (shape.y.shape[0], *shape.y.shape[2:]), names)
    terms = [f"o0 * {shape.x.strides[0]}"] if shape.x.shape[0] > 1 else []
    for axis, (stride, begin, step) in enumerate(
        zip(shape.strides, shape.begins, shape.x.strides[2:], strict=True)
    ):
        lines.append(f"y{axis} = o{axis + 1} * {stride} - {begin}")
        terms.append(f"y{axis} * {step}")
    group = [f"z * {shape.ins * shape.x.strides[1]}"] if shape.group > 1 else []
    lines.append(f"at = {' + '.join([*terms, *group, str(shape.x.offset)])}")
    return lines


def channels(shape: Conv, k: int) -> Side:
    """The first factor in steps within a tap: k channels from a multiple of k on."""
    blocks = -(-shape.ins // k)
    uneven = shape.ins % k != 0
    setup = _pixel(shape)
    step: list[str] = []
    mask: list[str] = []
    block = "step" if shape.taps == 1 else f"step % {blocks}"
    if blocks == 1:
        block = "0"
    place = ["at[:, None]"]
    if shape.taps > 1:
        step.append(f"tap = step // {blocks}" if blocks > 1 else "tap = step")
        step += text.split("tap", shape.kernel, [f"t{axis}" for axis in range(len(shape.kernel))])
        moves = [
            f"t{axis} * {dilation * stride}"
            for axis, (dilation, stride) in enumerate(zip(shape.dilations, shape.x.strides[2:], strict=True))
            if shape.kernel[axis] > 1
        ]
        place.append(f"({' + '.join(moves)})")
    step += _inside(shape, [f"t{axis} * {d}" for axis, d in enumerate(shape.dilations)], "[:, None]", mask)
    if blocks > 1:
        place.append(f"{block} * {k}")
    if uneven:
        mask.append(
            f"(k < {shape.ins} - {block} * {k})[None, :]" if blocks > 1 else f"(k < {shape.ins})[None, :]"
        )
    place.append("k[None, :]")
    step.append(f"a = {_load(shape, ' + '.join(place), mask)}")
    return Side(tuple(setup), tuple(step))


def _gathered(shape: Conv, k: int) -> Side:
    """Steps through taps and channels alike, element by element; the tile is read turned where pixels run fastest."""
    depth = shape.ins * shape.taps
    names = [*(f"t{axis}" for axis in range(len(shape.kernel))), "channel"]
    step = [f"place = step * {k} + k", *text.split("place", (*shape.kernel, shape.ins), names)]
    moves = [
        f"t{axis} * {dilation * stride}"
        for axis, (dilation, stride) in enumerate(zip(shape.dilations, shape.x.strides[2:], strict=True))
    ]
    moves.append(f"channel * {shape.x.strides[1]}")
    step.append(f"move = {' + '.join(moves)}")
    mask: list[str] = []
    turned = shape.x.strides[1] != 1
    of_row, of_step = ("[None, :]", "[:, None]") if turned else ("[:, None]", "[None, :]")
    taps = [f"(t{axis} * {d}){of_step}" for axis, d in enumerate(shape.dilations)]
    step += _inside(shape, taps, of_row, mask)
    if depth % k:
        mask.append(f"(place < {depth}){of_step}")
    loaded = _load(shape, f"at{of_row} + move{of_step}", mask)
    step.append(f"a = tl.trans({loaded})" if turned else f"a = {loaded}")
    return Side(tuple(_pixel(shape)), tuple(step))


def _inside(shape: Conv, taps: list[str], of_row: str, mask: list[str]) -> list[str]:
    """Adds to the mask which taps lie inside the input; the axes along which some do not."""
    lines = []
    for axis, outside in enumerate(shape.padded):
        if outside:
            moved = f" + {taps[axis]}" if shape.kernel[axis] > 1 else ""
            lines.append(f"v{axis} = y{axis}{of_row}{moved}")
            mask.append(f"(v{axis} >= 0) & (v{axis} < {shape.x.shape[2 + axis]})")
    return lines


def _load(shape: Conv, place: str, mask: list[str]) -> str:
    point = str(shape.zero_point) if shape.x.dtype in _product.BYTES else "0.0"
    guard = f", mask={' & '.join(mask)}, other={point}" if mask else ""
    return _product.factor(shape.x.dtype, shape.w.dtype, f"tl.load(in0 + ({place}){guard})")


def _weights(shape: Conv, k: int) -> Side:
    if _gathers(shape):
        length = -(-shape.ins * shape.taps // k) * k
    else:
        length = shape.taps * -(-shape.ins // k) * k
    group = f" + z * {shape.outs * length}" if shape.group > 1 else ""
    setup = (f"weights = in1 + (n[None, :] * {length} + k[:, None]{group})",)
    return Side(setup, (f"b = tl.load(weights + step * {k})",))
