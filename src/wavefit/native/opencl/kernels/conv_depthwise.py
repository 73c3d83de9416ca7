"""Depthwise convolution: one input channel an output channel, channels-last.

A work-item makes ``rows`` x ``pixels`` outputs of ``vector`` neighbouring channels. It goes down the input rows that
those outputs need and loads each input once: an input row serves every output row whose window holds it, and every
pixel of it. Lanes run over the channels, so that loads, stores and weights are coalesced. The work is bound by memory:
9 to 25 multiply-adds for each element.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np

from wavefit.native.opencl import c
from wavefit.native.opencl.kernels import _conv
from wavefit.native.operation import Config, Implementation, Kernel, Launch, Limits, Operation, Packed

OPS = ("Conv",)


def claims(operation: Operation) -> bool:
    """Whether each group has one input channel; with several outputs a group, vectors are of 1."""
    if not _conv.computable(operation, narrow=True) or not _conv.known(operation, 1):
        return False
    shape = _conv.conv(operation)
    return (
        len(shape.kernel) in (1, 2)
        and shape.ins == 1
        and shape.group > 1
        and shape.taps <= 121
        and shape.x.channels_last
        and shape.y.channels_last
    )


def configurations(operation: Operation, limits: Limits) -> Iterator[Config]:
    """``rows`` by ``pixels`` by ``vector`` of a work-item, ``items`` of a work-group.

    Tiles of up to 256 accumulators and inputs; no more than keeps 4 waves on a SIMD where registers are known.
    """
    shape = _conv.conv(operation)
    rows_out, width_out = _rows(shape), shape.out[-1]
    most = _conv.most_registers(limits)
    seen = set()
    for vector, rows, pixels in _tiles(shape, limits):
        rows, pixels = min(rows, rows_out), min(pixels, _conv.round_up(width_out, 2))
        if (vector, rows, pixels) in seen:
            continue
        seen.add((vector, rows, pixels))
        if _registers(shape, vector, rows, pixels) > most and (vector, rows, pixels) != (1, 1, 1):
            continue
        for items in (64, 128, 256):
            if items <= max(limits.work_group, 64):
                yield {
                    "vector": vector,
                    "rows": rows,
                    "pixels": pixels,
                    "items": min(items, limits.work_group),
                }


def _tiles(shape: _conv.Conv, limits: Limits) -> list[tuple[int, int, int]]:
    """Tiles by falling expected speed: the largest that leaves every compute unit enough work-items."""
    width = next(v for v in (4, 2, 1) if _widest(shape) % v == 0)
    sizes = [(width, 2, 4), (width, 1, 4), (width, 4, 4), (width, 2, 2), (width, 1, 2), (width, 1, 1)]
    sizes += [(2, 2, 4), (2, 4, 4)] if width == 4 else []
    sizes += [(1, 2, 4), (1, 4, 4), (1, 1, 1)]
    enough = (limits.compute_units or 8) * 512

    def lonely(size: tuple[int, int, int]) -> bool:
        return shape.y.size < prod(size) * enough

    return sorted(sizes, key=lonely)


def _widest(shape: _conv.Conv) -> int:
    """A number that every vector width that fits divides."""
    return 1 if shape.outs > 1 else shape.x.shape[1]


def _rows(shape: _conv.Conv) -> int:
    return shape.out[0] if len(shape.out) == 2 else 1


def _registers(shape: _conv.Conv, vector: int, rows: int, pixels: int) -> int:
    inputs = (pixels - 1) * shape.strides[-1] + (shape.kernel[-1] - 1) * shape.dilations[-1] + 1
    return vector * (rows * pixels + inputs + shape.kernel[-1]) + 24


def build(operation: Operation, config: Config) -> Implementation:
    shape = _conv.conv(operation)
    vector, rows, pixels, items = (int(config[key]) for key in ("vector", "rows", "pixels", "items"))
    grid = _conv.Grid(shape.y.shape[1] // vector, prod(_tiling(shape, config)), items)
    text, buffers = _conv.parameters(operation, (1,))
    kernel = Kernel(
        name="conv_depthwise",
        source=_source(operation, shape, config, text, grid),
        global_size=grid.global_size,
        local_size=(grid.items,),
        registers=_registers(shape, vector, rows, pixels),
    )
    return Implementation(
        template="conv_depthwise",
        config=config,
        launches=(Launch(kernel=kernel, arguments=buffers),),
        packed=(Packed(input=1, how="taps"),),
        flops=shape.flops,
        bytes=shape.bytes,
    )


def pack(how: str, operation: Operation, array: np.ndarray) -> np.ndarray:
    """(O, 1, kernel...) as (taps, O)."""
    return np.ascontiguousarray(array.reshape(array.shape[0], -1).T)


def cost(operation: Operation, config: Config, limits: Limits) -> float:
    """A roofline; inputs that tiles of neighbouring work-items share count once more for a quarter (caches serve most).

    Arithmetic is taken at a third of the peak; a tile that leaves compute units idle costs in proportion.
    """
    shape = _conv.conv(operation)
    rows, pixels, vector = (int(config[key]) for key in ("rows", "pixels", "vector"))
    tile_rows = (rows - 1) * (shape.strides[0] if len(shape.out) == 2 else 1)
    tile_rows += ((shape.kernel[0] - 1) * shape.dilations[0] if len(shape.out) == 2 else 0) + 1
    tile_width = (pixels - 1) * shape.strides[-1] + (shape.kernel[-1] - 1) * shape.dilations[-1] + 1
    loads = shape.y.size / (rows * pixels) * tile_rows * tile_width * shape.x.itemsize
    moved = shape.bytes + max(0.0, loads - shape.x.size * shape.x.itemsize) / 4
    waste = _conv.round_up(_rows(shape), rows) / _rows(shape)
    waste *= _conv.round_up(shape.out[-1], pixels) / shape.out[-1]
    items = shape.y.size / (rows * pixels * vector)
    idle = max(1.0, (limits.compute_units or 8) * 256 / items)
    return _conv.seconds(shape.flops * waste, moved * waste * idle, limits, 0.33)


def _tiling(shape: _conv.Conv, config: Config) -> tuple[int, int, int]:
    """Batch, tiles down and tiles across."""
    down = _conv.ceil_div(_rows(shape), int(config["rows"]))
    return shape.batch, down, _conv.ceil_div(shape.out[-1], int(config["pixels"]))


def _source(
    operation: Operation, shape: _conv.Conv, config: Config, parameters: str, grid: _conv.Grid
) -> str:
    vector, rows, pixels = (int(config[key]) for key in ("vector", "rows", "pixels"))
    kind = _conv.sums(operation, vector)
    lines = [
        *grid.code,
        f"const int o = block * {vector};",
        *c.coordinates("run", _tiling(shape, config), ["n", "down", "strip"]),
        f"const int y = down * {rows}, x = strip * {pixels};",
        f"const {kind} b = {_conv.bias(operation, 'o', vector)};",
        *(f"{kind} a{r}_{p} = b;" for r in range(rows) for p in range(pixels)),
        *_accumulate(operation, vector, rows, pixels),
    ]
    for r in range(rows):
        for p in range(pixels):
            space = [f"y + {r}", f"x + {p}"] if len(shape.out) == 2 else [f"x + {p}"]
            checks = [f"x + {p} < {shape.out[-1]}"] * (shape.out[-1] % pixels > 0)
            checks += [f"y + {r} < {_rows(shape)}"] * (_rows(shape) % rows > 0)
            guard = f"if ({' && '.join(checks)})" if checks else ""
            lines += [guard, *_conv.finish(operation, f"a{r}_{p}", ["n", "o", *space], vector)]
    return _conv.kernel("conv_depthwise", parameters, grid.items, lines)


def _accumulate(operation: Operation, vector: int, rows: int, pixels: int) -> list[str]:
    """Unrolled over the input rows of the tile: load a row, then use it in every output row whose window holds it."""
    shape = _conv.conv(operation)
    flat = len(shape.out) == 1
    kernel, stride, dilation = (
        ((1, *each) if flat else each) for each in (shape.kernel, shape.strides, shape.dilations)
    )
    begins, size = ((0, *shape.begins), (1, *shape.size)) if flat else (shape.begins, shape.size)
    across = (pixels - 1) * stride[1] + (kernel[1] - 1) * dilation[1] + 1
    kind, multiply_add = _conv.sums(operation, vector), _conv.multiply_add(operation)
    channel = "o" if shape.outs == 1 else f"o / {shape.outs}"
    wide, zero = _conv.aligned(shape.x, vector), _conv.zeros(operation, vector)
    used = sorted({p * stride[1] + k * dilation[1] for p in range(pixels) for k in range(kernel[1])})
    lines = [f"const int top = y * {stride[0]} - {begins[0]}, left = x * {stride[1]} - {begins[1]};"]
    for row in range((rows - 1) * stride[0] + (kernel[0] - 1) * dilation[0] + 1):
        windows = [
            (r, (row - r * stride[0]) // dilation[0])
            for r in range(rows)
            if 0 <= row - r * stride[0] <= (kernel[0] - 1) * dilation[0]
            and (row - r * stride[0]) % dilation[0] == 0
        ]
        if not windows:
            continue
        lines.append(f"{{ const int i = top + {row}; if (i >= 0 && i < {size[0]}) {{")
        for j in used:
            place = ["n", channel, *([] if flat else ["i"]), f"left + {j}"]
            at = c.index(shape.x, place)
            read = c.load_factor(shape.x.dtype, "in0", at, vector, wide, shape.zero_point)
            lines.append(f"const {kind} v{j} = left + {j} >= 0 && left + {j} < {size[1]} ? {read} : {zero};")
        assert across > max(used)
        for r, ky in windows:
            for kx in range(kernel[1]):
                at = f"{(ky * kernel[1] + kx) * shape.y.shape[1]} + o"
                lines.append(f"{{ const {kind} w = {c.load_factor(shape.w.dtype, 'in1', at, vector, True)};")
                for p in range(pixels):
                    lines.append(
                        f"a{r}_{p} = {multiply_add}(v{p * stride[1] + kx * dilation[1]}, w, a{r}_{p});"
                    )
                lines.append("}")
        lines.append("} }")
    return lines
