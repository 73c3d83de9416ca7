"""Weights and biases in integers."""

from __future__ import annotations

import numpy as np

_LARGEST_BIAS = float(
    2**30
)  # half of int32: the other half is for the sum of 33,000 products that it is added to


def weight_scale(weights: np.ndarray, axis: int | None, limit: int) -> np.ndarray:
    """The scale that lays each channel's greatest magnitude on ``limit``; 1 for a channel of zeros.

    Returns:
        of the weights' type, shape (channels,), or () without an axis.
    """
    others = None if axis is None else tuple(each for each in range(weights.ndim) if each != axis)
    reach = np.abs(weights.astype(np.float64)).max(axis=others) / limit
    return np.where(reach > 0, np.maximum(reach, least_scale(weights.dtype)), 1.0).astype(weights.dtype)


def least_scale(dtype: np.dtype) -> float:
    """The least scale of a type: normal where there is room, as subnormal numbers are zero on some devices."""
    limits = np.finfo(dtype)
    return float(limits.smallest_subnormal if dtype == np.float16 else limits.tiny)


def round_weights(weights: np.ndarray, scale: np.ndarray, axis: int | None, limit: int) -> np.ndarray:
    """int8, each rounded to the nearest, half to even."""
    spread = scale if axis is None else along(scale, axis, weights.ndim)
    stored = np.rint(weights.astype(np.float64) / spread.astype(np.float64))
    return np.clip(stored, -limit, limit).astype(np.int8)


def widened(scale: np.ndarray, bias: np.ndarray, input_scale: float) -> np.ndarray:
    """Weight scales with which the bias, stored as int32 in steps of ``input_scale * scale``, does not overflow."""
    least = np.abs(bias.astype(np.float64)) / (_LARGEST_BIAS * input_scale)
    least = least.max() if scale.ndim == 0 else least
    return np.maximum(scale, np.nextafter(least.astype(np.float32), np.float32(np.inf)) * (least > 0)).astype(
        np.float32
    )


def round_bias(bias: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """int32 in steps of ``scale``."""
    return np.rint(bias.astype(np.float64) / scale.astype(np.float64)).astype(np.int32)


def along(scale: np.ndarray, axis: int, rank: int) -> np.ndarray:
    """The scales shaped to be broadcast along an axis."""
    return scale.reshape([-1 if each == axis else 1 for each in range(rank)])
