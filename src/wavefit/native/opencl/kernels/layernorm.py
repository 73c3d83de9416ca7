"""Normalisations: of the last axes (LayerNormalization), or of an image's channels (InstanceNormalization).

Mean and variance are taken in two walks, the mean as that of differences from the row's first element, so that a large
mean costs no digits.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from wavefit.native import space
from wavefit.native.opencl import c
from wavefit.native.opencl.kernels import _lanes, _rows, _source
from wavefit.native.operation import Config, Implementation, Limits, Operation, View

OPS = ("LayerNormalization", "InstanceNormalization")


def claims(operation: Operation) -> bool:
    floats = all(
        view is None or view.dtype in ("float32", "float16") for view in operation.inputs[: operation.own]
    )
    return floats and len(operation.outputs) == 1 and _source.present(operation) and not space.far(operation)


def configurations(operation: Operation, limits: Limits) -> Iterator[Config]:
    """``across`` rows by ``down`` work-items of each in a work-group."""
    return _rows.configurations(_rows_of(operation), limits)


def build(operation: Operation, config: Config) -> Implementation:
    shape = _rows_of(operation)
    laid, numbers = _laid(operation, shape)
    value = c.load(shape.views[0].dtype, "in0", c.index(shape.views[0], shape.axes))
    first = c.index(
        shape.views[0],
        [*(f"(exists ? {axis} : 0)" for axis in shape.row_axes), *("0" for _ in shape.walk_axes)],
    )
    result = "(x - mean) * factor"
    for number, form in ((1, "({0}) * {1}"), (2, "{0} + {1}")):
        if number in numbers:
            view = laid.input(number)
            result = form.format(result, c.load(view.dtype, f"in{number}", c.index(view, shape.axes)))
    epsilon = c.literal(float(operation.attributes.get("epsilon", 1e-5)))
    lines = [
        *_rows.begin(shape, config),
        f"const float origin = {c.load(shape.views[0].dtype, 'in0', first)};",
        "float mean = 0.0f;",
        *_rows.walk(shape, config, [f"mean += {value} - origin;"]),
        *_rows.join(config, "float", "mean", "({0} + {1})"),
        f"mean = origin + mean / {float(shape.length)}f;",
        "float spread = 0.0f;",
        *_rows.walk(shape, config, [f"const float d = {value} - mean;", "spread = fma(d, d, spread);"]),
        *_rows.join(config, "float", "spread", "({0} + {1})"),
        f"const float factor = 1.0f / sqrt(spread / {float(shape.length)}f + {epsilon});",
        *_rows.walk(
            shape,
            config,
            [
                f"const float x = {value};",
                f"const float y = {result};",
                *_lanes.emitted(laid, ["y"], shape.axes),
            ],
        ),
    ]
    made = _rows.kernel("layernorm", operation, shape, config, lines, "float", _lanes.declared(laid))
    return _source.single("layernorm", operation, config, made)


def cost(operation: Operation, config: Config, limits: Limits) -> float:
    return _rows.seconds(_rows_of(operation), config, 1.5 * _source.traffic(operation), limits)


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
        view = msgspec.structs.replace(
            view, shape=(view.shape[0], *ones), strides=(view.strides[0], *(0 for _ in ones))
        )
    return space.over(view, shape)


def _laid(operation: Operation, shape: _rows.Rows) -> tuple[Operation, list[int]]:
    """The operation with all views over (kept, normalised) axes, and the numbers of the inputs that are given."""
    given = [number for number, view in enumerate(operation.inputs) if view is not None]
    inputs: list[View | None] = [None] * len(operation.inputs)
    for number, view in zip(given, (shape.views[0], *shape.views[2:]), strict=True):
        inputs[number] = view
    return msgspec.structs.replace(operation, inputs=tuple(inputs), outputs=(shape.views[1],)), given
