"""A matrix product with its epilogue, as the templates put it: rows by columns by depth.

The views of everything that is added or stored lie over (batch..., rows..., columns), with axes merged where that is
the same walk through every buffer, so that a row's number is mostly its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import msgspec

from wavefit.native import space
from wavefit.native.opencl import c
from wavefit.native.opencl.kernels import _lanes, _source, _tiles
from wavefit.native.opencl.kernels._tiles import Arithmetic, Side, Tile
from wavefit.native.operation import (
    Buffer,
    Config,
    Implementation,
    Kernel,
    Launch,
    Operation,
    Packed,
    View,
)

BIAS = 2
"""The number of a convolution's bias among its inputs."""


@dataclass(frozen=True)
class Product:
    """What is computed.

    Args:
        operation: with its inputs from the bias on, and its output, over (batch..., rows..., columns).
        ranks: how many axes batch and rows have.
        depth: elements of a sum.
        bias: whether input 2 is added to the result before the epilogue.
        arithmetic: of its elements, which hold one depth or several.
        elements: along the depth, where they are not as many as depths.
        constant: a C expression of four numbers, of the accumulators' type, that are added at ``col``; "" for none.
        functions: of C, that the arithmetic and the loads call.
    """

    operation: Operation
    ranks: tuple[int, int]
    depth: int
    bias: bool = False
    arithmetic: Arithmetic = _tiles.FLOATS
    elements: int = 0
    constant: str = ""
    functions: tuple[str, ...] = ()

    @property
    def length(self) -> int:
        """Elements of a sum."""
        return self.elements or self.depth

    @property
    def shape(self) -> tuple[int, ...]:
        return self.operation.output.shape

    @property
    def batch_shape(self) -> tuple[int, ...]:
        return self.shape[: self.ranks[0]]

    @property
    def row_shape(self) -> tuple[int, ...]:
        return self.shape[self.ranks[0] : -1]

    @property
    def batch(self) -> int:
        return prod(self.batch_shape)

    @property
    def rows(self) -> int:
        return prod(self.row_shape)

    @property
    def columns(self) -> int:
        return self.shape[-1]

    @property
    def flops(self) -> int:
        return 2 * self.batch * self.rows * self.columns * self.depth


def names(prefix: str, rank: int) -> list[str]:
    return [f"{prefix}{axis}" for axis in range(rank)]


def over(view: View, product: Product, row: Sequence[str], column: str) -> str:
    """The place of an element of a view over (batch..., rows..., columns); batch coordinates are ``z0``..."""
    return c.index(view, [*names("z", product.ranks[0]), *row, column])


def implementation(
    template: str, product: Product, a: Side, b: Side, config: Config, packed: tuple[Packed, ...]
) -> Implementation:
    """The tiled kernels: one, or where the depth is split one that writes partial sums and one that adds them."""
    tile = _tiles.tile(config)
    made = (_whole if tile.split == 1 else _partial)(template, product, tile, a, b)
    return launched(template, product, made, config, packed)


def launched(
    template: str, product: Product, made: Kernel, config: Config, packed: tuple[Packed, ...]
) -> Implementation:
    """The kernel, and where the configuration splits the depth (``split``) the one that adds its partial sums."""
    operation, split = product.operation, int(config["split"])
    second = Buffer(kind="packed", index=0) if packed else Buffer(kind="input", index=1)
    factors = (Buffer(kind="input", index=0), second)
    later = [n for n in range(BIAS, len(operation.inputs)) if operation.inputs[n] is not None]
    others = tuple(Buffer(kind="input", index=n) for n in later)
    output = Buffer(kind="output", index=0)
    launches: tuple[Launch, ...] = (Launch(kernel=made, arguments=(*factors, *others, output)),)
    scratch: tuple[int, ...] = ()
    if split > 1:
        partial = Buffer(kind="scratch", index=0)
        launches = (
            Launch(kernel=made, arguments=(*factors, partial)),
            Launch(kernel=_sum(template, product, split), arguments=(*others, partial, output)),
        )
        scratch = (4 * split * product.batch * product.rows * pitch(product),)
    return Implementation(
        template=template,
        config=config,
        launches=launches,
        scratch=scratch,
        packed=packed,
        flops=product.flops,
        bytes=_source.traffic(operation),
    )


