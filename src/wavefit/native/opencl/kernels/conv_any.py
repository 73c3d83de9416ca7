"""Any convolution: every rank, group, stride, dilation, padding and layout; slower than what a special template does.

A work-item makes ``pixels`` neighbours along the last axis times ``channels`` output channels of one group. Lanes run
over the output channels: they read the same inputs (one broadcast load) and neighbouring weights. It is the way to go
for grouped convolutions (ShuffleNet, ResNeXt), where a matrix product per group would be too small for its tiles.
Weights that are computed by the graph are read as they lie; constant ones are packed.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from math import prod

import numpy as np

from wavefit.native.opencl import c
from wavefit.native.opencl.kernels import _conv, _direct, conv_gemm
from wavefit.native.operation import Config, Implementation, Limits, Operation

OPS = ("Conv",)

_LOAD_S = 6e-7  # from one dependent load to the next


def claims(operation: Operation) -> bool:
    """What no matrix product is made of; a grid of tiles is the faster way wherever there is one."""
    return computes(operation) and not conv_gemm.claims(operation)


def computes(operation: Operation) -> bool:
    return _conv.computable(operation, narrow=True) and 3 <= len(operation.input(0).shape) <= 5


def configurations(operation: Operation, limits: Limits) -> Iterator[Config]:
    """``channels`` by ``pixels`` of a work-item, ``items`` of a work-group, ``vector`` input channels read at once."""
    shape = _conv.conv(operation)
    yield from _direct.configurations(shape, limits, shape.out[-1])


def build(operation: Operation, config: Config) -> Implementation:
    shape = _conv.conv(operation)
    grid = _grid(shape, config)
    source = partial(_source, operation, shape, config)
    return _direct.implementation("conv_any", operation, config, grid, source, shape.flops)


def _runs(shape: _conv.Conv, config: Config) -> tuple[int, ...]:
    """Batch, output axes but the last, strips of ``pixels`` of the last."""
    return (shape.batch, *shape.out[:-1], _conv.ceil_div(shape.out[-1], int(config["pixels"])))


def _grid(shape: _conv.Conv, config: Config) -> _conv.Grid:
    blocks = _conv.ceil_div(shape.outs, int(config["channels"])) * shape.group
    return _conv.Grid(blocks, prod(_runs(shape, config)), int(config["items"]))


def pack(how: str, operation: Operation, array: np.ndarray) -> np.ndarray:
    return _conv.pack_taps(array, _conv.conv(operation).group, int(how.removeprefix("taps")))


def cost(operation: Operation, config: Config, limits: Limits) -> float:
    """A roofline in which each input and weight passes through the first cache as often as it is loaded.

    A work-item's loads for one tap and input channel feed ``channels * pixels`` multiply-adds; the share of the peak is
    taken as that over itself and the loads, each load counted as 4 of them, times a half for index arithmetic. No
    work-item ends before its own loads, one after another: 0.7 us each were seen on an H200 at batch 1.
    """
    shape = _conv.conv(operation)
    channels, pixels = int(config["channels"]), int(config["pixels"])
    wasted = _conv.round_up(shape.outs, channels) / shape.outs
    wasted *= _conv.round_up(shape.out[-1], pixels) / shape.out[-1]
    alone = shape.taps * shape.ins / int(config["vector"]) * _LOAD_S
    return max(alone, _conv.seconds(shape.flops * wasted, shape.bytes, limits, _direct.efficiency(config)))


def _source(operation: Operation, shape: _conv.Conv, config: Config, parameters: str) -> str:
    channels, pixels = int(config["channels"]), int(config["pixels"])
    per_group = _conv.ceil_div(shape.outs, channels)
    inner = [f"y{axis}" for axis in range(len(shape.out) - 1)]
    kind = _conv.sums(operation, channels)
    inside = f"o < (group + 1) * {shape.outs}" if shape.outs % channels else ""
    lines = [
        *_grid(shape, config).code,
        f"const int group = block / {per_group};",
        f"const int first = group * {shape.outs} + block % {per_group} * {channels};",
        *c.coordinates("run", _runs(shape, config), ["n", *inner, "strip"]),
        f"const int last = strip * {pixels};",
        f"const {kind} b = {_conv.bias(operation, 'first', channels, shape.y.shape[1] if inside else None)};",
        *(f"{kind} a{p} = b;" for p in range(pixels)),
        *_taps(operation, shape, config, inner),
    ]
    for p in range(pixels):
        stored = _conv.finish(operation, f"a{p}", ["n", "first", *inner, f"last + {p}"], channels, inside)
        lines += [f"if (last + {p} < {shape.out[-1]})", *stored]
    return _conv.kernel("conv_any", parameters, int(config["items"]), lines)


def _taps(operation: Operation, shape: _conv.Conv, config: Config, inner: list[str]) -> list[str]:
    """Loops over the kernel's taps; the last axis' inputs are guarded pixel by pixel."""
    pixels = int(config["pixels"])
    lines, axis = [], len(inner)
    for i, y in enumerate(inner):
        lines += [
            _direct.loop(config, f"for (int k{i} = 0; k{i} < {shape.kernel[i]}; k{i}++) {{"),
            f"const int i{i} = {y} * {shape.strides[i]} - {shape.begins[i]} + k{i} * {shape.dilations[i]};",
            f"if (i{i} < 0 || i{i} >= {shape.size[i]}) continue;",
        ]
    lines.append(_direct.loop(config, f"for (int k{axis} = 0; k{axis} < {shape.kernel[axis]}; k{axis}++) {{"))
    for p in range(pixels):
        at = (
            f"(last + {p}) * {shape.strides[axis]} - {shape.begins[axis]} + k{axis} * {shape.dilations[axis]}"
        )
        places = ["n", f"group * {shape.ins}", *(f"i{i}" for i in range(axis)), f"x{p}"]
        lines += [
            f"const int x{p} = {at};",
            f"const int ok{p} = x{p} >= 0 && x{p} < {shape.size[axis]};",
            f"const int at{p} = {c.index(shape.x, places)};",
        ]
    lines += [
        f"const int tap = {_direct.tap(shape)};",
        *_direct.multiply(operation, shape, config),
        *["}"] * (axis + 1),
    ]
    return lines
