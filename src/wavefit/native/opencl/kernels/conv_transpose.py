"""Transposed convolution, gathered: each output sums the inputs that reach it, so that nothing is added atomically.

Output ``y`` of an axis takes input ``(y + begin - k * dilation) / stride`` for each tap ``k`` where that divides. A
work-item makes ``pixels`` outputs that lie ``stride`` apart along the last axis: they share their taps and read
neighbouring inputs. Without dilation only the taps that divide are visited.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from math import prod

import numpy as np

from wavefit.native.opencl import c
from wavefit.native.opencl.kernels import _conv, _direct
from wavefit.native.operation import Config, Implementation, Limits, Operation

OPS = ("ConvTranspose",)


def claims(operation: Operation) -> bool:
    return _conv.computable(operation) and 3 <= len(operation.input(0).shape) <= 5


def configurations(operation: Operation, limits: Limits) -> Iterator[Config]:
    """``channels`` by ``pixels`` of a work-item, ``items`` of a work-group, ``vector`` input channels read at once."""
    shape = _conv.conv(operation)
    yield from _direct.configurations(shape, limits, _conv.ceil_div(shape.out[-1], shape.strides[-1]))


def build(operation: Operation, config: Config) -> Implementation:
    shape = _conv.conv(operation)
    grid = _grid(shape, config)
    source = partial(_source, operation, shape, config)
    return _direct.implementation("conv_transpose", operation, config, grid, source, _flops(shape))


def pack(how: str, operation: Operation, array: np.ndarray) -> np.ndarray:
    """(I, O/group, kernel...) as (taps, I/group, group, O/group up to a multiple of the channels)."""
    shape = _conv.conv(operation)
    grouped = array.reshape(shape.group, shape.ins, shape.outs, -1).transpose(0, 2, 1, 3)
    order = grouped.reshape(shape.group * shape.outs, shape.ins, -1)
    return _conv.pack_taps(order, shape.group, int(how.removeprefix("taps")))


def cost(operation: Operation, config: Config, limits: Limits) -> float:
    """As conv_any's: a roofline with the share of the peak that the loads of a work-item's loop leave."""
    shape = _conv.conv(operation)
    wasted = _conv.round_up(shape.outs, int(config["channels"])) / shape.outs
    efficiency = _direct.efficiency(config) / (2 if max(shape.dilations) > 1 else 1)
    return _conv.seconds(_flops(shape) * wasted, shape.bytes, limits, efficiency)


def _flops(shape: _conv.Conv) -> int:
    return 2 * shape.x.size * shape.outs * shape.taps


def _runs(shape: _conv.Conv, config: Config) -> tuple[int, ...]:
    """Batch, output axes but the last, phases of the last, strips of ``pixels`` outputs of one phase."""
    stride = shape.strides[-1]
    strips = _conv.ceil_div(_conv.ceil_div(shape.out[-1], stride), int(config["pixels"]))
    return (shape.batch, *shape.out[:-1], min(stride, shape.out[-1]), strips)


def _grid(shape: _conv.Conv, config: Config) -> _conv.Grid:
    blocks = _conv.ceil_div(shape.outs, int(config["channels"])) * shape.group
    return _conv.Grid(blocks, prod(_runs(shape, config)), int(config["items"]))


def _source(operation: Operation, shape: _conv.Conv, config: Config, parameters: str) -> str:
    channels, pixels = int(config["channels"]), int(config["pixels"])
    per_group, stride = _conv.ceil_div(shape.outs, channels), shape.strides[-1]
    inner = [f"y{axis}" for axis in range(len(shape.out) - 1)]
    kind = _conv.floats(channels)
    inside = f"o < (group + 1) * {shape.outs}" if shape.outs % channels else ""
    lines = [
        *_grid(shape, config).code,
        f"const int group = block / {per_group};",
        f"const int first = group * {shape.outs} + block % {per_group} * {channels};",
        *c.coordinates("run", _runs(shape, config), ["n", *inner, "phase", "strip"]),
        f"const int last = strip * {pixels * stride} + phase;",
        f"const {kind} b = {_conv.bias(operation, 'first', channels, shape.y.shape[1] if inside else None)};",
        *(f"{kind} a{p} = b;" for p in range(pixels)),
        *_taps(operation, shape, config, [*inner, "last"]),
    ]
    for p in range(pixels):
        stored = _conv.finish(
            operation, f"a{p}", ["n", "first", *inner, f"last + {p * stride}"], channels, inside
        )
        lines += [f"if (last + {p * stride} < {shape.out[-1]})", *stored]
    return _conv.kernel("conv_transpose", parameters, int(config["items"]), lines)


def _taps(operation: Operation, shape: _conv.Conv, config: Config, places: list[str]) -> list[str]:
    """Loops over the taps that divide; ``i0``, ... are the inputs, of the last axis that of the first pixel."""
    pixels, axis = int(config["pixels"]), len(places) - 1
    lines = []
    for i, place in enumerate(places):
        stride, dilation = shape.strides[i], shape.dilations[i]
        start, step = (f"({place} + {shape.begins[i]}) % {stride}", stride) if dilation == 1 else ("0", 1)
        lines += [
            _direct.loop(config, f"for (int k{i} = {start}; k{i} < {shape.kernel[i]}; k{i} += {step}) {{"),
            f"const int t{i} = {place} + {shape.begins[i]} - k{i} * {dilation};",
        ]
        if dilation > 1 and stride > 1:
            lines.append(f"if (t{i} % {stride} != 0) continue;")
        lines.append(f"const int i{i} = t{i} / {stride};")
        if i < axis:
            lines.append(f"if (t{i} < 0 || i{i} >= {shape.size[i]}) continue;")
    for p in range(pixels):
        inputs = ["n", f"group * {shape.ins}", *(f"i{i}" for i in range(axis)), f"(i{axis} + {p})"]
        lines += [
            f"const int ok{p} = t{axis} + {p * shape.strides[axis]} >= 0 && i{axis} + {p} < {shape.size[axis]};",
            f"const int at{p} = {c.index(shape.x, inputs)};",
        ]
    lines += [f"const int tap = {_direct.tap(shape)};", *_direct.multiply(operation, shape, config)]
    return [*lines, *["}"] * (axis + 1)]
