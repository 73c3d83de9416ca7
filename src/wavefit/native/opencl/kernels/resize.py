"""Resize: nearest, linear and cubic, by every rule that ONNX has for where the output's elements lie.

The taps and their weights are computed along each axis when the program is made (onnx.ai/onnx/operators, "Resize").
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from wavefit.native import space
from wavefit.native.opencl import c
from wavefit.native.opencl.kernels import _lanes, _source, _tables, _walk
from wavefit.native.operation import Config, Implementation, Limits, Operation

OPS = ("Resize",)

_TABLE_BYTES = 32768  # half of the least constant memory that a device has
_REACH = {"nearest": 1, "linear": 2, "cubic": 4}


def claims(operation: Operation) -> bool:
    floats = operation.input(0).dtype in ("float32", "float16") or operation.attributes["mode"] == "nearest"
    small = sum(8 * size * 4 for size in operation.output.shape[1:]) <= 4 * _TABLE_BYTES
    return floats and small and _source.present(operation) and not space.far(operation)


def configurations(operation: Operation, limits: Limits) -> Iterator[Config]:
    for local in _source.groups(limits, 256, 128, 64):
        yield {"local": local}


def build(operation: Operation, config: Config) -> Implementation:
    laid, order = _tables.in_memory_order(operation)
    declared, lines = _lanes.declared(laid, operation.input(0).dtype), []
    source, weight = [f"i{axis}" for axis in range(len(order))], []
    resized = [place for place, axis in enumerate(order) if _changes(operation, axis)]
    for place in resized:
        taps, weights = _taps(operation, order[place])
        width = taps.shape[1]
        declared = [_tables.integers(f"at{place}", taps), _tables.floats(f"w{place}", weights), *declared]
        lines += [f"for (int t{place} = 0; t{place} < {width}; t{place}++) {{"]
        source[place] = f"at{place}[i{place} * {width} + t{place}]"
        weight.append(f"w{place}[i{place} * {width} + t{place}]")
    x = laid.input(0)
    value = c.load(x.dtype, "in0", c.index(x, source))
    kind = c.register(x.dtype)
    nearest = operation.attributes["mode"] == "nearest"
    add = f"sum = {value};" if nearest else f"sum = fma({value}, {' * '.join(weight) or '1.0f'}, sum);"
    body = [f"{kind} sum = 0;", *lines, add, "}" * len(resized)]
    made = _source.kernel(
        "resize",
        c.parameters(laid)[0],
        _walk.walk(laid, 1, lambda axes, width: [*body, *_lanes.emitted(laid, ["sum"], axes)]),
        _walk.sizes(laid.output, 1, int(config["local"])),
        declared,
    )
    return _source.single("resize", operation, config, made)


def cost(operation: Operation, config: Config, limits: Limits) -> float:
    return _source.seconds(1.5 * _source.traffic(operation), operation.output.size, limits)


def _changes(operation: Operation, axis: int) -> bool:
    sizes = operation.input(0).shape[axis], operation.output.shape[axis]
    return sizes[0] != sizes[1] or operation.attributes["scales"][axis] != 1


def _taps(operation: Operation, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """For each element along an axis of the output, the input's elements and their weights."""
    given = operation.attributes
    old, new = operation.input(0).shape[axis], operation.output.shape[axis]
    places = _places(str(given["coordinate_transformation_mode"]), old, new, float(given["scales"][axis]))
    if given["mode"] == "nearest":
        near = np.clip(_nearest(str(given["nearest_mode"]), places), 0, old - 1)
        return near[:, None], np.ones((new, 1))
    reach = _REACH[str(given["mode"])]
    taps = np.floor(places).astype(np.int64)[:, None] + np.arange(reach) - (reach // 2 - 1)
    weights = _kernel(np.abs(places[:, None] - taps), given, reach)
    if given.get("exclude_outside"):
        weights = np.where((taps >= 0) & (taps < old), weights, 0.0)
        weights /= weights.sum(1, keepdims=True)
    return np.clip(taps, 0, old - 1), weights


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
