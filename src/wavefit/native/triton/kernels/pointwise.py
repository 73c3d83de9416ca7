"""Elementwise expressions and copies over any views: the output walked in the order in which it lies in memory."""

from __future__ import annotations

from collections.abc import Iterator

from wavefit.native import space
from wavefit.native.operation import Config, Implementation, Limits, Operation
from wavefit.native.triton import text
from wavefit.native.triton.kernels import _cost
from wavefit.native.triton.text import Axis

OPS = ("Pointwise", "Copy")


def claims(operation: Operation) -> bool:
    return text.present(operation) and text.computes(operation)


def configurations(operation: Operation, limits: Limits) -> Iterator[Config]:
    """``block`` elements of a program of ``warps`` waves."""
    for block, warps in ((1024, 4), (512, 4), (2048, 8), (256, 2), (4096, 8)):
        yield {"block": block, "warps": warps}


def build(operation: Operation, config: Config) -> Implementation:
    flat = space.flat(operation)
    block, size = int(config["block"]), flat.output.size
    inside = None if size % block == 0 else "inside"
    names = [f"i{axis}" for axis in range(len(flat.output.shape))]
    axes = [Axis(name, inside) for name in names]
    body = [f"at = tl.program_id(0) * {block} + tl.arange(0, {block})"]
    if inside:
        body.append(f"inside = at < {size}")
    body += text.split("at", flat.output.shape, names)
    for number, view in enumerate(flat.inputs):
        assert view is not None
        body.append(f"x{number} = {text.load(view, f'in{number}', axes)}")
    operands = [f"x{number}" for number in range(len(flat.inputs))]
    result = operands[0]
    if operation.epilogue is not None:
        lines, result = text.expression(operation.epilogue, operands)
        body += lines
    body.append(text.store(flat.output, "out0", axes, result, inside))
    options = {"num_warps": int(config["warps"]), "num_stages": 1}
    return text.single("pointwise", operation, config, body, (-(-size // block),), options)


def cost(operation: Operation, config: Config, limits: Limits) -> float:
    return _cost.seconds(text.traffic(operation), operation.output.size, limits)
