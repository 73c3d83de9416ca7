"""The inner loop of the direct convolutions: a work-item's pixels times its output channels, for one tap."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from wavefit.native.opencl import c
from wavefit.native.opencl.kernels import _conv
from wavefit.native.operation import Config, Implementation, Kernel, Launch, Limits, Operation, Packed


def vector(shape: _conv.Conv) -> int:
    """Input channels that one load can take."""
    beside = shape.x.channels_last and shape.x.shape[1] > 1
    return next((width for width in (4, 2) if beside and shape.ins % width == 0), 1)


def configurations(shape: _conv.Conv, limits: Limits, width: int) -> Iterator[Config]:
    """``channels`` by ``pixels`` of a work-item, ``items`` of a work-group, ``vector`` input channels read at once.

    ``unroll`` is 1 where the loops over taps are to stay loops, 0 where the compiler decides: AMD's unrolls 9 taps, and
    with the loads of all of them in flight 2 waves fit a SIMD (90 registers on gfx90c).

    Args:
        shape: of the convolution.
        limits: what does not fit the device's work-groups and registers is left out.
        width: outputs of a row that a work-item's pixels can be.
    """
    seen = set()
    for channels, pixels in ((4, 4), (4, 2), (8, 4), (8, 2), (4, 8), (4, 1), (2, 4), (1, 4), (1, 1)):
        tile = {
            "channels": min(channels, _conv.lanes(shape.outs, 8)),
            "pixels": min(pixels, _conv.lanes(width, 8)),
            "vector": vector(shape),
            "unroll": 1 if limits.gfx else 0,
        }
        for items in (64, 128, 256):
            config: Config = {**tile, "items": min(items, limits.work_group)}
            key = tuple(config.values())
            smallest = channels * pixels == 1
            if key not in seen and (smallest or registers(config) <= _conv.most_registers(limits)):
                seen.add(key)
                yield config


def implementation(
    template: str,
    operation: Operation,
    config: Config,
    grid: _conv.Grid,
    source: Callable[[str], str],
    flops: int,
) -> Implementation:
    """One kernel, named as its template is.

    Args:
        template: the file's name.
        operation: the convolution; weights that are constant are packed as ``taps`` by the channels.
        config: of the template.
        grid: of its work-items.
        source: the kernel's text, by its parameters.
        flops: of the operation.
    """
    constant = _conv.known(operation, 1)
    text, buffers = _conv.parameters(operation, (1,) if constant else ())
    kernel = Kernel(
        name=template,
        source=source(text),
        global_size=grid.global_size,
        local_size=(grid.items,),
        registers=registers(config),
    )
    return Implementation(
        template=template,
        config=config,
        launches=(Launch(kernel=kernel, arguments=buffers),),
        packed=(Packed(input=1, how=f"taps{config['channels']}"),) if constant else (),
        flops=flops,
        bytes=_conv.conv(operation).bytes,
    )


def registers(config: Config) -> int:
    """Accumulators, inputs and weights in flight, places and flags of pixels; clang makes 67 where this says 68."""
    channels, pixels, width = (int(config[key]) for key in ("channels", "pixels", "vector"))
    return channels * pixels + channels + pixels * (width + 2) + 44


def efficiency(config: Config) -> float:
    """The share of the arithmetic peak that the inner loop leaves, by its counts.

    Loads for one input channel feed ``channels * pixels`` multiply-adds; a load is counted as 4 of those, and index
    arithmetic takes half of what is left.
    """
    channels, pixels, width = (int(config[key]) for key in ("channels", "pixels", "vector"))
    loads = channels / min(4, channels) + pixels / width
    return 0.5 * channels * pixels / (channels * pixels + 4 * loads)


def loop(config: Config, head: str) -> str:
    """The head of a loop over taps; a pragma before it where it must stay a loop."""
    return f"\n#pragma unroll 1\n  {head}" if int(config.get("unroll", 0)) == 1 else head


def tap(shape: _conv.Conv) -> str:
    """The tap's number, from its coordinates ``k0``, ``k1``, ..."""
    number = "k0"
    for axis, size in enumerate(shape.kernel[1:], 1):
        number = f"({number}) * {size} + k{axis}"
    return number


def multiply(operation: Operation, shape: _conv.Conv, config: Config) -> list[str]:
    """The loop over the input channels of one tap.

    It adds to ``a0``, ``a1``, ... (vectors of ``channels`` from channel ``first`` on) the inputs that start at ``at0``,
    ..., where ``ok0``, ..., times the weights. ``group``, ``block``, ``tap`` and ``k0``, ... are in scope.
    """
    channels, pixels, width = (int(config[key]) for key in ("channels", "pixels", "vector"))
    step = shape.x.strides[1] if shape.x.shape[1] > 1 else 0
    kind, wide = _conv.sums(operation, width), _conv.aligned(shape.x, width) and shape.ins % width == 0
    lines = [f"for (int i = 0; i < {shape.ins}; i += {width}) {{"]
    for p in range(pixels):
        at = f"at{p} + i * {step}" if step != 1 else f"at{p} + i"
        read = c.load_factor(shape.x.dtype, "in0", at, width, wide, shape.zero_point)
        lines.append(f"const {kind} v{p} = ok{p} ? {read} : {_conv.zeros(operation, width)};")
    for k in range(width):
        lines.append(
            f"{{ const {_conv.sums(operation, channels)} w = {_weights(operation, shape, channels, k)};"
        )
        for p in range(pixels):
            value = _conv.part(f"v{p}", width, k)
            spread = f"({_conv.sums(operation, channels)})({value})" if channels > 1 else value
            lines.append(f"a{p} = {_conv.multiply_add(operation)}({spread}, w, a{p});")
        lines.append("}")
    return [*lines, "}"]


def _weights(operation: Operation, shape: _conv.Conv, channels: int, k: int) -> str:
    """The weights of ``channels`` output channels for input channel ``i + k`` of the group."""
    if _conv.known(operation, 1):
        blocks = _conv.ceil_div(shape.outs, channels) * shape.group
        at = f"((tap * {shape.ins} + i + {k}) * {blocks} + block) * {channels}"
        return c.load_factor(shape.w.dtype, "in1", at, channels, True)
    taps = [f"k{axis}" for axis in range(len(shape.kernel))]
    parts = []
    for v in range(channels):
        output = f"min(first + {v}, {shape.y.shape[1] - 1})"
        places = [output, f"i + {k}"]
        if operation.op == "ConvTranspose":
            places = [
                f"group * {shape.ins} + i + {k}",
                f"min(first - group * {shape.outs} + {v}, {shape.outs - 1})",
            ]
        parts.append(c.load_factor(shape.w.dtype, "in1", c.index(shape.w, [*places, *taps]), 1))
    return parts[0] if channels == 1 else f"({_conv.sums(operation, channels)})({', '.join(parts)})"
