"""Elementwise expressions: any strides, any broadcasting, any types.

Axes that lie alike in all buffers are merged: dense operands in one order are a single axis, read and written as wide
vectors; an operand that repeats along it is loaded once for a vector.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from wavefit.native import space
from wavefit.native.opencl.kernels import _lanes, _source, _walk
from wavefit.native.operation import Config, Implementation, Limits, Operation, View

OPS = ("Pointwise",)


def claims(operation: Operation) -> bool:
    return (
        operation.own == 0
        and operation.epilogue is not None
        and operation.epilogue.operands == len(operation.inputs)
        and len(operation.outputs) == 1
        and _source.present(operation)
    )


def configurations(operation: Operation, limits: Limits) -> Iterator[Config]:
    laid = space.flat(operation)
    for vector in _walk.widths(_views(laid), limits):
        for local in _source.groups(limits, 256, 128, 64):
            yield {"vector": vector, "local": local}


def build(operation: Operation, config: Config) -> Implementation:
    laid = space.flat(operation)
    made = _walk.kernel("pointwise", laid, config, lambda axes, width: _elements(laid, axes, width))
    steps = len(laid.epilogue.steps) if laid.epilogue else 0
    return _source.single("pointwise", operation, config, made, steps * operation.output.size)


def cost(operation: Operation, config: Config, limits: Limits) -> float:
    return _walk.seconds(space.flat(operation), int(config["vector"]), limits)


def _elements(laid: Operation, axes: Sequence[str], width: int) -> list[str]:
    lines: list[str] = []
    arguments: list[list[str]] = [[] for _ in range(width)]
    for number in range(len(laid.inputs)):
        code, names = _lanes.load(laid.input(number), f"in{number}", axes, width, f"v{number}")
        lines += code
        for lane, name in enumerate(names):
            arguments[lane].append(name)
    results = [f"{_lanes.FINISH}({', '.join(each)})" for each in arguments]
    return [*lines, *_lanes.store(laid.output, "out0", axes, results)]


def _views(laid: Operation) -> list[View]:
    return [laid.output, *(view for view in laid.inputs if view is not None)]
