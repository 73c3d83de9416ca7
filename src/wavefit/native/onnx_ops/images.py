"""Resize and Pad, in all their versions."""

from __future__ import annotations

from typing import Any

import numpy as np

from wavefit.native.graph import Value
from wavefit.native.onnx_ops._call import Call
from wavefit.native.onnx_ops.views import cut


def _resize(call: Call) -> str | None:
    """Version 10 took the floor of x / scale; version 11 named the ways, and took sizes in place of scales too."""
    if call.attribute("antialias", 0):
        return "antialias is not computed"
    old = call.opset < 11
    transformation = "asymmetric" if old else call.attribute("coordinate_transformation_mode", "half_pixel")
    if transformation == "tf_crop_and_resize":
        return "coordinate_transformation_mode=tf_crop_and_resize is not computed"
    scales = _scales(call, index=1 if old else 2, sizes=3)
    if scales is None:
        return "its scales depend on the data"
    return _scaled(
        call,
        scales,
        coordinate_transformation_mode=transformation,
        nearest_mode="floor" if old else call.attribute("nearest_mode", "round_prefer_floor"),
        cubic_coeff_a=float(call.attribute("cubic_coeff_a", -0.75)),
        exclude_outside=bool(call.attribute("exclude_outside", 0)),
        extrapolation_value=float(call.attribute("extrapolation_value", 0.0)),
    )


def _upsample(call: Call) -> str | None:
    """Scales were an attribute in version 7, and an input in 9."""
    scales = call.attribute("scales") or _scales(call, index=1, sizes=-1)
    if scales is None:
        return "its scales depend on the data"
    return _scaled(
        call,
        tuple(float(scale) for scale in scales),
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
        cubic_coeff_a=-0.75,
        exclude_outside=False,
        extrapolation_value=0.0,
    )


def _scaled(call: Call, scales: tuple[float, ...], **ways: Any) -> str | None:
    value = call.input()
    if value.shape == call.output().shape and all(scale == 1 for scale in scales):
        call.give(value)
        return None
    if (
        any(not np.issubdtype(np.dtype(each.dtype), np.floating) for each in (value,))
        and call.attribute("mode", "nearest") != "nearest"
    ):
        return f"its input is {value.dtype}: only nearest takes integers"
    mode = call.attribute("mode", "nearest")
    call.add(
        "Resize", [value], call.output(), mode="linear" if mode == "bilinear" else mode, scales=scales, **ways
    )
    return None


def _scales(call: Call, index: int, sizes: int) -> tuple[float, ...] | None:
    """Of all axes, from the scales or from the sizes that were asked for."""
    rank = len(call.input().shape)
    axes = [call.axis(int(axis), rank) for axis in call.attribute("axes") or range(rank)]
    given = call.constant(index)
    if given is not None and given.size:
        numbers = [float(scale) for scale in given.reshape(-1)]
    elif sizes >= 0 and call.constant(sizes) is not None:
        numbers = _of_sizes(call, axes, [float(size) for size in call.ints(sizes) or ()])
    else:
        return None
    scales = [1.0] * rank
    for axis, scale in zip(axes, numbers, strict=True):
        scales[axis] = scale
    return tuple(scales)


def _of_sizes(call: Call, axes: list[int], sizes: list[float]) -> list[float]:
    """Each size over what it was; with keep_aspect_ratio_policy one scale for all."""
    scales = [size / call.input().shape[axis] for axis, size in zip(axes, sizes, strict=True)]
    policy = call.attribute("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return scales
    return [(min if policy == "not_larger" else max)(scales)] * len(scales)


def _pad(call: Call) -> str | None:
    """Pads and the value were attributes before version 11. Negative ones cut."""
    value, rank = call.input(), len(call.input().shape)
    pads = call.ints(1, "pads")
    axes = call.ints(3)
    if pads is None or (call.given(3) and axes is None):
        return "its pads depend on the data"
    if axes is not None:
        pads = _of_all_axes(pads, [call.axis(axis, rank) for axis in axes], rank)
    fill = 0.0
    if call.given(2):
        constant = call.constant(2)
        if constant is None:
            return "its value depends on the data"
        fill = float(constant.reshape(-1)[0])
    fill = float(call.attribute("value", fill))
    if not np.isfinite(fill):
        return f"it pads with {fill}"
    value = _cut_off(call, value, pads)
    pads = tuple(max(pad, 0) for pad in pads)
    if not any(pads):
        call.outputs[0] = value
        return None
    call.add("Pad", [value], call.output(), pads=pads, mode=call.attribute("mode", "constant"), value=fill)
    return None


def _of_all_axes(pads: tuple[int, ...], axes: list[int], rank: int) -> tuple[int, ...]:
    every = [0] * (2 * rank)
    for place, axis in enumerate(axes):
        every[axis], every[rank + axis] = pads[place], pads[len(axes) + place]
    return tuple(every)


def _cut_off(call: Call, value: Value, pads: tuple[int, ...]) -> Value:
    rank = len(value.shape)
    off = [max(-pad, 0) for pad in pads]
    if not any(off):
        return value
    shape = tuple(size - off[axis] - off[rank + axis] for axis, size in enumerate(value.shape))
    return cut(call, value, off[:rank], [1] * rank, shape)


OPERATORS = {"Pad": _pad, "Resize": _resize, "Upsample": _upsample}
