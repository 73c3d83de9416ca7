"""Convolution of few input channels: the first layer of a network, from the picture as it lies (N, C, H, W) or not.

A work-group makes ``down`` rows of ``across * pixels`` outputs, of ``lanes * 4 * vectors`` channels. For each input
channel it puts the stretch of input and that channel's weights in local memory. A work-item makes ``pixels``
neighbours of a row: for a row of the kernel it loads the inputs under it once, as float4, and uses them in every tap.
Lanes side by side run over channels: they share inputs and store side by side. With 8 pixels by 8 channels a 7x7
kernel's row is 448 multiply-adds to 20 loads. Zeros in local memory stand for the padding, so nothing is guarded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from wavefit.native.opencl import c
from wavefit.native.opencl.kernels import _conv
from wavefit.native.operation import Config, Implementation, Kernel, Launch, Limits, Operation, Packed

OPS = ("Conv",)

_MOST_CHANNELS = 8
_LOOP = "__attribute__((opencl_unroll_hint(1)))"  # LLVM for AMD unrolls short loops, and holds all their loads at once
_MOST_CODE = 1536  # multiply-adds of one row of the kernel, unrolled
_MOST_ITEMS = 256
_KEPT = 24  # configurations


def claims(operation: Operation) -> bool:
    shape = _conv.conv(operation)
    return (
        _conv.computable(operation)
        and _conv.known(operation, 1)
        and len(shape.kernel) == 2
        and shape.group == 1
        and shape.ins <= _MOST_CHANNELS
        and _Tile(shape, 1, 1, 4, 1, 64).local_bytes <= 32768
        and shape.kernel[1] * 16 <= _MOST_CODE
    )


@dataclass(frozen=True)
class _Tile:
    """Of a work-group: ``lanes`` by ``across`` by ``down`` work-items, each ``pixels`` by ``4 * vectors`` channels."""

    shape: _conv.Conv
    lanes: int
    vectors: int
    pixels: int
    across: int
    down: int

    @property
    def items(self) -> int:
        return self.lanes * self.across * self.down

    @property
    def channels(self) -> int:
        return self.lanes * 4 * self.vectors

    @property
    def rows(self) -> int:
        """Of the input."""
        shape = self.shape
        return (self.down - 1) * shape.strides[0] + (shape.kernel[0] - 1) * shape.dilations[0] + 1

    @property
    def columns(self) -> int:
        """Of the input that one work-item reads, up to whole float4."""
        shape = self.shape
        used = (self.pixels - 1) * shape.strides[1] + (shape.kernel[1] - 1) * shape.dilations[1] + 1
        return _conv.round_up(used, 4)

    @property
    def pitch(self) -> int:
        """Of a row of the input in local memory."""
        return (self.across - 1) * self.pixels * self.shape.strides[1] + self.columns

    @property
    def local_bytes(self) -> int:
        return 4 * (self.rows * self.pitch + self.shape.taps * self.channels)

    @property
    def registers(self) -> int:
        """Accumulators, weights and columns; clang for gfx942 makes 52 where this says 57."""
        return 4 * self.vectors * (self.pixels + 1) + self.columns + 24

    @property
    def groups(self) -> tuple[int, int, int, int]:
        """Work-groups: batch, down, across, blocks of channels."""
        shape = self.shape
        return (
            shape.batch,
            _conv.ceil_div(shape.out[0], self.down),
            _conv.ceil_div(shape.out[1], self.across * self.pixels),
            _conv.ceil_div(shape.outs, self.channels),
        )

    @property
    def code(self) -> int:
        return self.shape.kernel[1] * self.pixels * 4 * self.vectors


def _tile(shape: _conv.Conv, config: Config) -> _Tile:
    keys = ("lanes", "vectors", "pixels", "across", "down")
    return _Tile(shape, *(int(config[key]) for key in keys))


def configurations(operation: Operation, limits: Limits) -> Iterator[Config]:
    """The best by :func:`cost` of the tiles that fit local memory, the registers of 4 waves, and the image."""
    shape = _conv.conv(operation)
    most = _conv.most_registers(limits)
    found: list[Config] = []
    for lanes, vectors, pixels, across, down in product(
        (4, 8, 16), (1, 2), (8, 4), _across(shape), (1, 2, 4, 8)
    ):
        tile = _Tile(shape, lanes, vectors, pixels, across, down)
        if (
            64 <= tile.items <= min(limits.work_group, _MOST_ITEMS)
            and tile.local_bytes <= limits.local_bytes
            and tile.registers <= most
            and _conv.enough_waves(tile.items, tile.local_bytes, limits)
            and tile.code <= _MOST_CODE
        ):
            sizes = {"lanes": lanes, "vectors": vectors, "pixels": pixels, "across": across, "down": down}
            found.append({**sizes})
    found.sort(key=lambda config: cost(operation, config, limits))
    yield from found[:_KEPT] or [{"lanes": 1, "vectors": 1, "pixels": 4, "across": 1, "down": 1}]


def _across(shape: _conv.Conv) -> list[int]:
    """Work-items along a row: what covers it in one to four stretches, without waste."""
    found = {2, 4, 8}
    for pixels in (4, 8):
        whole = _conv.ceil_div(shape.out[1], pixels)
        found |= {_conv.ceil_div(whole, parts) for parts in (1, 2, 4)}
    return sorted(each for each in found if each <= 32)


def build(operation: Operation, config: Config) -> Implementation:
    shape = _conv.conv(operation)
    tile = _tile(shape, config)
    text, buffers = _conv.parameters(operation, (1,))
    kernel = Kernel(
        name="conv_direct",
        source=_source(operation, tile, text),
        global_size=(tile.items * int(np.prod(tile.groups)),),
        local_size=(tile.items,),
        local_bytes=tile.local_bytes,
        registers=tile.registers,
    )
    return Implementation(
        template="conv_direct",
        config=config,
        launches=(Launch(kernel=kernel, arguments=buffers),),
        packed=(Packed(input=1, how=f"blocks{tile.channels}"),),
        flops=shape.flops,
        bytes=shape.bytes,
    )


def pack(how: str, operation: Operation, array: np.ndarray) -> np.ndarray:
    """(O, C, kernel...) as (O in blocks, C, taps, O of a block): zeros fill the last block up."""
    size = int(how.removeprefix("blocks"))
    outs, ins = array.shape[:2]
    blocks = _conv.ceil_div(outs, size)
    filled = np.zeros((blocks * size, ins, array[0, 0].size), array.dtype)
    filled[:outs] = array.reshape(outs, ins, -1)
    return np.ascontiguousarray(filled.reshape(blocks, size, ins, -1).transpose(0, 2, 3, 1))


def cost(operation: Operation, config: Config, limits: Limits) -> float:
    """A roofline over whole tiles and whole waves.

    The share of the peak is that of the multiply-adds among them and the loads from local memory, one float4 counted
    as 4 multiply-adds, times 0.8; work-groups that leave waves part empty, or compute units idle, take in proportion,
    and large ones wait for each other: of 10 tiles on an H200 those of 128 work-items were a fifth faster than of 256.
    """
    shape = _conv.conv(operation)
    tile = _tile(shape, config)
    loads = tile.columns / 4 + shape.kernel[1] * tile.vectors
    staged = (tile.rows * tile.pitch + shape.taps * tile.channels) / tile.items / shape.kernel[0]
    efficiency = 0.8 * tile.code / (tile.code + 4 * loads + 8 * staged)
    groups = int(np.prod(tile.groups))
    made = groups * tile.items * tile.pixels * 4 * tile.vectors
    filled = _conv.round_up(tile.items, limits.wave) / tile.items
    units = limits.compute_units or 8
    idle = max(1.0, units * 512 / (groups * tile.items))
    flops = 2 * made * shape.ins * shape.taps * filled * idle * (1 + tile.items / 512)
    return _conv.seconds(flops, shape.bytes, limits, efficiency)


def _source(operation: Operation, tile: _Tile, parameters: str) -> str:
    shape = tile.shape
    lines = [
        f"__local float tile[{tile.rows * tile.pitch}] __attribute__((aligned(16)));",
        f"__local float weights[{shape.taps * tile.channels}] __attribute__((aligned(16)));",
        "const int group = get_group_id(0), item = get_local_id(0);",
        *c.coordinates("group", tile.groups, ["n", "by", "bx", "block"]),
        f"const int lane = item % {tile.lanes} * 4;",
        f"const int ax = item / {tile.lanes} % {tile.across} * {tile.pixels};",
        f"const int ay = item / {tile.lanes * tile.across};",
        f"const int top = by * {tile.down * shape.strides[0]} - {shape.begins[0]};",
        f"const int left = bx * {tile.across * tile.pixels * shape.strides[1]} - {shape.begins[1]};",
        *(f"float4 a{v}_{p} = (float4)(0.0f);" for v in range(tile.vectors) for p in range(tile.pixels)),
        _LOOP,
        f"for (int i = 0; i < {shape.ins}; i++) {{",
        *_stage(tile),
        "barrier(CLK_LOCAL_MEM_FENCE);",
        *_multiply(tile),
        "barrier(CLK_LOCAL_MEM_FENCE);",
        "}",
        f"const int y = by * {tile.down} + ay, x = bx * {tile.across * tile.pixels} + ax;",
        *([f"if (y >= {shape.out[0]}) return;"] if shape.out[0] % tile.down else []),
        *_finish(operation, tile),
    ]
    return _conv.kernel("conv_direct", parameters, tile.items, lines)


def _stage(tile: _Tile) -> list[str]:
    """Input channel ``i``'s stretch and weights into local memory."""
    shape, count = tile.shape, tile.shape.taps * tile.channels
    weights = c.load_vector(shape.w.dtype, "in1", f"(block * {shape.ins} + i) * {count} + e", 4, aligned=True)
    return [
        _LOOP,
        f"for (int e = item; e < {tile.rows * tile.pitch}; e += {tile.items}) {{",
        f"const int iy = top + e / {tile.pitch}, ix = left + e % {tile.pitch};",
        f"const int ok = iy >= 0 && iy < {shape.size[0]} && ix >= 0 && ix < {shape.size[1]};",
        f"tile[e] = ok ? {c.load(shape.x.dtype, 'in0', c.index(shape.x, ['n', 'i', 'iy', 'ix']))} : 0.0f;",
        "}",
        _LOOP,
        f"for (int e = item * 4; e < {count}; e += {tile.items * 4})",
        f"*(__local float4 *)(weights + e) = {weights};",
    ]


