"""Kernels that make one element of the output after another, in the order in which it lies in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from wavefit.native import space
from wavefit.native.operation import Config, Implementation, Limits, Operation
from wavefit.native.triton import text
from wavefit.native.triton.text import Axis

Body = Callable[[Sequence[Axis]], list[str]]
"""Statements that end in an assignment to ``y``, of coordinates in the output's own order of axes."""


def configurations(limits: Limits) -> Iterator[Config]:
    """``block`` elements of a program of ``warps`` waves."""
    for block, warps in ((1024, 4), (512, 4), (256, 4), (2048, 8), (128, 2), (256, 1)):
        yield {"block": block, "warps": warps}


def build(template: str, operation: Operation, config: Config, body: Body, flops: int = 0) -> Implementation:
    """A kernel that stores ``y``, its epilogue done, at every place of the output."""
    block = int(config["block"])
    shape = operation.output.shape or (1,)
    laid = replace(space.spread(operation), inputs=_later(operation, shape))
    order = sorted(range(len(shape)), key=lambda axis: -laid.output.strides[axis])
    size = laid.output.size
    inside = None if size % block == 0 else "inside"
    lines = [f"at = tl.program_id(0) * {block} + tl.arange(0, {block})"]
    if inside:
        lines.append(f"inside = at < {size}")
    lines += text.split("at", [shape[axis] for axis in order], [f"i{axis}" for axis in order])
    axes = [Axis(f"i{axis}", inside) for axis in range(len(shape))]
    more, name = text.epilogue(laid, "y", axes)
    lines += [*body(axes), *more]
    lines.append(text.store(laid.output, "out0", axes, name, inside, spread=f"({block},)"))
    options = {"num_warps": int(config["warps"]), "num_stages": 1}
    return text.single(template, operation, config, lines, (-(-size // block),), options, flops)


def _later(operation: Operation, shape: tuple[int, ...]) -> tuple[object, ...]:
    own = operation.own
    return (
        *operation.inputs[:own],
        *(view if view is None else space.over(view, shape) for view in operation.inputs[own:]),
    )
