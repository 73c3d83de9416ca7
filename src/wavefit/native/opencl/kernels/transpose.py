"""Copies between different unit-stride axes (NCHW to channels-last and back) through a tile of local memory.

A work-group reads a tile along the input's unit-stride axis, and writes it along the output's: both are coalesced. With
few channels the tile spans them all, so that what is written is one stretch of memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec

from wavefit.native import space
from wavefit.native.opencl import c
from wavefit.native.opencl.kernels import _lanes, _source, _walk
from wavefit.native.operation import Config, Implementation, Limits, Operation, View

OPS = ("Copy",)

_TILES = ((32, 32), (64, 16), (16, 64), (64, 32), (32, 64))


def claims(operation: Operation) -> bool:
    if operation.own != 1 or len(operation.outputs) != 1 or not _source.present(operation):
        return False
    axes = _tiled_axes(operation)
    return axes is not None and operation.input(0).shape == operation.output.shape


def _tiled_axes(operation: Operation) -> tuple[int, int] | None:
    """The unit-stride axes of input and output, where they differ and both are longer than 1."""
    read = _unit(space.over(operation.input(0), operation.output.shape))
    write = _unit(operation.output)
    return None if read is None or write is None or read == write else (read, write)


def _unit(view: View) -> int | None:
    axes = (a for a, (n, s) in enumerate(zip(view.shape, view.strides, strict=True)) if n > 1 and s == 1)
    return next(axes, None)


def _laid(operation: Operation) -> Operation:
    """The operation over three groups of axes: the rest, the input's fast axis, the output's fast axis.

    The first group keeps its number of axes; of the others one each is left or the walk is taken apart wrongly, so
    what does not merge with a fast axis goes to the rest.
    """
    shape = operation.output.shape
    axes = _tiled_axes(operation)
    assert axes is not None
    views = [space.over(v, shape) for v in (operation.output, *operation.inputs) if v is not None]
    rest = [axis for axis in range(len(shape)) if axis not in axes]
    read = _joined(views, rest, axes[0])
    write = _joined(views, rest, axes[1])
    laid, _ = space.arranged(views, [rest, read, write])
    return msgspec.structs.replace(operation, outputs=(laid[0],), inputs=tuple(laid[1:]))


def _joined(views: list[View], rest: list[int], fast: int) -> list[int]:
    """The fast axis with those axes of ``rest``, taken out of it, that go on where it ends in every view."""
    group, size = [fast], views[0].shape[fast]
    steps = [view.strides[fast] for view in views]
    while True:
        wanted = tuple(size * step for step in steps)
        for axis in rest:
            if views[0].shape[axis] > 1 and tuple(view.strides[axis] for view in views) == wanted:
                rest.remove(axis)
                group.insert(0, axis)
                size *= views[0].shape[axis]
                break
        else:
            return group


def configurations(operation: Operation, limits: Limits) -> Iterator[Config]:
    *_, read, write = _laid(operation).output.shape
    itemsize = 8 if operation.input(0).itemsize == 8 else 4
    seen = set()
    for wanted in sorted(_TILES, key=lambda tile: _waste(read, tile[0]) * _waste(write, tile[1])):
        tile = _fitted(wanted, read, write)
        if tile in seen or (tile[0] | 1) * tile[1] * itemsize > limits.local_bytes:
            continue
        seen.add(tile)
        for local in _source.groups(limits, 256, 128, 64):
            yield {"tile_read": tile[0], "tile_write": tile[1], "local": local}


def _waste(size: int, tile: int) -> float:
    return space.rounded(size, tile) / size


def _fitted(wanted: tuple[int, int], read: int, write: int) -> tuple[int, int]:
    """A tile no larger than the tensor; what one axis is short of, the other has more."""
    first, second = min(wanted[0], read), min(wanted[1], write)
    area = wanted[0] * wanted[1]
    return min(read, max(first, area // second)), min(write, max(second, area // first))


def build(operation: Operation, config: Config) -> Implementation:
    laid = _laid(operation)
    local, tile = int(config["local"]), (int(config["tile_read"]), int(config["tile_write"]))
    *rest, read, write = laid.output.shape
    across, down = -(-read // tile[0]), -(-write // tile[1])
    groups = math.prod(rest) * across * down
    kind = c.register(operation.input(0).dtype)
    made = _source.kernel(
        "transpose",
        c.parameters(laid)[0],
        _body(laid, tile, local, kind),
        ((groups * local,), (local,)),
        _lanes.declared(laid, operation.input(0).dtype),
        local_bytes=(tile[0] | 1) * tile[1] * (8 if kind.endswith("long") else 4),
    )
    return _source.single("transpose", operation, config, made)


def _body(laid: Operation, tile: tuple[int, int], local: int, kind: str) -> list[str]:
    *rest, read, write = laid.output.shape
    across, down = -(-read // tile[0]), -(-write // tile[1])
    wide = space.far(laid)
    names = [f"i{number}" for number in range(len(rest))]
    source = c.load(laid.input(0).dtype, "in0", c.index(laid.input(0), [*names, "r", "w"]))
    pitch, area = tile[0] | 1, tile[0] * tile[1]
    return [
        f"__local {kind} tile[{pitch * tile[1]}];",
        f"const {'ulong' if wide else 'uint'} group = get_group_id(0);",
        *c.split("group", [*rest, down, across], [*names, "tile_w", "tile_r"], wide),
        f"for (int k = get_local_id(0); k < {area}; k += {local}) {{",
        f"    const int a = k % {tile[0]}, b = k / {tile[0]};",
        f"    const int r = tile_r * {tile[0]} + a, w = tile_w * {tile[1]} + b;",
        f"    if (r < {read} && w < {write}) tile[b * {pitch} + a] = {source};",
        "}",
        "barrier(CLK_LOCAL_MEM_FENCE);",
        f"for (int k = get_local_id(0); k < {area}; k += {local}) {{",
        f"    const int a = k / {tile[1]}, b = k % {tile[1]};",
        f"    const int r = tile_r * {tile[0]} + a, w = tile_w * {tile[1]} + b;",
        f"    if (r < {read} && w < {write}) {{",
        *_walk.indented(_lanes.emitted(laid, [f"tile[b * {pitch} + a]"], [*names, "r", "w"]), 2),
        "    }",
        "}",
    ]


def cost(operation: Operation, config: Config, limits: Limits) -> float:
    *_, read, write = _laid(operation).output.shape
    waste = _waste(read, int(config["tile_read"])) * _waste(write, int(config["tile_write"]))
    short = max(1.0, 16 / min(read, int(config["tile_read"])))
    return _source.seconds(_source.traffic(operation) * waste * short, operation.output.size, limits)
