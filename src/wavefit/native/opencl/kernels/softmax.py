"""Softmax and its logarithm along one axis: the largest is found, then the sum, then the shares are written."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from wavefit.native import space
from wavefit.native.opencl import c
from wavefit.native.opencl.kernels import _lanes, _rows, _source
from wavefit.native.operation import Config, Implementation, Limits, Operation

OPS = ("Softmax",)


def claims(operation: Operation) -> bool:
    floats = operation.input(0).dtype in ("float32", "float16")
    return floats and _source.present(operation) and not space.far(operation)


def configurations(operation: Operation, limits: Limits) -> Iterator[Config]:
    """``across`` rows by ``down`` work-items of each in a work-group."""
    return _rows.configurations(_rows_of(operation), limits)


def build(operation: Operation, config: Config) -> Implementation:
    shape = _rows_of(operation)
    laid = msgspec.structs.replace(
        operation, inputs=(shape.views[0], *shape.views[2:]), outputs=(shape.views[1],)
    )
    value = c.load(shape.views[0].dtype, "in0", c.index(shape.views[0], shape.axes))
    share = "x - peak - shift" if operation.attributes.get("log") else "exp(x - peak) * shift"
    lines = [
        *_rows.begin(shape, config),
        "float peak = -INFINITY;",
        *_rows.walk(shape, config, [f"peak = fmax(peak, {value});"]),
        *_rows.join(config, "float", "peak", "fmax({0}, {1})"),
        "float sum = 0.0f;",
        *_rows.walk(shape, config, [f"sum += exp({value} - peak);"]),
        *_rows.join(config, "float", "sum", "({0} + {1})"),
        "const float shift = log(sum);"
        if operation.attributes.get("log")
        else "const float shift = 1.0f / sum;",
        *_rows.walk(
            shape,
            config,
            [
                f"const float x = {value};",
                f"const float y = {share};",
                *_lanes.emitted(laid, ["y"], shape.axes),
            ],
        ),
    ]
    made = _rows.kernel("softmax", operation, shape, config, lines, "float", _lanes.declared(laid))
    return _source.single("softmax", operation, config, made)


def cost(operation: Operation, config: Config, limits: Limits) -> float:
    return _rows.seconds(_rows_of(operation), config, 1.5 * _source.traffic(operation), limits)


def _rows_of(operation: Operation) -> _rows.Rows:
    x = operation.input(0)
    later = [space.over(view, x.shape) for view in operation.inputs[1:] if view is not None]
    return _rows.rows(x, [operation.output, *later], [int(operation.attributes["axis"]) % len(x.shape)])
