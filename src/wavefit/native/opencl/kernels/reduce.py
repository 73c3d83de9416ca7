"""Reductions over any axes: sums, means, extrema, norms."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from wavefit.native import space
from wavefit.native.opencl import c
from wavefit.native.opencl.kernels import _lanes, _rows, _source
from wavefit.native.operation import Config, Implementation, Limits, Operation, View

OPS = ("Reduce",)

_JOIN = {"max": "max({0}, {1})", "min": "min({0}, {1})", "prod": "({0} * {1})"}
_TERM = {"l1": "({0} < 0 ? -{0} : {0})", "l2": "({0} * {0})", "sumsquare": "({0} * {0})"}
_LAST = {"l2": "sqrt({0})", "logsum": "log({0})"}
_EXTREMES = {
    "float": ("-INFINITY", "INFINITY"),
    "int": ("INT_MIN", "INT_MAX"),
    "long": ("LONG_MIN", "LONG_MAX"),
    "uchar": ("0", "UCHAR_MAX"),
    "char": ("CHAR_MIN", "CHAR_MAX"),
}


def claims(operation: Operation) -> bool:
    kind = c.register(operation.input(0).dtype) if operation.input(0).dtype in c.STORED else ""
    return _source.present(operation) and kind in _EXTREMES and not space.far(operation)


def configurations(operation: Operation, limits: Limits) -> Iterator[Config]:
    """``across`` rows by ``down`` work-items of each in a work-group."""
    return _rows.configurations(_rows_of(operation), limits)


def build(operation: Operation, config: Config) -> Implementation:
    shape, kind = _rows_of(operation), c.register(operation.input(0).dtype)
    laid = _laid(operation, shape)
    name = str(operation.attributes["kind"])
    value = c.load(shape.views[0].dtype, "in0", c.index(shape.views[0], shape.axes))
    lines = [*_rows.begin(shape, config)]
    if name == "logsumexp":
        lines += _peak(shape, config, value)
        value = f"exp({value} - peak)"
    join = _JOIN.get(name, "({0} + {1})")
    term = _TERM.get(name, "{0}").format("x")
    lines += [
        f"{kind} sum = {_first(name, kind)};",
        *_rows.walk(
            shape, config, [f"const {kind} x = {value};", f"sum = {join.format('sum', f'({kind})({term})')};"]
        ),
        *_rows.join(config, kind, "sum", join),
        "if (lane || !exists) return;",
        f"const {kind} result = {_finish(name, shape.length)};",
        *_lanes.emitted(laid, ["result"], shape.row_axes),
    ]
    declared = _lanes.declared(laid, operation.input(0).dtype)
    made = _rows.kernel("reduce", operation, shape, config, lines, kind, declared)
    return _source.single("reduce", operation, config, made)


def cost(operation: Operation, config: Config, limits: Limits) -> float:
    return _rows.seconds(_rows_of(operation), config, _source.traffic(operation), limits)


def _peak(shape: _rows.Rows, config: Config, value: str) -> list[str]:
    return [
        "float peak = -INFINITY;",
        *_rows.walk(shape, config, [f"peak = fmax(peak, {value});"]),
        *_rows.join(config, "float", "peak", "fmax({0}, {1})"),
        "peak = isinf(peak) ? 0.0f : peak;",
    ]


def _first(name: str, kind: str) -> str:
    return {"max": _EXTREMES[kind][0], "min": _EXTREMES[kind][1], "prod": "1"}.get(name, "0")


def _finish(name: str, length: int) -> str:
    if name == "mean":
        return f"sum / {length}"
    return "log(sum) + peak" if name == "logsumexp" else _LAST.get(name, "{0}").format("sum")


def _rows_of(operation: Operation) -> _rows.Rows:
    x, axes = operation.input(0), tuple(operation.attributes["axes"])
    out = operation.output.shape
    later = [space.over(view, out) for view in operation.inputs[1:] if view is not None]
    return _rows.rows(x, [_kept(view, x.shape, axes) for view in (operation.output, *later)], axes)


def _kept(view: View, shape: tuple[int, ...], axes: tuple[int, ...]) -> View:
    """A view of the result over the shape of what is reduced, with stride 0 along reduced axes."""
    strides = list(view.strides)
    for axis in axes:
        if len(view.shape) == len(shape):
            strides[axis] = 0
        else:
            strides.insert(axis, 0)
    return msgspec.structs.replace(view, shape=shape, strides=tuple(strides))


def _laid(operation: Operation, shape: _rows.Rows) -> Operation:
    """The operation with the views of its result and its epilogue over the rows."""
    cut = [
        msgspec.structs.replace(view, shape=view.shape[: shape.kept], strides=view.strides[: shape.kept])
        for view in shape.views
    ]
    return msgspec.structs.replace(operation, inputs=(cut[0], *cut[2:]), outputs=(cut[1],))