def _multiply(tile: _Tile) -> list[str]:
    shape = tile.shape
    lines = [
        _LOOP,
        f"for (int ky = 0; ky < {shape.kernel[0]}; ky++) {{",
        f"__local const float *row = tile + (ay * {shape.strides[0]} + ky * {shape.dilations[0]}) * {tile.pitch}"
        f" + ax * {shape.strides[1]};",
        f"__local const float *taps = weights + ky * {shape.kernel[1] * tile.channels} + lane;",
        *(f"const float4 v{q} = *(__local const float4 *)(row + {4 * q});" for q in range(tile.columns // 4)),
    ]
    for kx, v in product(range(shape.kernel[1]), range(tile.vectors)):
        at = kx * tile.channels + v * 4 * tile.lanes
        lines.append(f"{{ const float4 w = *(__local const float4 *)(taps + {at});")
        for p in range(tile.pixels):
            quarter, rest = divmod(p * shape.strides[1] + kx * shape.dilations[1], 4)
            lines.append(f"a{v}_{p} = fma((float4)(v{quarter}.s{rest}), w, a{v}_{p});")
        lines.append("}")
    return [*lines, "}"]


def _finish(operation: Operation, tile: _Tile) -> list[str]:
    shape, lines = tile.shape, []
    ragged = shape.outs % tile.channels != 0
    inside = f"o < {shape.outs}" if shape.outs % 4 else ""
    for v in range(tile.vectors):
        lines.append(f"{{ const int first = block * {tile.channels} + {v * 4 * tile.lanes} + lane;")
        lines.append(f"if (first < {shape.outs}) {{" if ragged else "{")
        lines.append(f"const float4 b = {_conv.bias(operation, 'first', 4, shape.outs if inside else None)};")
        for p in range(tile.pixels):
            if shape.out[1] % (tile.across * tile.pixels):
                lines.append(f"if (x + {p} < {shape.out[1]})")
            lines.append(f"{{ const float4 r = a{v}_{p} + b;")
            lines += [*_conv.finish(operation, "r", ["n", "first", "y", f"x + {p}"], 4, inside), "}"]
        lines.append("} }")
    return lines
