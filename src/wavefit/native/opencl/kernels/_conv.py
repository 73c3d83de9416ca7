"""What the convolution templates share: sizes, parameters, weights in the kernels' order, stores with the epilogue.

Spatial axes are kept in ONNX's order; a sequence has one, an image two, a volume three. Lists of C statements are
joined by the templates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from wavefit.native.opencl import c
from wavefit.native.operation import Buffer, Limits, Operation, View

_FLOATS = ("float32", "float16")
_BYTES = ("int8", "uint8")
LONGEST = 2**31 - 1  # the kernels count elements in int


@dataclass(frozen=True)
class Conv:
    """The sizes of a convolution, one entry a spatial axis; ``ends`` (padding after) shows in ``out`` only."""

    x: View
    w: View
    y: View
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    begins: tuple[int, ...]
    dilations: tuple[int, ...]
    group: int
    zero_point: int = 0  # of a small integer's input

    @property
    def batch(self) -> int:
        return self.x.shape[0]

    @property
    def size(self) -> tuple[int, ...]:
        return self.x.shape[2:]

    @property
    def out(self) -> tuple[int, ...]:
        return self.y.shape[2:]

    @property
    def ins(self) -> int:
        """Input channels of one group."""
        return self.x.shape[1] // self.group

    @property
    def outs(self) -> int:
        """Output channels of one group."""
        return self.y.shape[1] // self.group

    @property
    def taps(self) -> int:
        return prod(self.kernel)

    @property
    def pixels(self) -> int:
        """Output pixels of the whole batch."""
        return self.batch * prod(self.out)

    @property
    def flops(self) -> int:
        return 2 * self.pixels * self.y.shape[1] * self.ins * self.taps

    @property
    def bytes(self) -> int:
        return sum(view.size * view.itemsize for view in (self.x, self.w, self.y))


def conv(operation: Operation) -> Conv:
    """The sizes of a Conv or ConvTranspose operation."""
    x, w, y = operation.input(0), operation.input(1), operation.output
    rank = len(x.shape) - 2
    attributes = operation.attributes
    return Conv(
        x=x,
        w=w,
        y=y,
        kernel=w.shape[2:],
        strides=tuple(attributes.get("strides") or (1,) * rank),
        begins=tuple((attributes.get("pads") or (0,) * (2 * rank))[:rank]),
        dilations=tuple(attributes.get("dilations") or (1,) * rank),
        group=int(attributes.get("group", 1)),
        zero_point=int(attributes.get("zero_point", 0)),
    )


def computable(operation: Operation, narrow: bool = False) -> bool:
    """Whether the views are of floats, or of small integers too, with places that an int can count."""
    views = [view for view in (*operation.inputs, *operation.outputs) if view is not None]
    own = [view.dtype for view in operation.inputs[: operation.own] if view is not None]
    return (
        len(operation.outputs) == 1
        and (all(dtype in _FLOATS for dtype in own) or (narrow and all(dtype in _BYTES for dtype in own)))
        and all(view.extent <= LONGEST for view in views)
    )


def known(operation: Operation, index: int) -> bool:
    """Whether that input is constant: it can be packed."""
    return index < len(operation.constant) and operation.constant[index]


def parameters(operation: Operation, packed: Sequence[int] = ()) -> tuple[str, tuple[Buffer, ...]]:
    """The kernel's parameters, and the buffers given for them; inputs in ``packed`` come in packed order."""
    lines, given = c.parameters(operation)
    buffers = [
        Buffer(kind="packed", index=list(packed).index(number))
        if number in packed
        else Buffer(kind="input", index=number)
        for number in given
    ]
    buffers += [Buffer(kind="output", index=number) for number in range(len(operation.outputs))]
    return ", ".join(lines), tuple(buffers)


def aligned(view: View, width: int) -> bool:
    """Whether ``width`` channels from any multiple of it on lie side by side at a multiple of ``width`` elements.

    Buffers start at a multiple of at least 64 bytes (CL_DEVICE_MEM_BASE_ADDR_ALIGN of any device is more).
    """
    others = [
        s for axis, (n, s) in enumerate(zip(view.shape, view.strides, strict=True)) if n > 1 and axis != 1
    ]
    return (
        view.channels_last
        and view.shape[1] % width == 0
        and view.offset % width == 0
        and all(step % width == 0 for step in others)
    )


def floats(width: int) -> str:
    """The type of a vector of floats."""
    return f"float{width}" if width > 1 else "float"


def sums(operation: Operation, width: int) -> str:
    """The type of a vector of sums of products."""
    kind = c.summed(operation.input(0).dtype)
    return f"{kind}{width}" if width > 1 else kind


def zeros(operation: Operation, width: int) -> str:
    zero = "0.0f" if c.summed(operation.input(0).dtype) == "float" else "0"
    return f"({sums(operation, width)})({zero})" if width > 1 else zero


def multiply_add(operation: Operation) -> str:
    """The function of two factors and a sum; of small integers one of 24 bits, which GPUs do at the rate of floats."""
    return "fma" if c.summed(operation.input(0).dtype) == "float" else "mad24"


def part(vector: str, width: int, index: int) -> str:
    """One element of a vector; a vector of one is a scalar."""
    return f"{vector}.s{index:x}" if width > 1 else vector


