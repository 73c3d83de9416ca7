"""Convolutions, pools, Resize and Pad in float64."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray
Attributes = dict[str, Any]
Shape = tuple[int, ...]


def _windows(x: Array, kernel: Shape, attributes: Attributes, shape: Shape, fill: float) -> Array:
    """(N, C, output's spatial axes, kernel's axes): what each place of the output sees, ``fill`` beyond the edges."""
    rank = len(kernel)
    begins, strides, dilations = attributes["pads"][:rank], attributes["strides"], attributes["dilations"]
    padded, places = x, []
    for axis in range(rank):
        at = np.arange(shape[axis])[:, None] * strides[axis] - begins[axis]
        at = at + np.arange(kernel[axis])[None] * dilations[axis]
        size = x.shape[2 + axis]
        outside = (at < 0) | (at >= size)
        places.append(np.where(outside, size, at))
    for axis in range(rank):
        edge = [(0, 0)] * padded.ndim
        edge[2 + axis] = (0, 1)
        padded = np.pad(padded, edge, constant_values=fill)
    for axis in range(rank):
        padded = padded.take(places[axis].reshape(-1), 2 + axis)
    split = padded.reshape(*x.shape[:2], *(n for axis in range(rank) for n in (shape[axis], kernel[axis])))
    return split.transpose(0, 1, *range(2, 2 + 2 * rank, 2), *range(3, 3 + 2 * rank, 2))


def _conv(attributes: Attributes, inputs: Sequence[Any], shape: Shape) -> Array:
    x, weight, bias = (*inputs, None)[:3]
    group, kernel = attributes["group"], weight.shape[2:]
    seen = _windows(x, kernel, attributes, shape[2:], 0.0)
    rank, parts = len(kernel), []
    for seen_part, weight_part in zip(np.split(seen, group, 1), np.split(weight, group, 0), strict=True):
        flat = np.moveaxis(seen_part, 1, 1 + rank).reshape(x.shape[0], *shape[2:], -1)
        parts.append(np.moveaxis(flat @ weight_part.reshape(weight_part.shape[0], -1).T, -1, 1))
    result = np.concatenate(parts, 1)
    return result if bias is None else result + bias.reshape(-1, *(1,) * rank)


def _conv_transpose(attributes: Attributes, inputs: Sequence[Any], shape: Shape) -> Array:
    """Each input element adds the kernel, times itself, to the places that it covers."""
    x, weight, bias = (*inputs, None)[:3]
    kernel, group, rank = weight.shape[2:], attributes["group"], weight.ndim - 2
    strides, dilations, begins = attributes["strides"], attributes["dilations"], attributes["pads"][:rank]
    spans = [
        max((size - 1) * s + (k - 1) * d + 1, b + o)
        for size, s, k, d, b, o in zip(
            x.shape[2:], strides, kernel, dilations, begins, shape[2:], strict=True
        )
    ]
    whole = np.zeros((*shape[:2], *spans))
    xs, ws = np.split(x, group, 1), np.split(weight, group, 0)
    for tap in itertools.product(*map(range, kernel)):
        term = np.concatenate(
            [np.einsum("nc...,co->no...", a, w[(..., *tap)]) for a, w in zip(xs, ws, strict=True)], 1
        )
        at = tuple(
            slice(t * d, t * d + (size - 1) * s + 1, s)
            for t, d, s, size in zip(tap, dilations, strides, x.shape[2:], strict=True)
        )
        whole[(slice(None), slice(None), *at)] += term
    inner = tuple(slice(b, b + o) for b, o in zip(begins, shape[2:], strict=True))
    result = whole[(slice(None), slice(None), *inner)]
    return result if bias is None else result + bias.reshape(-1, *(1,) * rank)


def _max_pool(attributes: Attributes, inputs: Sequence[Any], shape: Shape) -> Array:
    x, kernel = inputs[0], tuple(attributes["kernel_shape"])
    lowest = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    return _windows(x, kernel, attributes, shape[2:], lowest).max(tuple(range(-len(kernel), 0)))


def _average_pool(attributes: Attributes, inputs: Sequence[Any], shape: Shape) -> Array:
    """Over what a window sees of the image; with count_include_pad of the padded image, and never beyond that."""
    x, kernel = inputs[0], tuple(attributes["kernel_shape"])
    axes, rank = tuple(range(-len(kernel), 0)), len(kernel)
    ones = np.ones((1, 1, *x.shape[2:]))
    sums = _windows(x, kernel, attributes, shape[2:], 0.0).sum(axes)
    if attributes["count_include_pad"]:
        pads = attributes["pads"]
        ones = np.pad(
            ones, [(0, 0)] * 2 + [(pads[a], pads[rank + a]) for a in range(rank)], constant_values=1.0
        )
        attributes = {**attributes, "pads": (0,) * (2 * rank)}
    return sums / _windows(ones, kernel, attributes, shape[2:], 0.0).sum(axes)


def _pad(attributes: Attributes, inputs: Sequence[Any], _: Shape) -> Array:
    x, pads, mode = inputs[0], attributes["pads"], attributes["mode"]
    widths = [(pads[axis], pads[x.ndim + axis]) for axis in range(x.ndim)]
    if mode == "constant":
        return np.pad(x, widths, constant_values=attributes["value"])
    return np.pad(x, widths, mode=mode)


# ---- Resize: one axis after another, each as a matrix of weights -----------------------------------------------------


def _resize(attributes: Attributes, inputs: Sequence[Any], shape: Shape) -> Array:
    x = inputs[0]
    for axis, (size, scale) in enumerate(zip(shape, attributes["scales"], strict=True)):
        if x.shape[axis] == size and scale == 1:
            continue
        places = _places(attributes["coordinate_transformation_mode"], x.shape[axis], size, scale)
        if attributes["mode"] == "nearest":
            x = x.take(np.clip(_nearest(attributes["nearest_mode"], places), 0, x.shape[axis] - 1), axis)
        else:
            x = np.moveaxis(
                np.moveaxis(x, axis, -1) @ _weights(attributes, places, x.shape[axis]).T, -1, axis
            )
    return x


def _places(mode: str, old: int, new: int, scale: float) -> Array:
    """Where the output's elements lie among the input's."""
    at = np.arange(new, dtype=np.float64)
    length = old * scale  # need not be whole
    if mode == "asymmetric":
        return at / scale
    if mode == "align_corners":
        return at * (old - 1) / (length - 1) if length != 1 else at * 0
    if mode == "pytorch_half_pixel" and length <= 1:
        return at * 0
    if mode == "half_pixel_symmetric":
        return old / 2 * (1 - new / length) + (at + 0.5) / scale - 0.5
    return (at + 0.5) / scale - 0.5


def _nearest(mode: str, places: Array) -> Array:
    places = np.round(places, 9)
    ways = {
        "round_prefer_floor": np.ceil(places - 0.5),
        "round_prefer_ceil": np.floor(places + 0.5),
        "floor": np.floor(places),
        "ceil": np.ceil(places),
    }
    return ways[mode].astype(np.int64)


def _weights(attributes: Attributes, places: Array, old: int) -> Array:
    reach = 1 if attributes["mode"] == "linear" else 2
    weights = np.zeros((len(places), old))
    for row, place in enumerate(places):
        for near in range(math.floor(place) - reach + 1, math.floor(place) + reach + 1):
            distance = abs(place - near)
            part = 1 - distance if reach == 1 else _cubic(distance, attributes["cubic_coeff_a"])
            if 0 <= near < old or not attributes["exclude_outside"]:
                weights[row, min(max(near, 0), old - 1)] += part
    return weights / weights.sum(1, keepdims=True) if attributes["exclude_outside"] else weights


def _cubic(x: float, a: float) -> float:
    """Keys, Cubic convolution interpolation for digital image processing, 1981."""
    if x <= 1:
        return (a + 2) * x**3 - (a + 3) * x**2 + 1
    return a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a if x < 2 else 0.0


OPERATORS = {
    "AveragePool": _average_pool,
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "MaxPool": _max_pool,
    "Pad": _pad,
    "Resize": _resize,
}
