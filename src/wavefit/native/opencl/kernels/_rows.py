"""Kernels that walk rows: a work-group takes ``across`` rows with ``down`` work-items each.

A row is all elements that are reduced, or normalised, together. Lanes run over rows first where neighbouring rows are
neighbours in memory (the spatial axes of a channels-last image), else along the row. What the lanes of a row found is
joined in local memory, by halves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from wavefit.native import space
from wavefit.native.opencl import c
from wavefit.native.opencl.kernels import _source
from wavefit.native.operation import Config, Kernel, Limits, Operation, View

_SHAPES = (
    (1, 256),
    (1, 64),
    (1, 128),
    (4, 64),
    (16, 16),
    (64, 4),
    (32, 8),
    (64, 1),
    (256, 1),
    (8, 8),
    (1, 32),
)


@dataclass(frozen=True)
class Rows:
    """Views over (kept axes..., walked axes...), the first of them what is walked.

    Args:
        views: in the order in which they were given.
        kept: how many of the axes number the rows.
    """

    views: list[View]
    kept: int

    @property
    def row_shape(self) -> tuple[int, ...]:
        return self.views[0].shape[: self.kept]

    @property
    def walk_shape(self) -> tuple[int, ...]:
        return self.views[0].shape[self.kept :]

    @property
    def rows(self) -> int:
        return prod(self.row_shape)

    @property
    def length(self) -> int:
        return prod(self.walk_shape)

    @property
    def row_axes(self) -> list[str]:
        return [f"r{axis}" for axis in range(self.kept)]

    @property
    def walk_axes(self) -> list[str]:
        return [f"w{axis}" for axis in range(len(self.walk_shape))]

    @property
    def axes(self) -> list[str]:
        return [*self.row_axes, *self.walk_axes]


def rows(walked: View, others: Sequence[View], axes: Sequence[int]) -> Rows:
    """Arranges views of one shape for walks along ``axes``."""
    kept = [axis for axis in range(len(walked.shape)) if axis not in axes]
    views, ranks = space.arranged([walked, *others], [kept, list(axes)])
    return Rows(views, ranks[0])


def begin(shape: Rows, config: Config) -> list[str]:
    """Statements that define ``row``, whether it ``exists``, the lane along it, and its coordinates."""
    across = int(config["across"])
    return [
        "const int lid = get_local_id(0);",
        f"const int lane = lid / {across};",
        f"const uint row = get_group_id(0) * {across}u + lid % {across};",
        f"const int exists = row < {shape.rows}u;",
        *c.split("row", shape.row_shape, shape.row_axes),
    ]


def walk(shape: Rows, config: Config, statements: Sequence[str]) -> list[str]:
    """A loop over the elements of the row that are the lane's, with their coordinates."""
    return [
        f"if (exists) for (uint at = lane; at < {shape.length}u; at += {config['down']}) {{",
        *c.split("at", shape.walk_shape, shape.walk_axes),
        *statements,
        "}",
    ]


def join(config: Config, kind: str, name: str, combine: str) -> list[str]:
    """What the lanes of a row hold in ``name`` joined; all of them have the result.

    Args:
        config: "across" and "down".
        kind: the C type.
        name: of the variable.
        combine: a C expression of ``{0}`` and ``{1}``.
    """
    across, down = int(config["across"]), int(config["down"])
    if down == 1:
        return []
    lines = [f"shared_{kind}[lid] = {name};", "barrier(CLK_LOCAL_MEM_FENCE);"]
    half = down // 2
    while half:
        value = combine.format(f"shared_{kind}[lid]", f"shared_{kind}[lid + {half * across}]")
        lines += [f"if (lane < {half}) shared_{kind}[lid] = {value};", "barrier(CLK_LOCAL_MEM_FENCE);"]
        half //= 2
    return [*lines, f"{name} = shared_{kind}[lid % {across}];", "barrier(CLK_LOCAL_MEM_FENCE);"]


def kernel(
    name: str,
    operation: Operation,
    shape: Rows,
    config: Config,
    body: Sequence[str],
    kind: str,
    declared: Sequence[str],
) -> Kernel:
    """The kernel; ``kind`` is the type of what lanes join."""
    items = int(config["across"]) * int(config["down"])
    lines = [f"__local {kind} shared_{kind}[{items}];"] if int(config["down"]) > 1 else []
    groups = -(-shape.rows // int(config["across"]))
    signature, _ = c.parameters(operation)
    size = 8 if kind in ("long", "ulong") else 4
    return _source.kernel(
        name, signature, [*lines, *body], ((groups * items,), (items,)), declared, items * size
    )


def configurations(shape: Rows, limits: Limits) -> Iterator[Config]:
    """Shapes of a work-group, best first: lanes along what is contiguous, no more than there is to do."""
    most = limits.work_group
    fitting = [pair for pair in _SHAPES if pair[0] * pair[1] <= most] or [(1, 1)]
    for across, down in sorted(fitting, key=lambda pair: _seconds(shape, pair[0], pair[1], limits)):
        yield {"across": across, "down": down}


def seconds(shape: Rows, config: Config, moved: float, limits: Limits) -> float:
    """Memory's time, slower where lanes do not read neighbours, plus a launch."""
    factor = _seconds(shape, int(config["across"]), int(config["down"]), limits)
    return _source.seconds(moved, shape.rows * int(config["down"]), limits) * factor


def _seconds(shape: Rows, across: int, down: int, limits: Limits) -> float:
    """How many times a perfect walk's time: bytes of a cache line that are not used, lanes without work."""
    walked = shape.views[0]
    row_step = walked.strides[shape.kept - 1] if shape.rows > 1 else 1 << 20
    walk_step = walked.strides[-1] if shape.length > 1 else 1 << 20
    lanes_rows, lanes_walk = min(across, shape.rows), min(down, shape.length)
    beside = max(lanes_rows if row_step == 1 else 1, lanes_walk if walk_step == 1 and (across == 1) else 1)
    used = min(1.0, beside * walked.itemsize / 64)
    idle = (across * down) / max(1, lanes_rows * lanes_walk)
    steps = -(-shape.length // down)
    rounding = steps * down / shape.length
    alone = 1.0 if shape.rows * down >= limits.wave * 4 * (limits.compute_units or 16) else 1.3
    return idle * rounding * alone / used + 0.02 * down.bit_length() + 0.1 * (across * down < limits.wave)
