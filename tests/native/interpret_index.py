"""Gathers, scatters, and what finds or adds along an axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray
Attributes = dict[str, Any]


def _gather(attributes: Attributes, inputs: Sequence[Any], shape: tuple[int, ...]) -> Array:
    return np.take(inputs[0], inputs[1], attributes["axis"])


def _gather_elements(attributes: Attributes, inputs: Sequence[Any], shape: tuple[int, ...]) -> Array:
    x, indices, axis = inputs[0], inputs[1], attributes["axis"]
    at = list(np.indices(indices.shape))
    at[axis] = np.where(indices < 0, indices + x.shape[axis], indices)
    return x[tuple(at)]


def _gather_nd(attributes: Attributes, inputs: Sequence[Any], shape: tuple[int, ...]) -> Array:
    x, indices, batch = inputs[0], inputs[1], attributes.get("batch_dims", 0)
    result = np.empty(shape, x.dtype)
    for place in np.ndindex(indices.shape[:-1]):
        result[place] = x[(*place[:batch], *indices[place])]
    return result


def _scatter_nd(attributes: Attributes, inputs: Sequence[Any], shape: tuple[int, ...]) -> Array:
    x, indices, updates = inputs
    result, how = np.array(x), attributes.get("reduction", "none")
    ways = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}
    for place in np.ndindex(indices.shape[:-1]):
        at = tuple(indices[place])
        result[at] = updates[place] if how == "none" else ways[how](result[at], updates[place])
    return result


def _arg_max(attributes: Attributes, inputs: Sequence[Any], shape: tuple[int, ...]) -> Array:
    x, axis = inputs[0], attributes["axis"]
    if attributes["select_last_index"]:
        return (x.shape[axis] - 1 - np.flip(x, axis).argmax(axis)).reshape(shape)
    return x.argmax(axis).reshape(shape)


def _arg_min(attributes: Attributes, inputs: Sequence[Any], shape: tuple[int, ...]) -> Array:
    x = inputs[0]
    turned = -x if x.dtype.kind == "f" else -x.astype(np.int64)
    return _arg_max(attributes, [turned], shape)


def _cumsum(attributes: Attributes, inputs: Sequence[Any], shape: tuple[int, ...]) -> Array:
    axis = attributes["axis"]
    x = np.flip(inputs[0], axis) if attributes["reverse"] else inputs[0]
    sums = np.cumsum(x, axis, dtype=x.dtype)
    sums = sums - x if attributes["exclusive"] else sums
    return np.flip(sums, axis) if attributes["reverse"] else sums


OPERATORS = {
    "ArgMax": _arg_max,
    "ArgMin": _arg_min,
    "CumSum": _cumsum,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "ScatterND": _scatter_nd,
}
