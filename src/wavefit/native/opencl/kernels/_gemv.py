"""The kernel of a product of a few rows, as C text; see :mod:`gemv`.

A work-item makes 4 columns of every row. It walks the depth 4 elements at a time: 16 of the second factor, loaded as
four float4 that do not wait for each other, along the columns or along the depth as the factor lies (a Linear layer's
weights of PyTorch lie along the depth). Neighbours read neighbours. ``down`` work-items share a depth and add up in
local memory; ``split`` work-groups share it where there are too few columns to fill the device.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product as product_of

import msgspec

from wavefit.native.opencl import c
from wavefit.native.opencl.kernels import _lanes, _product, _source
from wavefit.native.opencl.kernels._product import Product
from wavefit.native.operation import Kernel, View

_SUMS_BYTES = 8192  # of local memory for what work-items of one column add up


@dataclass(frozen=True)
class Factors:
    """The product, its factors over (batch..., rows..., columns), and the steps from depth to depth."""

    product: Product
    a: View
    b: View
    steps: tuple[int, int]

    @property
    def along(self) -> str:
        """Where neighbours of the second factor lie: "columns" or "depth"."""
        return "columns" if self.b.strides[-1] == 1 and self.steps[1] != 1 else "depth"


@dataclass(frozen=True)
class Shape:
    """Of a work-group: ``across`` by ``down`` work-items, those along the contiguous axis side by side."""

    factors: Factors
    across: int
    down: int
    split: int
    unroll: int

    @property
    def items(self) -> int:
        return self.across * self.down

    @property
    def quads(self) -> int:
        """Whole steps of 4 along the depth."""
        return self.factors.product.depth // 4

    @property
    def across_groups(self) -> int:
        return -(-self.factors.product.columns // (4 * self.across))

    @property
    def groups(self) -> int:
        return self.across_groups * self.split * self.factors.product.batch

    @property
    def at_once(self) -> int:
        """Rows that are added up together in local memory; with 4, 16 waves of 64 fit the 64 KiB of a CU."""
        return min(self.factors.product.rows, self.down, 4, max(1, _SUMS_BYTES // (16 * self.items)))

    @property
    def local_bytes(self) -> int:
        return 16 * self.items * self.at_once if self.down > 1 else 0

    @property
    def registers(self) -> int:
        """Accumulators, the pieces on their way, places: what clang makes for gfx90c, gfx1103 and gfx90a, or more."""
        rows = self.factors.product.rows
        places = 0 if self.wide or self.factors.along == "depth" else 20
        return 4 * rows + self.unroll * (16 + 4 * min(rows, 4) + places) + 2 * rows + 20

    @property
    def wide(self) -> bool:
        """Whether 4 columns are loaded at once."""
        return self.factors.along == "columns" and self.factors.product.columns % 4 == 0

    @property
    def sensible(self) -> bool:
        """Whether neighbours read whole cache lines, and there is work for most."""
        beside = self.across >= 8 if self.factors.along == "columns" else self.down >= 16
        wide = self.across == 1 or 4 * self.across < 2 * self.factors.product.columns
        deep = self.split == 1 or self.quads >= 2 * self.down * self.split
        return beside and wide and deep and self.unroll <= max(1, self.quads // (self.down * self.split))


def kernel(shape: Shape) -> Kernel:
    product = shape.factors.product
    partial = shape.split > 1
    signature = _product.partial_parameters(product) if partial else c.parameters(product.operation)[0]
    lines = [*_places(shape), *_walk(shape), *_tail(shape), *_results(shape)]
    sizes = ((shape.groups * shape.items,), (shape.items,))
    declared = [] if partial else _lanes.declared(product.operation)
    made = _source.kernel("gemv", signature, lines, sizes, declared, shape.local_bytes)
    return msgspec.structs.replace(made, registers=shape.registers)


def _places(shape: Shape) -> list[str]:
    """Which columns and part of the depth, and where the factors begin."""
    factors, product, groups = shape.factors, shape.factors.product, shape.across_groups
    lanes = (
        (f"lid % {shape.across}", f"lid / {shape.across}")
        if factors.along == "columns"
        else (f"lid / {shape.down}", f"lid % {shape.down}")
    )
    none = ["0"] * product.ranks[1]
    return [
        "const int lid = get_local_id(0), group = get_group_id(0);",
        f"const int tx = {lanes[0]}, ty = {lanes[1]};",
        f"const int first = group % {groups} * {4 * shape.across};",
        f"const int part = group / {groups} % {shape.split}, batch = group / {groups * shape.split};",
        *_product.batch(product),
        *(f"const int a{m} = {place};" for m, place in enumerate(_rows(factors))),
        *_columns(shape, _product.over(factors.b, product, none, "0")),
        *(f"float4 c{m} = (float4)(0.0f);" for m in range(product.rows)),
    ]


def _rows(factors: Factors) -> list[str]:
    """Where each row of the first factor begins."""
    product, places = factors.product, []
    for row in range(product.rows):
        at, coordinates = row, []
        for size in reversed(product.row_shape):
            at, coordinate = divmod(at, size)
            coordinates.append(str(coordinate))
        places.append(_product.over(factors.a, product, coordinates[::-1], "0"))
    return places


def _columns(shape: Shape, start: str) -> list[str]:
    """Where the columns of a work-item begin, held to those there are: what is computed twice is not stored."""
    columns, stride = shape.factors.product.columns, shape.factors.b.strides[-1]
    ragged = columns % (4 * shape.across) != 0

    def held(lane: int, last: int) -> str:
        column = f"first + tx * 4 + {lane}"
        return f"min({column}, {last})" if ragged else column

    if shape.wide:
        return [f"const int b = {start} + {held(0, columns - 4)};"]
    return [f"const int b{j} = {start} + ({held(j, columns - 1)}) * {stride};" for j in range(4)]


def _walk(shape: Shape) -> list[str]:
    """The depth's whole steps: as often as all work-items have one, then once more for some."""
    together = shape.down * shape.split
    times, left = divmod(shape.quads, together)
    at = f"(i * {together} + part * {shape.down} + ty) * 4"
    lines = []
    if times:
        lines += [
            f"#pragma unroll {shape.unroll}",
            f"for (int i = 0; i < {times}; i++) {{",
            f"const int k = {at};",
            *_step(shape),
            "}",
        ]
    if left:
        lines += [
            f"if (part * {shape.down} + ty < {left}) {{",
            f"const int i = {times}, k = {at};",
            *_step(shape),
            "}",
        ]
    return lines


