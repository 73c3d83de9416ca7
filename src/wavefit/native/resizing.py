"""Where a Resize reads: the taps and their weights along each axis, by every rule that ONNX has.

Computed when a program is made (onnx.ai/onnx/operators, "Resize").
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wavefit.native.operation import Operation

_REACH = {"nearest": 1, "linear": 2, "cubic": 4}


def changes(operation: Operation, axis: int) -> bool:
    sizes = operation.input(0).shape[axis], operation.output.shape[axis]
    return sizes[0] != sizes[1] or operation.attributes["scales"][axis] != 1


def taps(operation: Operation, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """For each element along an axis of the output, the input's elements and their weights."""
    given = operation.attributes
    old, new = operation.input(0).shape[axis], operation.output.shape[axis]
    places = _places(str(given["coordinate_transformation_mode"]), old, new, float(given["scales"][axis]))
    if given["mode"] == "nearest":
        near = np.clip(_nearest(str(given["nearest_mode"]), places), 0, old - 1)
        return near[:, None], np.ones((new, 1))
    reach = _REACH[str(given["mode"])]
    reached = np.floor(places).astype(np.int64)[:, None] + np.arange(reach) - (reach // 2 - 1)
    weights = _kernel(np.abs(places[:, None] - reached), given, reach)
    if given.get("exclude_outside"):
        weights = np.where((reached >= 0) & (reached < old), weights, 0.0)
        weights /= weights.sum(1, keepdims=True)
    return np.clip(reached, 0, old - 1), weights


def _kernel(distance: np.ndarray, given: dict[str, Any], reach: int) -> np.ndarray:
    """Weights by distance: a tent, or Keys' cubic (Cubic convolution interpolation, 1981)."""
    if reach == 2:
        return np.maximum(0.0, 1.0 - distance)
    a = float(given.get("cubic_coeff_a", -0.75))
    near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0.0))


def _places(mode: str, old: int, new: int, scale: float) -> np.ndarray:
    at = np.arange(new, dtype=np.float64)
    length = old * scale
    if mode == "asymmetric":
        return at / scale
    if mode == "align_corners":
        return at * ((old - 1) / (length - 1)) if length != 1 else np.zeros(new)
    if mode == "pytorch_half_pixel" and length <= 1:
        return np.zeros(new)
    middle = (at + 0.5) / scale - 0.5
    if mode == "half_pixel_symmetric":
        return middle + old / 2 * (1 - new / length)
    return middle


def _nearest(mode: str, places: np.ndarray) -> np.ndarray:
    """Places are rounded to 9 digits first: what is half by definition must not be a hair less."""
    places = np.round(places, 9)
    if mode == "floor":
        return np.floor(places).astype(np.int64)
    if mode == "ceil":
        return np.ceil(places).astype(np.int64)
    up = np.floor(places + 0.5) if mode == "round_prefer_ceil" else np.ceil(places - 0.5)
    return up.astype(np.int64)
