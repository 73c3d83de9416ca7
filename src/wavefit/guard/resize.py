"""Resize for the float64 run, axis by axis with numpy; onnx's own visits every element in Python.

Interpolation along an axis is a weighted sum of neighbours: 1 for nearest, 2 for linear, 4 for cubic (Keys, Cubic
convolution interpolation for digital image processing, 1981). Definitions: https://onnx.ai/onnx/operators/onnx__Resize.html
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx.reference.ops.op_resize import Resize as OnnxResize

_SLOW_ELEMENTS = 1 << 15  # of the result, where onnx's own implementation is used


class Resize(OnnxResize):
    """Nearest, linear and cubic; the rarer ways (antialias, crops, kept aspect ratio) are onnx's own."""

    op_domain = ""

    def _run(
        self, x: np.ndarray, roi: Any = None, scales: Any = None, sizes: Any = None, **attributes: Any
    ) -> Any:
        if self.run_params["opsets"][""] < 11:
            raise NotImplementedError("Resize of opset 10 has other coordinates")
        axes = [axis % x.ndim for axis in attributes["axes"] or range(x.ndim)]
        rare = (
            attributes["antialias"]
            or attributes["coordinate_transformation_mode"] == "tf_crop_and_resize"
            or attributes["keep_aspect_ratio_policy"] not in (None, "stretch")
        )
        if rare:
            return self._onnx(x, roi, scales, sizes, axes, attributes)
        for place, axis in enumerate(axes):
            scale = None if sizes is not None and len(sizes) else float(scales[place])
            if scale is None:
                out = int(sizes[place])
                scale = out / x.shape[axis]
            else:
                out = math.floor(x.shape[axis] * scale)
            if out != x.shape[axis] or scale != 1:
                x = _along(x, axis, _Axis(x.shape[axis], out, scale), attributes)
        return (x,)

    def _onnx(
        self,
        x: np.ndarray,
        roi: Any,
        scales: Any,
        sizes: Any,
        axes: Sequence[int],
        attributes: dict[str, Any],
    ) -> Any:
        growth = scales if scales is not None and len(scales) else np.array(sizes) / np.take(x.shape, axes)
        if x.size * float(np.prod(growth)) > _SLOW_ELEMENTS:
            raise NotImplementedError("this way of resizing would take too long")
        return super()._run(x, roi, scales=scales, sizes=sizes, **attributes)


@dataclass(frozen=True)
class _Axis:
    size: int
    out: int
    scale: float

    def positions(self, mode: str) -> np.ndarray:
        """Where in the input each element of the result lies, shape (out,)."""
        at = np.arange(self.out, dtype=np.float64)
        width = self.scale * self.size  # before it was rounded down
        if mode == "asymmetric":
            return at / self.scale
        if mode == "align_corners":
            return at * ((self.size - 1) / (width - 1)) if width != 1 else at * 0
        half = (at + 0.5) / self.scale - 0.5
        if mode == "half_pixel":
            return half
        if mode == "pytorch_half_pixel":
            return half if width != 1 else at * 0 - 0.5
        if mode == "half_pixel_symmetric":
            return half + self.size / 2 * (1 - self.out / width)
        raise NotImplementedError(f"coordinate_transformation_mode {mode!r}")


def _along(x: np.ndarray, axis: int, plan: _Axis, attributes: dict[str, Any]) -> np.ndarray:
    at = plan.positions(attributes["coordinate_transformation_mode"])
    kind = attributes["mode"]
    if kind == "nearest":
        return np.take(x, np.clip(_nearest(at, attributes["nearest_mode"]), 0, plan.size - 1), axis)
    first = np.floor(at)
    fraction = at - first
    offsets, weights = (
        _linear(fraction) if kind == "linear" else _cubic(fraction, attributes["cubic_coeff_a"])
    )
    places = first[None].astype(int) + offsets[:, None]
    if attributes["exclude_outside"]:
        weights = np.where((places >= 0) & (places < plan.size), weights, 0)
        weights = weights / weights.sum(0)
    shape = [1] * x.ndim
    shape[axis] = plan.out
    result = np.zeros((*x.shape[:axis], plan.out, *x.shape[axis + 1 :]), np.float64)
    for place, weight in zip(np.clip(places, 0, plan.size - 1), weights, strict=True):
        result += np.take(x, place, axis) * weight.reshape(shape)
    return result if x.dtype.kind == "f" else np.round(result).astype(x.dtype)


def _nearest(at: np.ndarray, mode: str) -> np.ndarray:
    rounded = {
        "round_prefer_floor": lambda: np.ceil(at - 0.5),
        "round_prefer_ceil": lambda: np.floor(at + 0.5),
        "floor": lambda: np.floor(at),
        "ceil": lambda: np.ceil(at),
    }[mode]()
    return rounded.astype(int)


def _linear(fraction: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.array([0, 1]), np.stack([1 - fraction, fraction])


def _cubic(fraction: np.ndarray, a: float) -> tuple[np.ndarray, np.ndarray]:
    """Weights of the neighbours at -1, 0, 1 and 2 by their distance d: Keys' two polynomials."""
    offsets = np.array([-1, 0, 1, 2])
    d = np.abs(fraction[None] - offsets[:, None])
    near = (a + 2) * d**3 - (a + 3) * d**2 + 1
    far = a * (d**3 - 5 * d**2 + 8 * d - 4)
    return offsets, np.where(d <= 1, near, far)