def _step(shape: Shape) -> list[str]:
    """4 columns by 4 depths of the second factor, times 4 depths of every row."""
    factors, rows = shape.factors, range(shape.factors.product.rows)
    lines = [f"const float4 q{j} = {_quad(shape, j)};" for j in range(4)]
    lines += [f"const float4 p{m} = {_four(factors.a, 'in0', f'a{m}', factors.steps[0])};" for m in rows]
    for m, s in product_of(rows, range(4)):
        if factors.along == "columns":
            lines.append(f"c{m} = fma((float4)(p{m}.s{s}), q{s}, c{m});")
        else:
            lines += [f"c{m}.s{j} = fma(p{m}.s{s}, q{j}.s{s}, c{m}.s{j});" for j in range(4)]
    return lines


def _quad(shape: Shape, j: int) -> str:
    """4 columns at depth ``k + j``, or 4 depths of column ``j``."""
    factors = shape.factors
    if factors.along == "depth":
        return _four(factors.b, "in1", f"b{j}", factors.steps[1])
    at = f"(k + {j}) * {factors.steps[1]}"
    if shape.wide:
        even = factors.steps[1] % 4 == 0 and _even(factors.b, -1)
        return c.load_vector(factors.b.dtype, "in1", f"b + {at}", 4, even)
    return f"(float4)({', '.join(c.load(factors.b.dtype, 'in1', f'b{i} + {at}') for i in range(4))})"