def pitch(product: Product) -> int:
    """Columns of a row of partial sums."""
    return -(-product.columns // 4) * 4


def _whole(template: str, product: Product, tile: Tile, a: Side, b: Side) -> Kernel:
    parameters, _ = c.parameters(product.operation)
    lines = [*_places(product, tile), *_tiles.body(tile, a, b, product.length, product.arithmetic)]
    for row, col, values in _tiles.results(tile):
        added, sums = _with_constant(product, values)
        body = [*added, *stored(product, sums)]
        lines += _tiles.guarded(product.rows, product.columns, tile, row, col, body)
    functions = [*product.functions, *_lanes.declared(product.operation)]
    return _kernel(template, product, tile, parameters, lines, functions)


def _partial(template: str, product: Product, tile: Tile, a: Side, b: Side) -> Kernel:
    lines = [*_places(product, tile), *_tiles.body(tile, a, b, product.length, product.arithmetic)]
    for row, col, values in _tiles.results(tile):
        added, sums = _with_constant(product, values, "part == 0")
        body = [*added, partly_stored(product, sums)]
        lines += _tiles.guarded(product.rows, pitch(product), tile, row, col, body)
    functions = list(product.functions)
    return _kernel(f"{template}_partial", product, tile, partial_parameters(product), lines, functions)


def _with_constant(product: Product, values: list[str], condition: str = "") -> tuple[list[str], list[str]]:
    """Four sums with the constant of their columns added, where the condition holds."""
    if not product.constant:
        return [], values
    kind = f"{product.arithmetic.sums}4"
    added = f"{condition} ? {product.constant} : ({kind})(0)" if condition else product.constant
    return [f"const {kind} added = {added};"], [
        f"({value} + added.s{lane})" for lane, value in enumerate(values)
    ]


def partial_parameters(product: Product) -> list[str]:
    """Of a kernel that writes partial sums: the factors, then where to."""
    kinds = [c.STORED[product.operation.input(number).dtype] for number in (0, 1)]
    factors = [f"__global const {kind} *in{number}" for number, kind in enumerate(kinds)]
    return [*factors, f"__global {product.arithmetic.sums} *partial"]


def partly_stored(product: Product, values: list[str]) -> str:
    """Stores the partial sums of four columns, at ``part``, ``batch``, ``row`` and ``col``."""
    at = f"((part * {product.batch} + batch) * {product.rows} + row) * {pitch(product)} + col"
    kind = f"{product.arithmetic.sums}4"
    return f"*(__global {kind} *)(partial + {at}) = ({kind})({', '.join(values)});"


def _sum(template: str, product: Product, split: int) -> Kernel:
    """Adds the partial sums of four columns, then does what comes after the product."""
    operation, width = product.operation, pitch(product)
    given = [number for number in range(BIAS, len(operation.inputs)) if operation.inputs[number] is not None]
    parameters = [f"__global const {c.STORED[operation.input(n).dtype]} *in{n}" for n in given]
    sums = product.arithmetic.sums
    parameters += [f"__global const {sums} *partial", f"__global {c.STORED[operation.output.dtype]} *out0"]
    quads = product.batch * product.rows * width // 4
    part = product.batch * product.rows * width
    lines = [
        f"const int quad = get_global_id(0); if (quad >= {quads}) return;",
        f"const int col = quad % {width // 4} * 4, line = quad / {width // 4};",
        f"const int row = line % {product.rows}, batch = line / {product.rows};",
        *batch(product),
        f"__global const {sums}4 *from = (__global const {sums}4 *)(partial + line * {width} + col);",
        f"{sums}4 sum = ({sums}4)(0);",
        f"for (int part = 0; part < {split}; part++) sum += from[part * {part // 4}];",
        *stored(product, [f"sum.s{lane}" for lane in range(4)]),
    ]
    items = 64
    text = _text(f"{template}_sum", parameters, lines, items, _lanes.declared(operation))
    rounded = -(-quads // items) * items
    return Kernel(name=f"{template}_sum", source=text, global_size=(rounded,), local_size=(items,))


def _places(product: Product, tile: Tile) -> list[str]:
    return [*_tiles.place(tile, product.rows, product.columns, product.batch), *batch(product)]


def batch(product: Product) -> list[str]:
    """Statements that split ``batch`` into its coordinates ``z0``..."""
    return c.split("batch", product.batch_shape, names("z", product.ranks[0]))


def stored(product: Product, values: list[str]) -> list[str]:
    """Bias, epilogue and store of four lanes at ``row`` and ``col``."""
    if product.arithmetic.sums != "float":
        values = [f"(float)({value})" for value in values]
    rows = names("r", product.ranks[1])
    axes = [*names("z", product.ranks[0]), *rows]
    lines = c.split("row", product.row_shape, rows)
    if product.columns % 4 == 0:
        return [*lines, *_emitted(product, values, [*axes, "col"])]
    for lane, value in enumerate(values):
        body = _emitted(product, [value], [*axes, f"(col + {lane})"], f"v{lane}_")
        lines += [f"if (col + {lane} < {product.columns}) {{", *body, "}"]
    return lines


def _emitted(product: Product, values: list[str], axes: list[str], scope: str = "v") -> list[str]:
    if not product.bias:
        return _lanes.emitted(product.operation, values, axes, scope)
    view = product.operation.input(BIAS)
    lines, added = _lanes.load(view, f"in{BIAS}", axes, len(values), f"{scope}bias")
    sums = [f"({value} + {one})" for value, one in zip(values, added, strict=True)]
    return [*lines, *_lanes.emitted(product.operation, sums, axes, scope)]


def _kernel(
    name: str, product: Product, tile: Tile, parameters: list[str], lines: list[str], declared: list[str]
) -> Kernel:
    groups = _tiles.groups(tile, product.rows, product.columns, product.batch)
    return Kernel(
        name=name,
        source=_text(name, parameters, lines, tile.items, declared),
        global_size=(groups * tile.items,),
        local_size=(tile.items,),
        local_bytes=tile.local_bytes,
        registers=tile.registers(product.arithmetic),
    )


def _text(name: str, parameters: list[str], lines: list[str], items: int, declared: list[str]) -> str:
    head = f"__kernel __attribute__((reqd_work_group_size({items}, 1, 1)))\nvoid {name}({', '.join(parameters)})\n{{"
    return "\n".join([*declared, head, *(f"  {line}" for line in lines), "}", ""])


def arranged(
    operation: Operation,
    groups: Sequence[Sequence[int]],
    factors: Sequence[View],
    depth: int,
    bias: View | None = None,
) -> tuple[Product, list[View]]:
    """The product over merged axes, and views of the factors over the same axes.

    Args:
        operation: its output's axes are those that ``groups`` numbers.
        groups: axes of batch, rows and columns.
        factors: views of the output's shape with stride 0 where a factor does not change.
        depth: elements of a sum.
        bias: of a convolution, broadcasting to the output.
    """
    shape = operation.output.shape
    later = [view for view in operation.inputs[operation.own :] if view is not None]
    extra = [] if bias is None else [bias]
    views = [operation.output, *(space.over(view, shape) for view in (*extra, *later)), *factors]
    laid, ranks = space.arranged(views, groups)
    rest = iter(laid[1:])
    inputs = list(operation.inputs)
    if bias is not None:
        inputs[BIAS] = next(rest)
    for number in range(operation.own, len(inputs)):
        inputs[number] = next(rest)
    made = msgspec.structs.replace(operation, inputs=tuple(inputs), outputs=(laid[0],))
    return Product(made, (ranks[0], ranks[1]), depth, bias is not None), list(rest)


def matrix(product: Product, name: str, view: View, step: int, pointer: str) -> Side:
    """A factor that is a matrix in memory.

    Args:
        product: what is computed.
        name: "a": rows by depth; "b": columns by depth.
        view: over (batch..., rows..., columns), of the factor's first depth.
        step: elements from one depth to the next.
        pointer: the buffer.
    """
    rank = product.ranks[1]
    size = product.rows if name == "a" else product.columns
    side_axis = -2 if name == "a" else -1
    single = name == "b" or rank == 1
    along, width = _reading(view, side_axis, step, size, product.depth, single)
    fixed = [
        s
        for axis, (n, s) in enumerate(zip(view.shape, view.strides, strict=True))
        if n > 1 and s != 0 and not (along == "side" and axis == len(view.shape) + side_axis)
    ]
    less = int(product.operation.attributes.get("zero_point", 0)) if name == "a" else 0
    even = all(each % width == 0 for each in (*fixed, view.offset, *(() if along == "depth" else (step,))))

    def setup(i: int, side: str) -> list[str]:
        rows = names(f"{name}q{i}_", rank)
        lines = c.split(side, product.row_shape, rows) if name == "a" else []
        row, column = (rows, "0") if name == "a" else (["0"] * rank, side)
        return [*lines, f"const int {name}at{i} = {over(view, product, row, column)};"]

    return Side(
        name="a" if name == "a" else "b",
        along="depth" if along == "depth" else "side",
        width=width,
        size=size,
        setup=setup,
        at=lambda i, k: [],
        place=lambda i, k: f"{name}at{i} + {k} * {step}" if step != 1 else f"{name}at{i} + {k}",
        valid=lambda i: "",
        load=lambda at, i: c.load_factor(view.dtype, pointer, at, width, even and width > 1, less),
        zero=product.arithmetic.zero,
    )


def _reading(view: View, axis: int, step: int, size: int, depth: int, single: bool) -> tuple[str, int]:
    """Along which index neighbours lie, and how many are loaded at once."""
    if step == 1 or (size > 1 and view.strides[axis] != 1):
        return "depth", 4 if step == 1 and depth % 4 == 0 else 1
    return "side", 4 if single and size % 4 == 0 else 1
