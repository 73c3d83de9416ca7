"""Softmax and its logarithm along one axis."""

from __future__ import annotations

from collections.abc import Iterator

from wavefit.native import space
from wavefit.native.operation import Config, Implementation, Limits, Operation
from wavefit.native.triton import text
from wavefit.native.triton.kernels import _rows

OPS = ("Softmax",)


def claims(operation: Operation) -> bool:
    floats = operation.input(0).dtype in text.FLOATS
    return floats and operation.own == 1 and text.present(operation) and text.computes(operation)


def configurations(operation: Operation, limits: Limits) -> Iterator[Config]:
    """``rows`` of a program, ``piece`` of a row at a time, ``warps``."""
    found = list(_rows.configurations(_rows_of(operation), limits))
    yield from sorted(found, key=lambda each: cost(operation, each, limits))


def cost(operation: Operation, config: Config, limits: Limits) -> float:
    return _rows.seconds(_rows_of(operation), config, text.traffic(operation), limits)


def build(operation: Operation, config: Config) -> Implementation:
    shape = _rows_of(operation)
    walk = _rows.Walk(shape, config)
    tile = (walk.count, walk.piece)
    load = f"x = {walk.every(walk.tile(text.load(shape.views[0], 'in0', walk.axes)), _LEAST)}"
    log = bool(operation.attributes.get("log"))
    result = "y = x - peak - tl.log(total)" if log else "y = tl.exp(x - peak) / total"
    again = [] if walk.whole else [load]
    body = [
        *walk.begin(),
        f"highest = tl.full({tile}, {_LEAST}, tl.float32)",
        *walk.walk([load, "highest = tl.maximum(highest, x)"]),
        "peak = tl.max(highest, 1)[:, None]",
        f"parts = tl.zeros({tile}, tl.float32)",
        *walk.walk([*again, "parts += tl.exp(x - peak)"]),
        "total = tl.sum(parts, 1)[:, None]",
        *walk.walk([*again, result, *_rows.stored(operation, shape.views[1:], walk.axes, "y", tile)]),
    ]
    options = {"num_warps": int(config["warps"]), "num_stages": 2}
    return text.single("softmax", operation, config, body, walk.grid, options)


_LEAST = 'float("-inf")'


def _rows_of(operation: Operation) -> _rows.Rows:
    x = operation.input(0)
    later = [space.over(view, x.shape) for view in operation.inputs[1:] if view is not None]
    return _rows.rows(x, [operation.output, *later], [int(operation.attributes["axis"]) % len(x.shape)])
