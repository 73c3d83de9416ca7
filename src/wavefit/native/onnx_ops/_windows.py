"""Windows that slide over an image: their attributes with all defaults filled in."""

from __future__ import annotations

from typing import NamedTuple

from wavefit.native.onnx_ops._call import Call


class Window(NamedTuple):
    """Of each spatial axis; ``pads`` are those of the beginnings, then those of the ends."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]


def window(call: Call, kernel: tuple[int, ...]) -> Window:
    """The attributes of a convolution or pool; SAME_UPPER, SAME_LOWER and VALID become numbers."""
    rank = len(kernel)
    strides = tuple(call.attribute("strides") or (1,) * rank)
    dilations = tuple(call.attribute("dilations") or (1,) * rank)
    spans = tuple((size - 1) * step + 1 for size, step in zip(kernel, dilations, strict=True))
    auto = call.attribute("auto_pad", "NOTSET")
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        pads = same(call.input().shape[2:], spans, strides, upper=auto == "SAME_UPPER")
    else:
        pads = tuple(call.attribute("pads") or (0,) * (2 * rank)) if auto == "NOTSET" else (0,) * (2 * rank)
    return Window(kernel, strides, dilations, pads)


def same(
    sizes: tuple[int, ...], spans: tuple[int, ...], strides: tuple[int, ...], upper: bool
) -> tuple[int, ...]:
    """Pads such that each axis comes out as its size over the stride, rounded up; the odd one at the end, or not."""
    totals = [
        max((-(-size // stride) - 1) * stride + span - size, 0)
        for size, span, stride in zip(sizes, spans, strides, strict=True)
    ]
    small, large = tuple(total // 2 for total in totals), tuple(total - total // 2 for total in totals)
    return small + large if upper else large + small
