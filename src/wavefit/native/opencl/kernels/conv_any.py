"""Any convolution: every rank, group, stride, dilation, padding and layout; slower than what a special template does.

A work-item makes ``pixels`` neighbours along the last axis times ``channels`` output channels of one group. Lanes run
over the output channels: they read the same inputs (one broadcast load) and neighbouring weights. It is the way to go
for grouped convolutions (ShuffleNet, ResNeXt), where a matrix product per group would be too small for its tiles.
Weights that are computed by the graph are read as they lie; constant ones are packed.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from wavefit.native.opencl import c
from wavefit.native.opencl.kernels import _conv
from wavefit.native.operation import Config, Implementation, Kernel, Launch, Limits, Operation, Packed

OPS = ("Conv",)


def claims(operation: Operation) -> bool:
    return _conv.computable(operation) and 3 <= len(operation.input(0).shape) <= 5


def configurations(operation: Operation, limits: Limits) -> Iterator[Config]:
    """``channels`` by ``pixels`` of a work-item, ``items`` of a work-group, ``vector`` input channels read at once."""
    shape = _conv.conv(operation)
    vector = _vector(shape)
    seen = set()
    for channels, pixels in ((4, 4), (4, 2), (8, 4), (8, 2), (4, 8), (4, 1), (2, 4), (1, 4), (1, 1)):
        channels = min(channels, _conv.lanes(shape.outs, 8))
        pixels = min(pixels, _conv.lanes(shape.out[-1], 8))
        registers = channels * pixels + channels * vector + pixels * (vector + 2) + 24
        for items in (64, 128, 256):
            config = (channels, pixels, items, vector)
            small = channels * pixels == 1 and items == 64
            if config in seen or (
                not small and (items > limits.work_group or registers > limits.most_registers)
            ):
                continue
            seen.add(config)
            yield {
                "channels": channels,
                "pixels": pixels,
                "items": min(items, limits.work_group),
                "vector": vector,
            }


def _vector(shape: _conv.Conv) -> int:
    """Input channels that one load can take."""
    beside = shape.x.channels_last and shape.x.shape[1] > 1
    return next((width for width in (4, 2) if beside and shape.ins % width == 0), 1)


def build(operation: Operation, config: Config) -> Implementation:
    shape = _conv.conv(operation)
    channels, pixels, items = (int(config[key]) for key in ("channels", "pixels", "items"))
    blocks = _conv.ceil_div(shape.outs, channels) * shape.group
    runs = shape.pixels // shape.out[-1] * _conv.ceil_div(shape.out[-1], pixels)
    local = _conv.lanes(blocks, items)
    constant = _conv.known(operation, 1)
    text, buffers = _conv.parameters(operation, (1,) if constant else ())
    kernel = Kernel(
        name="conv_any",
        source=_source(operation, shape, config, text),
        global_size=(_conv.round_up(blocks, local), _conv.round_up(runs, items // local)),
        local_size=(local, items // local),
        registers=channels * pixels + 32,
    )
    return Implementation(
        template="conv_any",
        config=config,
        launches=(Launch(kernel=kernel, arguments=buffers),),
        packed=(Packed(input=1, how=f"taps{channels}"),) if constant else (),
        flops=shape.flops,
        bytes=shape.bytes,
    )


def pack(how: str, operation: Operation, array: np.ndarray) -> np.ndarray:
    return _conv.pack_taps(array, _conv.conv(operation).group, int(how.removeprefix("taps")))


def cost(operation: Operation, config: Config, limits: Limits) -> float:
    """A roofline in which each input and weight passes through the first cache as often as it is loaded.

    A work-item's loads for one tap and input channel feed ``channels * pixels`` multiply-adds; the share of the peak is
    taken as that over itself and the loads, each load counted as 4 of them, times a half for index arithmetic.
    """
    shape = _conv.conv(operation)
    channels, pixels = int(config["channels"]), int(config["pixels"])
    wasted = _conv.round_up(shape.outs, channels) / shape.outs
    wasted *= _conv.round_up(shape.out[-1], pixels) / shape.out[-1]
    loads = channels / min(4, channels) + pixels / int(config["vector"])
    efficiency = 0.5 * channels * pixels / (channels * pixels + 4 * loads)
    return _conv.seconds(shape.flops * wasted, shape.bytes, limits, efficiency)


def _source(operation: Operation, shape: _conv.Conv, config: Config, parameters: str) -> str:
    channels, pixels = int(config["channels"]), int(config["pixels"])
    per_group = _conv.ceil_div(shape.outs, channels)
    inner = [f"y{axis}" for axis in range(len(shape.out) - 1)]
    runs = (shape.batch, *shape.out[:-1], _conv.ceil_div(shape.out[-1], pixels))
    kind = _conv.floats(channels)
    inside = f"o < (group + 1) * {shape.outs}" if shape.outs % channels else ""
    lines = [
        "const int block = get_global_id(0), run = get_global_id(1);",
        f"if (block >= {per_group * shape.group} || run >= {np.prod(runs)}) return;",
        f"const int group = block / {per_group};",
        f"const int first = group * {shape.outs} + block % {per_group} * {channels};",
        *c.coordinates("run", runs, ["n", *inner, "strip"]),
        f"const int last = strip * {pixels};",
        f"const {kind} b = {_conv.bias(operation, 'first', channels, shape.y.shape[1] if inside else None)};",
        *(f"{kind} a{p} = b;" for p in range(pixels)),
        *_taps(operation, shape, config, inner),
    ]
    for p in range(pixels):
        stored = _conv.finish(operation, f"a{p}", ["n", "first", *inner, f"last + {p}"], channels, inside)
        lines += [f"if (last + {p} < {shape.out[-1]})", *stored]
    body = "\n  ".join(lines)
    return f"__kernel void conv_any({parameters})\n{{\n  {body}\n}}\n"


def _taps(operation: Operation, shape: _conv.Conv, config: Config, inner: list[str]) -> list[str]:
    """Loops over the kernel's taps; the last axis' inputs are guarded pixel by pixel."""
    pixels = int(config["pixels"])
    lines, axis = [], len(inner)
    for i, y in enumerate(inner):
        lines += [
            f"for (int k{i} = 0; k{i} < {shape.kernel[i]}; k{i}++) {{",
            f"const int i{i} = {y} * {shape.strides[i]} - {shape.begins[i]} + k{i} * {shape.dilations[i]};",
            f"if (i{i} < 0 || i{i} >= {shape.size[i]}) continue;",
        ]
    lines.append(f"for (int k{axis} = 0; k{axis} < {shape.kernel[axis]}; k{axis}++) {{")
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
    tap = "0"
    for i, size in enumerate(shape.kernel):
        tap = f"({tap}) * {size} + k{i}" if i else f"k{i}"
    lines += [f"const int tap = {tap};", *multiply(operation, shape, config), *["}"] * (axis + 1)]
    return lines


def multiply(operation: Operation, shape: _conv.Conv, config: Config) -> list[str]:
    """The loop over input channels: each ``a`` += the input at its ``at``, where its ``ok``, times ``tap``'s weights."""
    channels, pixels, vector = (int(config[key]) for key in ("channels", "pixels", "vector"))
    step = shape.x.strides[1] if shape.x.shape[1] > 1 else 0
    kind, wide = _conv.floats(vector), _conv.aligned(shape.x, vector) and shape.ins % vector == 0
    lines = [f"for (int i = 0; i < {shape.ins}; i += {vector}) {{"]
    for p in range(pixels):
        at = f"at{p} + i * {step}" if step != 1 else f"at{p} + i"
        zero = f"({kind})(0.0f)" if vector > 1 else "0.0f"
        lines.append(f"const {kind} v{p} = ok{p} ? {_conv.load(shape.x, 'in0', at, vector, wide)} : {zero};")
    for k in range(vector):
        lines.append(f"{{ const {_conv.floats(channels)} w = {_weights(operation, shape, channels, k)};")
        for p in range(pixels):
            value = _conv.part(f"v{p}", vector, k)
            spread = f"({_conv.floats(channels)})({value})" if channels > 1 else value
            lines.append(f"a{p} = fma({spread}, w, a{p});")
        lines.append("}")
    return [*lines, "}"]


def _weights(operation: Operation, shape: _conv.Conv, channels: int, k: int) -> str:
    """The weights of ``channels`` output channels for input channel ``i + k`` of the group."""
    view = shape.w
    if _conv.known(operation, 1):
        blocks = _conv.ceil_div(shape.outs, channels) * shape.group
        at = f"((tap * {shape.ins} + i + {k}) * {blocks} + block) * {channels}"
        return _conv.load(view, "in1", at, channels, True)
    taps = [f"k{axis}" for axis in range(len(shape.kernel))]
    parts = []
    for v in range(channels):
        output = f"min(first + {v}, {shape.y.shape[1] - 1})"
        parts.append(c.load(view.dtype, "in1", c.index(view, [output, f"i + {k}", *taps])))
    return parts[0] if channels == 1 else f"({_conv.floats(channels)})({', '.join(parts)})"
