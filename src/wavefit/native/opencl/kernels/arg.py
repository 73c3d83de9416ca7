"""ArgMax and ArgMin along one axis; a work-item walks its row."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from wavefit.native import space
from wavefit.native.opencl import c
from wavefit.native.opencl.kernels import _lanes, _rows, _source
from wavefit.native.operation import Config, Implementation, Limits, Operation, View

OPS = ("ArgMax", "ArgMin")


def claims(operation: Operation) -> bool:
    return operation.own == 1 and _source.present(operation) and not space.far(operation)


def configurations(operation: Operation, limits: Limits) -> Iterator[Config]:
    """``across`` rows in a work-group."""
    for across in _source.groups(limits, 64, 256):
        yield {"across": across, "down": 1}


def build(operation: Operation, config: Config) -> Implementation:
    shape = _rows_of(operation)
    cut = [
        msgspec.structs.replace(view, shape=view.shape[: shape.kept], strides=view.strides[: shape.kept])
        for view in shape.views
    ]
    laid = msgspec.structs.replace(operation, inputs=(cut[0], *cut[2:]), outputs=(cut[1],))
    x = operation.input(0).dtype
    better = ">" if operation.op == "ArgMax" else "<"
    better += "=" if operation.attributes.get("select_last_index") else ""
    value = c.load(x, "in0", c.index(shape.views[0], shape.axes))
    kind = c.register(x)
    lines = [
        *_rows.begin(shape, config),
        f"{kind} best = 0; long found = 0;",
        *_rows.walk(
            shape,
            config,
            [f"const {kind} x = {value};", f"if (at == 0 || x {better} best) {{ best = x; found = at; }}"],
        ),
        "if (!exists) return;",
        *_lanes.emitted(laid, ["found"], shape.row_axes),
    ]
    made = _rows.kernel("arg", operation, shape, config, lines, "long", _lanes.declared(laid, "int64"))
    return _source.single("arg", operation, config, made)


def cost(operation: Operation, config: Config, limits: Limits) -> float:
    return _rows.seconds(_rows_of(operation), config, _source.traffic(operation), limits)


def _rows_of(operation: Operation) -> _rows.Rows:
    x = operation.input(0)
    axis = int(operation.attributes["axis"]) % len(x.shape)
    out = operation.output.shape
    later = [space.over(view, out) for view in operation.inputs[1:] if view is not None]
    return _rows.rows(x, [_kept(view, x.shape, axis) for view in (operation.output, *later)], [axis])


def _kept(view: View, shape: tuple[int, ...], axis: int) -> View:
    strides = list(view.strides)
    if len(strides) == len(shape):
        strides[axis] = 0
    else:
        strides.insert(axis, 0)
    return msgspec.structs.replace(view, shape=shape, strides=tuple(strides))
