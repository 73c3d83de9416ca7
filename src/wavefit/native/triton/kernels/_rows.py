"""Kernels that walk rows: a program takes ``rows`` of them, each whole or in pieces of ``piece`` elements.

A row is all elements that are reduced, or normalised, together. A row that fits is read once and kept in registers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from msgspec.structs import replace

from wavefit.native import space
from wavefit.native.operation import Config, Limits, Operation, View
from wavefit.native.triton import text
from wavefit.native.triton.kernels import _cost
from wavefit.native.triton.text import Axis

_LONGEST = 8192  # elements of a row that is kept


@dataclass(frozen=True)
class Rows:
    """Views over (kept axes..., walked axes...), the first of them what is walked; and how many axes are kept."""

    views: list[View]
    kept: int

    @property
    def count(self) -> int:
        return prod(self.views[0].shape[: self.kept])

    @property
    def length(self) -> int:
        return prod(self.views[0].shape[self.kept :])


def rows(walked: View, others: Sequence[View], axes: Sequence[int]) -> Rows:
    """Arranges views of one shape for walks along ``axes``."""
    kept = [axis for axis in range(len(walked.shape)) if axis not in axes]
    views, ranks = space.arranged([walked, *others], [kept, list(axes)])
    return Rows(views, ranks[0])


def configurations(shape: Rows, limits: Limits) -> Iterator[Config]:
    """``rows`` of a program, ``piece`` of a row at a time, ``warps``."""
    piece = min(_LONGEST, text.power_of_two(shape.length))
    many = max(1, 1024 // piece)
    for count, warps in (
        (1, 4),
        (many, 4),
        (max(1, many // 4), 1),
        (4 * many, 4),
        (1, 8),
        (2, 4),
        (1, 1),
        (many, 8),
    ):
        if count * piece <= 32768 and count <= text.power_of_two(shape.count):
            yield {"rows": count, "piece": piece, "warps": warps}
    if shape.length > 1024:
        yield {"rows": 1, "piece": 1024, "warps": 4}


def seconds(shape: Rows, config: Config, moved: float, limits: Limits) -> float:
    units = limits.compute_units or 64
    programs = -(-shape.count // int(config["rows"]))
    pieces = -(-shape.length // int(config["piece"]))
    lanes = int(config["warps"]) * limits.wave
    each = int(config["rows"]) * int(config["piece"]) / lanes
    own = 1e-6 + pieces * (4e-7 + each * 2.5e-9)
    rounds = max(1.0, programs * int(config["warps"]) / (units * 16))
    return _cost.LAUNCH_SECONDS + max(rounds * own, moved / (limits.bandwidth or _cost.BANDWIDTH) / 0.8)


class Walk:
    """Statements of a kernel over rows.

    Args:
        shape: what is walked.
        config: see :func:`configurations`.
    """

    def __init__(self, shape: Rows, config: Config) -> None:
        self.shape = shape
        self.count, self.piece = int(config["rows"]), int(config["piece"])
        self.whole = self.piece >= shape.length
        self.row_mask = None if shape.count % self.count == 0 else "row_inside"
        self.mask = None if shape.length % self.piece == 0 else "inside"
        total = shape.views[0].shape
        self.row_axes = [Axis(f"r{axis}", self.row_mask) for axis in range(shape.kept)]
        self.axes = [
            *self.row_axes,
            *(Axis(f"w{axis}", self.mask) for axis in range(len(total) - shape.kept)),
        ]

    @property
    def grid(self) -> tuple[int, ...]:
        return (-(-self.shape.count // self.count),)

    def begin(self) -> list[str]:
        """Coordinates of the rows, and of a row's elements where it is read whole."""
        row_shape = self.shape.views[0].shape[: self.shape.kept]
        lines = [f"row = tl.program_id(0) * {self.count} + tl.arange(0, {self.count})[:, None]"]
        if self.row_mask:
            lines.append(f"row_inside = row < {self.shape.count}")
        lines += text.split("row", row_shape, [axis.expression for axis in self.row_axes])
        return [*lines, *(self._coordinates(f"tl.arange(0, {self.piece})[None, :]") if self.whole else [])]

    def walk(self, statements: Sequence[str]) -> list[str]:
        """Statements for each piece of a row; once, as they are, where it is read whole."""
        if self.whole:
            return list(statements)
        inner = [*self._coordinates(f"start + tl.arange(0, {self.piece})[None, :]"), *statements]
        return [
            f"for start in range(0, {self.shape.length}, {self.piece}):",
            *(f"    {line}" for line in inner),
        ]

    def _coordinates(self, at: str) -> list[str]:
        names = [axis.expression for axis in self.axes[self.shape.kept :]]
        lines = [f"at = {at}"]
        if self.mask:
            lines.append(f"inside = at < {self.shape.length}")
        return [*lines, *text.split("at", self.shape.views[0].shape[self.shape.kept :], names)]

    def tile(self, load: str) -> str:
        """A load of the tile's shape, also where axes of size 1 have no part in the place."""
        return f"tl.broadcast_to({load}, ({self.count}, {self.piece}))"

    def every(self, value: str, other: str) -> str:
        """A value, and ``other`` where the tile reaches past the row."""
        return f"tl.where(inside, {value}, {other})" if self.mask else value


def kept(view: View, shape: tuple[int, ...], axes: tuple[int, ...]) -> View:
    """A view of a result over the shape of what is reduced, with stride 0 along reduced axes."""
    strides = list(view.strides)
    for axis in axes:
        if len(view.shape) == len(shape):
            strides[axis] = 0
        else:
            strides.insert(axis, 0)
    return replace(view, shape=shape, strides=tuple(strides))


def stored(
    operation: Operation, views: Sequence[View], axes: Sequence[Axis], value: str, tile: tuple[int, int]
) -> list[str]:
    """The epilogue and the store of a tile.

    Args:
        operation: whose epilogue.
        views: of the output, then of the epilogue's operands, over ``axes``.
        axes: coordinates.
        value: the tile's name.
        tile: its shape.
    """
    laid = replace(operation, inputs=(*operation.inputs[: operation.own], *views[1:]), outputs=(views[0],))
    lines, name = text.epilogue(laid, value, axes)
    return [*lines, text.store(views[0], "out0", axes, name, spread=str(tile))]
