"""Normalisations: of the last axes (LayerNormalization), or of an image's channels (InstanceNormalization).

The mean is that of differences from the row's first element, so that a large mean costs no digits; the variance that
of differences from the mean.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from wavefit.native import space
from wavefit.native.operation import Config, Implementation, Limits, Operation, View
from wavefit.native.triton import text
from wavefit.native.triton.kernels import _rows
from wavefit.native.triton.text import Axis

OPS = ("LayerNormalization", "InstanceNormalization")


def claims(operation: Operation) -> bool:
    own = [view for view in operation.inputs[: operation.own] if view is not None]
    return (
        all(view.dtype in text.FLOATS for view in own)
        and len(operation.outputs) == 1
        and text.present(operation)
        and text.computes(operation)
    )


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
    given = [number for number, view in enumerate(operation.inputs) if number and view is not None]
    laid = dict(zip(given, shape.views[2:], strict=True))
    load = f"x = {walk.tile(text.load(shape.views[0], 'in0', walk.axes))}"
    first = [*walk.row_axes, *(Axis("0") for _ in walk.axes[shape.kept :])]
    again = [] if walk.whole else [load]
    result = ["y = (x - mean) * factor"]
    for number, form in ((1, "y * {0}"), (2, "y + {0}")):
        if number in laid and number < operation.own:
            result.append(f"y = {form.format(text.load(laid[number], f'in{number}', walk.axes))}")
    views = [shape.views[1], *(view for number, view in laid.items() if number >= operation.own)]
    epsilon = float(operation.attributes.get("epsilon", 1e-5))
    body = [
        *walk.begin(),
        f"origin = {text.load(shape.views[0], 'in0', first)}",
        f"parts = tl.zeros({tile}, tl.float32)",
        *walk.walk([load, f"parts += {walk.every('x - origin', '0.0')}"]),
        f"mean = origin + tl.sum(parts, 1)[:, None] / {shape.length}",
        f"parts = tl.zeros({tile}, tl.float32)",
        *walk.walk([*again, f"d = {walk.every('x - mean', '0.0')}", "parts += d * d"]),
        f"factor = 1.0 / tl.sqrt_rn(tl.sum(parts, 1)[:, None] / {shape.length} + {epsilon!r})",
        *walk.walk([*again, *result, *_rows.stored(operation, views, walk.axes, "y", tile)]),
    ]
    options = {"num_warps": int(config["warps"]), "num_stages": 2}
    return text.single("layernorm", operation, config, body, walk.grid, options)


def _axes(operation: Operation) -> list[int]:
    rank = len(operation.input(0).shape)
    if operation.op == "InstanceNormalization":
        return list(range(2, rank))
    return list(range(int(operation.attributes.get("axis", -1)) % rank, rank))


def _rows_of(operation: Operation) -> _rows.Rows:
    x = operation.input(0)
    later = [
        _over(operation, number, view)
        for number, view in enumerate(operation.inputs)
        if number and view is not None
    ]
    return _rows.rows(x, [operation.output, *later], _axes(operation))


def _over(operation: Operation, number: int, view: View) -> View:
    """Scale and bias of an instance's channels lie along axis 1; the rest broadcasts as numpy does."""
    shape = operation.input(0).shape
    if operation.op == "InstanceNormalization" and number < operation.own:
        ones = (1,) * (len(shape) - 2)
        view = replace(view, shape=(view.shape[0], *ones), strides=(view.strides[0], *(0 for _ in ones)))
    return space.over(view, shape)
