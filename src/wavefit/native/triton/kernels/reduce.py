"""Reductions over any axes: sums, means, extrema, norms."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace

from wavefit.native import space
from wavefit.native.operation import Config, Implementation, Limits, Operation
from wavefit.native.triton import text
from wavefit.native.triton.kernels import _rows

OPS = ("Reduce",)
_TERM = {"l1": "tl.abs({0})", "l2": "({0} * {0})", "sumsquare": "({0} * {0})"}
_LAST = {"l2": "tl.sqrt_rn({0})", "logsum": "tl.log({0})"}
_KINDS = ("mean", "sum", "max", "min", *_TERM, "logsum")


def claims(operation: Operation) -> bool:
    return (
        operation.own == 1
        and len(operation.outputs) == 1
        and operation.attributes["kind"] in _KINDS
        and operation.input(0).dtype not in ("bool", "uint32", "uint64", "uint16")
        and text.present(operation)
        and text.computes(operation)
    )


def configurations(operation: Operation, limits: Limits) -> Iterator[Config]:
    """``rows`` of a program, ``piece`` of a row at a time, ``warps``."""
    shape = _rows_of(operation)
    found = list(_rows.configurations(shape, limits))
    yield from sorted(found, key=lambda each: cost(operation, each, limits))


def cost(operation: Operation, config: Config, limits: Limits) -> float:
    return _rows.seconds(_rows_of(operation), config, text.traffic(operation), limits)


def build(operation: Operation, config: Config) -> Implementation:
    shape = _rows_of(operation)
    walk = _rows.Walk(shape, config)
    kind, dtype = str(operation.attributes["kind"]), operation.input(0).dtype
    register = "int32" if dtype in ("int8", "uint8", "int16") else text.register(dtype)
    extreme = kind if kind in ("max", "min") else ""
    start = _extreme(extreme, register) if extreme else "0"
    load = walk.tile(text.load(shape.views[0], "in0", walk.axes)) + f".to(tl.{register})"
    term = walk.every(_TERM.get(kind, "{0}").format("x"), start)
    join = f"tl.{extreme}imum(found, {term})" if extreme else f"found + {term}"
    tile = f"({walk.count}, {walk.piece})"
    body = [
        *walk.begin(),
        f"found = tl.full({tile}, {start}, tl.{register})",
        *walk.walk([f"x = {load}", f"found = {join}"]),
        f"result = tl.{extreme or 'sum'}(found, 1)[:, None]",
    ]
    if kind == "mean":
        body.append(f"result = result / {shape.length}")
    body.append(f"result = {_LAST.get(kind, '{0}').format('result')}")
    views = [
        replace(v, shape=v.shape[: shape.kept], strides=v.strides[: shape.kept]) for v in shape.views[1:]
    ]
    body += _rows.stored(operation, views, walk.row_axes, "result", (walk.count, 1))
    options = {"num_warps": int(config["warps"]), "num_stages": 2}
    return text.single("reduce", operation, config, body, walk.grid, options)


def _extreme(kind: str, register: str) -> str:
    if register == "float32":
        return 'float("-inf")' if kind == "max" else 'float("inf")'
    held = np.iinfo(register)
    return str(held.min if kind == "max" else held.max)


def _rows_of(operation: Operation) -> _rows.Rows:
    x, axes = operation.input(0), tuple(operation.attributes["axes"])
    out = operation.output.shape
    later = [space.over(view, out) for view in operation.inputs[1:] if view is not None]
    return _rows.rows(x, [_rows.kept(view, x.shape, axes) for view in (operation.output, *later)], axes)