def _four(view: View, pointer: str, start: str, step: int) -> str:
    """4 elements along the depth, from ``k`` on."""
    if step == 1:
        return c.load_vector(view.dtype, pointer, f"{start} + k", 4, _even(view))
    places = (f"{start} + (k + {s}) * {step}" for s in range(4))
    return f"(float4)({', '.join(c.load(view.dtype, pointer, place) for place in places)})"


def _even(view: View, but: int | None = None) -> bool:
    """Whether every stride is a multiple of 4, of all axes but one."""
    strides = list(view.strides[:but]) if but else list(view.strides)
    return all(each % 4 == 0 for each in (*strides, view.offset))


def _tail(shape: Shape) -> list[str]:
    """What is left of the depth, less than 4."""
    factors, depth = shape.factors, shape.factors.product.depth
    if depth % 4 == 0:
        return []
    lines = []
    for k in range(depth - depth % 4, depth):
        at = k * factors.steps[1]
        places = [f"b + {j} + {at}" if shape.wide else f"b{j} + {at}" for j in range(4)]
        column = ", ".join(c.load(factors.b.dtype, "in1", place) for place in places)
        lines += ["{", f"const float4 q = (float4)({column});"]
        for m in range(factors.product.rows):
            value = c.load(factors.a.dtype, "in0", f"a{m} + {k * factors.steps[0]}")
            lines.append(f"c{m} = fma((float4)({value}), q, c{m});")
        lines.append("}")
    return ["if (part == 0 && ty == 0) {", *lines, "}"]


def _results(shape: Shape) -> list[str]:
    rows = range(shape.factors.product.rows)
    if shape.down == 1:
        lines = ["const int col = first + tx * 4;"]
        for m in rows:
            lines += ["{", f"const int row = {m};", *_put(shape, f"c{m}"), "}"]
        return lines
    lines = [f"__local float4 sums[{shape.items * shape.at_once}];"]
    for begin in range(0, len(rows), shape.at_once):
        some = list(rows[begin : begin + shape.at_once])
        lines += [*(["barrier(CLK_LOCAL_MEM_FENCE);"] if begin else []), *_added(shape, some)]
    return lines


def _added(shape: Shape, rows: list[int]) -> list[str]:
    """Sums of the ``down`` work-items of a column, in halves down to 8, which one work-item a row adds and stores."""
    items, left = shape.items, shape.down
    apart = shape.across if shape.factors.along == "columns" else 1
    lines = [f"sums[lid + {n * items}] = c{m};" for n, m in enumerate(rows)]
    while left > 8 and left % 2 == 0:
        left //= 2
        halves = [
            f"sums[lid + {n * items}] += sums[lid + {n * items + left * apart}];" for n in range(len(rows))
        ]
        lines += ["barrier(CLK_LOCAL_MEM_FENCE);", f"if (ty < {left}) {{", *halves, "}"]
    start = "lane" if apart > 1 else f"lane * {shape.down}"
    return [
        *lines,
        "barrier(CLK_LOCAL_MEM_FENCE);",
        f"if (lid < {len(rows) * shape.across}) {{",
        f"const int lane = lid % {shape.across}, nth = lid / {shape.across};",
        f"const int row = {rows[0]} + nth, col = first + lane * 4;",
        f"__local const float4 *from = sums + nth * {items} + {start};",
        "float4 sum = from[0];",
        *(f"sum += from[{t * apart}];" for t in range(1, left)),
        *_put(shape, "sum"),
        "}",
    ]


def _put(shape: Shape, vector: str) -> list[str]:
    """The end of 4 columns of a row, if there are such columns."""
    product = shape.factors.product
    values = [f"{vector}.s{lane}" for lane in range(4)]
    lines = [_product.partly_stored(product, values)] if shape.split > 1 else _product.stored(product, values)
    guarded = product.columns % (4 * shape.across) != 0
    return [f"if (col < {product.columns}) {{", *lines, "}"] if guarded else lines
