"""Copies and elementwise expressions whose operands run along another axis than the output: by tiles.

A tile is read along the axis on which the input's elements lie side by side, and stored along the output's.
"""

from __future__ import annotations

from collections.abc import Iterator

from wavefit.native import space
from wavefit.native.operation import Config, Implementation, Limits, Operation, View
from wavefit.native.triton import text
from wavefit.native.triton.kernels import _cost
from wavefit.native.triton.text import Axis

OPS = ("Copy", "Pointwise")


def claims(operation: Operation) -> bool:
    return (
        len(operation.outputs) == 1
        and text.present(operation)
        and text.computes(operation)
        and _axes(space.flat(operation)) is not None
    )


def configurations(operation: Operation, limits: Limits) -> Iterator[Config]:
    """``along`` the output by ``across`` it, of a program."""
    for along, across, warps in (
        (64, 64, 4),
        (32, 32, 4),
        (32, 64, 4),
        (16, 128, 4),
        (8, 256, 4),
        (128, 32, 8),
    ):
        yield {"along": along, "across": across, "warps": warps}


def cost(operation: Operation, config: Config, limits: Limits) -> float:
    return _cost.seconds(1.2 * text.traffic(operation), operation.output.size // 4, limits)


def build(operation: Operation, config: Config) -> Implementation:
    flat = space.flat(operation)
    found = _axes(flat)
    assert found is not None
    last, other = found
    shape = flat.output.shape
    along = min(int(config["along"]), text.power_of_two(shape[last]))
    across = min(int(config["across"]), text.power_of_two(shape[other]))
    right, down = -(-shape[last] // along), -(-shape[other] // across)
    rest = [axis for axis in range(len(shape)) if axis not in found]
    axes = [Axis(f"i{axis}") for axis in range(len(shape))]
    axes[last] = Axis("a", "in_a" if shape[last] % along else None)
    axes[other] = Axis("b", "in_b" if shape[other] % across else None)
    body = [
        "tile = tl.program_id(0)",
        f"a = (tile % {right}) * {along} + tl.arange(0, {along})[None, :]",
        f"tile_rest = tile // {right}",
        f"b = (tile_rest % {down}) * {across} + tl.arange(0, {across})[:, None]",
        f"others = tile_rest // {down}",
        f"in_a = a < {shape[last]}",
        f"in_b = b < {shape[other]}",
        *text.split("others", [shape[axis] for axis in rest], [f"i{axis}" for axis in rest]),
    ]
    names = []
    for number, view in enumerate(flat.inputs):
        assert view is not None
        body.append(f"x{number} = {text.load(view, f'in{number}', axes)}")
        names.append(f"x{number}")
    result = names[0]
    if operation.epilogue is not None:
        lines, result = text.expression(operation.epilogue, names)
        body += lines
    body.append(text.store(flat.output, "out0", axes, result, spread=f"({across}, {along})"))
    grid = (right * down * (flat.output.size // (shape[last] * shape[other])),)
    options = {"num_warps": int(config["warps"]), "num_stages": 1}
    return text.single("transpose", operation, config, body, grid, options)


def _axes(flat: Operation) -> tuple[int, int] | None:
    """The axis along which the output lies, and that along which the first operand does; None where they are one."""
    last, other = _unit(flat.output), _unit(flat.input(0))
    return None if last is None or other is None or last == other else (last, other)


def _unit(view: View) -> int | None:
    """The axis along which elements lie side by side."""
    places = enumerate(zip(view.shape, view.strides, strict=True))
    return next((axis for axis, (size, stride) in places if size > 1 and stride == 1), None)
