"""Copies between any strides and any types, element by element; transposes that need more are in transpose.py."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from wavefit.native.opencl.kernels import _source, pointwise
from wavefit.native.operation import Config, Implementation, Limits, Operation
from wavefit.native.pointwise import Apply, Pointwise

OPS = ("Copy",)


def claims(operation: Operation) -> bool:
    return operation.own == 1 and len(operation.outputs) == 1 and _source.present(operation)


def configurations(operation: Operation, limits: Limits) -> Iterator[Config]:
    yield from pointwise.configurations(as_pointwise(operation), limits)


def build(operation: Operation, config: Config) -> Implementation:
    made = pointwise.build(as_pointwise(operation), config)
    return msgspec.structs.replace(made, template="copy")


def cost(operation: Operation, config: Config, limits: Limits) -> float:
    return pointwise.cost(as_pointwise(operation), config, limits)


def as_pointwise(operation: Operation) -> Operation:
    """The copy as an elementwise expression: a cast, then its epilogue."""
    expression = operation.epilogue
    if expression is None:
        cast = Apply(function="cast", arguments=(0,), dtype=operation.output.dtype)
        expression = Pointwise(operands=1, steps=(cast,))
    return msgspec.structs.replace(operation, op="Pointwise", own=0, epilogue=expression)
