"""Convolutions."""

from __future__ import annotations

from wavefit.native.onnx_ops._call import Call
from wavefit.native.onnx_ops._windows import window


def _conv(call: Call) -> str | None:
    refused = _rank(call)
    if refused:
        return refused
    weight = call.input(1)
    sizes = window(call, weight.shape[2:])
    call.add(
        "Conv",
        [call.input(), weight, call.optional(2)],
        call.output(),
        strides=sizes.strides,
        pads=sizes.pads,
        dilations=sizes.dilations,
        group=int(call.attribute("group", 1)),
    )
    return None


def _conv_transpose(call: Call) -> str | None:
    """Pads follow from output_shape, or from auto_pad, where those are given."""
    refused = _rank(call)
    if refused:
        return refused
    image, weight, rank = call.input(), call.input(1), len(call.input().shape) - 2
    kernel = weight.shape[2:]
    strides = tuple(call.attribute("strides") or (1,) * rank)
    dilations = tuple(call.attribute("dilations") or (1,) * rank)
    extra = tuple(call.attribute("output_padding") or (0,) * rank)
    auto = call.attribute("auto_pad", "NOTSET")
    pads = tuple(call.attribute("pads") or (0,) * (2 * rank))
    if call.attribute("output_shape") or auto.startswith("SAME"):
        totals = [
            stride * (size - 1) + more + (k - 1) * dilation + 1 - made
            for stride, size, more, k, dilation, made in zip(
                strides, image.shape[2:], extra, kernel, dilations, call.output().shape[2:], strict=True
            )
        ]
        extra = tuple(more + max(-total, 0) for more, total in zip(extra, totals, strict=True))
        totals = [max(total, 0) for total in totals]
        small, large = tuple(total // 2 for total in totals), tuple(total - total // 2 for total in totals)
        pads = small + large if auto == "SAME_UPPER" else large + small
    elif auto == "VALID":
        pads = (0,) * (2 * rank)
    call.add(
        "ConvTranspose",
        [image, weight, call.optional(2)],
        call.output(),
        strides=strides,
        pads=pads,
        dilations=dilations,
        group=int(call.attribute("group", 1)),
        output_padding=extra,
    )
    return None


def _rank(call: Call) -> str | None:
    rank = len(call.input().shape)
    return None if 3 <= rank <= 5 else f"its input has rank {rank}: 3, 4 and 5 are computed"


OPERATORS = {"Conv": _conv, "ConvTranspose": _conv_transpose}
