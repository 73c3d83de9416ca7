"""CumSum along one axis: rows that several work-items scan together, a stretch at a time.

A stretch is scanned in local memory, each step adding what lies twice as far back (Hillis and Steele, Data parallel
algorithms, 1986); its total is carried into the next one. One work-item alone walks its row.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from wavefit.native import space
from wavefit.native.opencl import c
from wavefit.native.opencl.kernels import _lanes, _rows, _source
from wavefit.native.operation import Config, Implementation, Limits, Operation

OPS = ("CumSum",)


def claims(operation: Operation) -> bool:
    """Types of one width in and out: sums of 8 and 16-bit integers are not defined by ONNX."""
    known = ("float32", "float16", "int32", "int64", "uint32", "uint64")
    return (
        operation.own == 1
        and operation.input(0).dtype in known
        and _source.present(operation)
        and not space.far(operation)
    )


def configurations(operation: Operation, limits: Limits) -> Iterator[Config]:
    """``across`` rows by ``down`` work-items of each in a work-group."""
    return _rows.configurations(_rows_of(operation), limits)


def build(operation: Operation, config: Config) -> Implementation:
    shape, kind = _rows_of(operation), c.register(operation.input(0).dtype)
    scan = (
        _alone(operation, shape, kind) if config["down"] == 1 else _together(operation, shape, config, kind)
    )
    lines = [*_rows.begin(shape, config), f"{kind} carry = 0;", *scan]
    declared = _lanes.declared(_laid(operation, shape), operation.input(0).dtype)
    made = _rows.kernel("cumsum", operation, shape, config, lines, kind, declared)
    return _source.single("cumsum", operation, config, made)


def cost(operation: Operation, config: Config, limits: Limits) -> float:
    return _rows.seconds(_rows_of(operation), config, _source.traffic(operation), limits)


def _alone(operation: Operation, shape: _rows.Rows, kind: str) -> list[str]:
    before, after = ("y = carry; carry += x;", "") if _exclusive(operation) else ("carry += x;", "y = carry;")
    return [
        "if (!exists) return;",
        f"for (int at = 0; at < {shape.length}; at++) {{",
        _place(operation, shape),
        f"const {kind} x = {_element(shape)};",
        f"{kind} y; {before} {after}".rstrip(),
        *_lanes.emitted(_laid(operation, shape), ["y"], shape.axes),
        "}",
    ]


def _together(operation: Operation, shape: _rows.Rows, config: Config, kind: str) -> list[str]:
    across, down = int(config["across"]), int(config["down"])
    shared, lines = f"shared_{kind}", []
    step = 1
    while step < down:
        lines += [
            f"{{ const {kind} back = lane >= {step} ? {shared}[lid - {step * across}] : 0;",
            "barrier(CLK_LOCAL_MEM_FENCE);",
            f"{shared}[lid] += back; }}",
            "barrier(CLK_LOCAL_MEM_FENCE);",
        ]
        step *= 2
    sums = f"(lane ? {shared}[lid - {across}] : 0)" if _exclusive(operation) else f"{shared}[lid]"
    return [
        f"for (int first = 0; first < {shape.length}; first += {down}) {{",
        f"const int at = first + lane, inside = exists && at < {shape.length};",
        _place(operation, shape),
        f"{shared}[lid] = inside ? {_element(shape)} : 0;",
        "barrier(CLK_LOCAL_MEM_FENCE);",
        *lines,
        f"const {kind} y = carry + {sums};",
        f"carry += {shared}[{(down - 1) * across} + lid % {across}];",
        "barrier(CLK_LOCAL_MEM_FENCE);",
        "if (inside) {",
        *_lanes.emitted(_laid(operation, shape), ["y"], shape.axes),
        "}",
        "}",
    ]


def _exclusive(operation: Operation) -> bool:
    return bool(operation.attributes["exclusive"])


def _place(operation: Operation, shape: _rows.Rows) -> str:
    (axis,) = shape.walk_axes
    return f"const int {axis} = {f'{shape.length - 1} - at' if operation.attributes['reverse'] else 'at'};"


def _element(shape: _rows.Rows) -> str:
    return c.load(shape.views[0].dtype, "in0", c.index(shape.views[0], shape.axes))


def _laid(operation: Operation, shape: _rows.Rows) -> Operation:
    return msgspec.structs.replace(
        operation, inputs=(shape.views[0], *shape.views[2:]), outputs=(shape.views[1],)
    )


def _rows_of(operation: Operation) -> _rows.Rows:
    x = operation.input(0)
    later = [space.over(view, x.shape) for view in operation.inputs[1:] if view is not None]
    return _rows.rows(x, [operation.output, *later], [int(operation.attributes["axis"]) % len(x.shape)])
