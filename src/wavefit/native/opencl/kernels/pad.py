"""Pad: constant, reflect, edge and wrap; negative pads cut."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from wavefit.native import space
from wavefit.native.opencl import c
from wavefit.native.opencl.kernels import _lanes, _source, _tables, _walk
from wavefit.native.operation import Config, Implementation, Limits, Operation

OPS = ("Pad",)


def claims(operation: Operation) -> bool:
    return operation.own == 1 and _source.present(operation) and not space.far(operation)


def configurations(operation: Operation, limits: Limits) -> Iterator[Config]:
    for local in _source.groups(limits, 256, 128, 64):
        yield {"local": local}


def build(operation: Operation, config: Config) -> Implementation:
    laid, order = _tables.in_memory_order(operation)
    x, kind = laid.input(0), c.register(operation.input(0).dtype)
    declared = _lanes.declared(laid, operation.input(0).dtype)
    source, inside = [f"i{axis}" for axis in range(len(order))], []
    for place, axis in enumerate(order):
        table = _sources(operation, axis)
        if (table == np.arange(table.size)).all():
            continue
        declared = [_tables.integers(f"at{place}", table), *declared]
        source[place] = f"max(at{place}[i{place}], 0)"
        inside.append(f"at{place}[i{place}] >= 0")
    value = c.load(x.dtype, "in0", c.index(x, source))
    outside = c.literal(float(operation.attributes.get("value", 0.0)), x.dtype)
    line = f"const {kind} y = {' && '.join(inside) or '1'} ? {value} : {outside};"
    made = _source.kernel(
        "pad",
        c.parameters(laid)[0],
        _walk.walk(laid, 1, lambda axes, width: [line, *_lanes.emitted(laid, ["y"], axes)]),
        _walk.sizes(laid.output, 1, int(config["local"])),
        declared,
    )
    return _source.single("pad", operation, config, made)


def cost(operation: Operation, config: Config, limits: Limits) -> float:
    return _source.seconds(_source.traffic(operation), operation.output.size, limits)


def _sources(operation: Operation, axis: int) -> np.ndarray:
    """For each element along an axis of the output, the input's element; -1 where the constant stands."""
    old, new = operation.input(0).shape[axis], operation.output.shape[axis]
    at = np.arange(new) - int(operation.attributes["pads"][axis])
    mode = operation.attributes["mode"]
    if mode == "edge":
        return np.clip(at, 0, old - 1)
    if mode == "wrap":
        return at % old
    if mode == "reflect" and old > 1:
        turn = at % (2 * old - 2)
        return np.minimum(turn, 2 * old - 2 - turn)
    if mode == "reflect":
        return np.zeros(new, np.int64)
    return np.where((at >= 0) & (at < old), at, -1)