def bias(operation: Operation, channel: str, width: int, limit: int | None = None) -> str:
    """The bias of ``width`` channels from a channel on, or zeros; no channel at or after ``limit`` is read."""
    if not operation.has(2):
        return zeros(operation, width)
    view = operation.input(2)
    parts = []
    for k in range(width):
        at = f"{channel} + {k}" if k else channel
        at = f"min({at}, {limit - 1})" if limit is not None else at
        parts.append(c.load(view.dtype, "in2", c.index(view, [at])))
    return parts[0] if width == 1 else f"({floats(width)})({', '.join(parts)})"


def finish(operation: Operation, value: str, axes: Sequence[str], width: int, inside: str = "") -> list[str]:
    """Statements that apply the epilogue to ``width`` neighbouring channels, and store them.

    Args:
        operation: whose output is written.
        value: the name of a vector of sums.
        axes: the coordinates of its first element in the output; ``axes[1]`` is the channel.
        width: of the vector.
        inside: a C condition on the channel ``o`` where the vector may reach past the last one; "" where it cannot.
    """
    y = operation.output
    beside = y.channels_last and not inside
    cast = "" if c.summed(operation.input(0).dtype) == "float" else "(float)"
    lines, results = [], []
    for k in range(width):
        channel = f"{axes[1]} + {k}" if k else axes[1]
        place = [axes[0], channel, *axes[2:]]
        extra, result = c.epilogue(operation, cast + part(value, width, k), place, f"e{k}_")
        if beside and width > 1:
            lines += extra
            results.append(result)
            continue
        body = [*extra, c.store(y.dtype, "out0", c.index(y, place), result)]
        guard = f"const int o = {channel}; if ({inside}) " if inside else ""
        lines.append("{ " + guard + "{ " + " ".join(body) + " } }")
    if results:
        vector = f"({c.register(y.dtype)}{width})({', '.join(results)})"
        lines.append(c.store_vector(y.dtype, "out0", c.index(y, axes), vector, width, aligned(y, width)))
    return ["{", *lines, "}"]


def pack_taps(array: np.ndarray, group: int, width: int) -> np.ndarray:
    """(O, I/group, kernel...) as (taps, I/group, group, O/group up to a multiple of ``width``): zeros fill up."""
    outs, ins = array.shape[:2]
    each = outs // group
    filled = -(-each // width) * width
    weights = array.reshape(group, each, ins, -1).transpose(3, 2, 0, 1)
    packed = np.zeros((*weights.shape[:3], filled), array.dtype)
    packed[..., :each] = weights
    return packed


def kernel(name: str, parameters: str, items: int, lines: Sequence[str]) -> str:
    """The source of a kernel whose work-groups have ``items`` work-items: compilers give out registers by that."""
    head = f"__kernel __attribute__((reqd_work_group_size({items}, 1, 1)))\nvoid {name}({parameters})\n{{\n  "
    return head + "\n  ".join(lines) + "\n}\n"


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def round_up(a: int, b: int) -> int:
    return -(-a // b) * b


def lanes(count: int, most: int) -> int:
    """The least power of two that is no less than ``count``, at most ``most``."""
    return min(most, 1 << max(0, count - 1).bit_length())


@dataclass(frozen=True)
class Grid:
    """Work-items for every pair of a block (of channels: neighbouring lanes) and a run (of pixels).

    In one dimension, because NVIDIA's second one ends at 65,535 work-groups.
    """

    blocks: int
    runs: int
    items: int

    @property
    def across(self) -> int:
        """Lanes of a work-group that run over blocks; the rest runs over runs."""
        return lanes(self.blocks, self.items)

    @property
    def global_size(self) -> tuple[int]:
        down = ceil_div(self.runs, self.items // self.across)
        return (ceil_div(self.blocks, self.across) * down * self.items,)

    @property
    def code(self) -> list[str]:
        """Statements that define ``block`` and ``run``, and end the work-items that have none."""
        across, groups = self.across, ceil_div(self.blocks, self.across)
        return [
            "const int group_id = get_group_id(0), lane = get_local_id(0);",
            f"const int block = group_id % {groups} * {across} + lane % {across};",
            f"const int run = group_id / {groups} * {self.items // across} + lane / {across};",
            f"if (block >= {self.blocks} || run >= {self.runs}) return;",
        ]


def most_registers(limits: Limits) -> int:
    """Of a work-item, so that 4 waves fit a SIMD (where its registers are known) and hide memory's latency."""
    return min(limits.most_registers, (limits.registers or 4 * limits.most_registers) // 4)


def enough_waves(items: int, local_bytes: int, limits: Limits) -> bool:
    """Whether local memory lets 4 waves fit each SIMD; only AMD's is known: 64 KiB a unit, given out by 512 bytes."""
    if limits.gfx is None or local_bytes == 0:
        return True
    return 65536 // round_up(local_bytes, 512) * ceil_div(items, limits.wave) >= 4 * limits.simds


def seconds(flops: float, moved: float, limits: Limits, efficiency: float, launches: int = 1) -> float:
    """A roofline: the longer of arithmetic, at a share of the peak, and memory traffic, plus 3 µs a launch.

    Unknown peaks count as those of a small integrated GPU (1 TFLOP/s, 40 GB/s): they rank alike.
    """
    peak, bandwidth = limits.flops or 1e12, limits.bandwidth or 4e10
    return max(flops / (peak * efficiency), moved / (bandwidth * 0.85)) + launches * 3e-6
