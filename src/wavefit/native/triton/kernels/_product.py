"""The tiled matrix product that GEMM and implicit-GEMM convolution share.

A program computes a tile of m rows by n columns in steps of k along the depth by ``tl.dot``, on matrix units, adds up
in float32 (or int32), and applies the epilogue before the tile is stored. With ``split`` > 1 several programs share a
tile's depth: each leaves its sums in scratch memory, and the last one to arrive adds them up, always in the same order,
so that answers do not depend on who comes when.

The second factor, where it is constant, is packed as (columns, depth): both factors lie along the depth in memory, as
matrix units of every maker read them fastest, and rows are padded with zeros to whole steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace

from wavefit.native import space
from wavefit.native.operation import Buffer, Config, Implementation, Kernel, Launch, Operation, Packed, View
from wavefit.native.triton import text
from wavefit.native.triton.text import Axis

BYTES = ("int8", "uint8")


@dataclass(frozen=True)
class Tile:
    """What is tuned.

    Args:
        m, n, k: of a program's tile, and of a step.
        split: programs that share a tile's depth.
        warps: waves of a program.
        stages: steps whose loads are under way at once.
        more: options of the target's compiler: waves_per_eu, matrix_instr_nonkdim, kpack.
    """

    m: int
    n: int
    k: int
    split: int = 1
    warps: int = 4
    stages: int = 3
    more: tuple[tuple[str, int], ...] = ()

    @property
    def options(self) -> dict[str, int]:
        return {"num_warps": self.warps, "num_stages": self.stages, **dict(self.more)}


_OWN = ("m", "n", "k", "split", "warps", "stages")


def tile(config: Config) -> Tile:
    known = {name: int(config[name]) for name in _OWN}
    more = tuple((name, int(value)) for name, value in config.items() if name not in _OWN)
    return Tile(**known, more=more)


def config(each: Tile) -> Config:
    return {**{name: getattr(each, name) for name in _OWN}, **dict(each.more)}


@dataclass(frozen=True)
class Side:
    """How a factor is loaded.

    Args:
        setup: statements before the loop; they may use ``m``/``n`` (the tile's rows and columns, held inside), ``k``
            (0 to the step's depth) and ``z`` (the batch).
        step: statements of one step, of ``step`` (its number); they end in an assignment to ``a`` or ``b``.
    """

    setup: tuple[str, ...]
    step: tuple[str, ...]


@dataclass(frozen=True)
class Product:
    """What is computed, for code.

    Args:
        operation: for its epilogue and types.
        rows, columns: of one product.
        steps: of k along the depth, by the tile.
        depth: of one product, for FLOPs.
        batch: products.
        views: the output, then the epilogue's operands, over (batch axes, row axes, columns).
        ranks: how many axes each of these three has.
        bias: whether input 2 is added per column.
        packed: what input 1 is packed by; empty: it is read as it lies.
        zero_point: of the first factor.
    """

    operation: Operation
    rows: int
    columns: int
    depth: int
    batch: int
    views: tuple[View, ...]
    ranks: tuple[int, ...]
    bias: bool = False
    packed: str = ""
    zero_point: int = 0

    @property
    def small(self) -> bool:
        return self.operation.input(0).dtype in BYTES

    @property
    def flops(self) -> int:
        return 2 * self.batch * self.rows * self.columns * self.depth


def arranged(
    operation: Operation, groups: Sequence[Sequence[int]], sides: Sequence[View] = ()
) -> tuple[tuple[View, ...], tuple[int, ...], tuple[View, ...]]:
    """The output and the epilogue's operands, and further views of the output's shape, with their axes merged."""
    spread = space.spread(operation)
    own = [view for view in spread.inputs[spread.own :] if view is not None]
    views, ranks = space.arranged([spread.output, *own, *sides], groups)
    return tuple(views[: 1 + len(own)]), tuple(ranks), tuple(views[1 + len(own) :])


def names(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]


def implementation(
    template: str,
    product: Product,
    a: Side,
    b: Side,
    each: Tile,
    settings: Config,
    steps: int,
    image: tuple[Kernel, int] | None = None,
) -> Implementation:
    """The kernel of a tile.

    Args:
        template: the file's name.
        product: what is computed.
        a, b: how the factors are loaded.
        each: the tile.
        settings: the configuration that it comes from.
        steps: of the whole depth.
        image: a kernel of (in0, image) that lays the first factor out in scratch memory, and the bytes of that; ``a``
            then loads from ``image``.
    """
    operation = product.operation
    down, across = -(-product.rows // each.m), -(-product.columns // each.n)
    parameters, buffers = text.parameters(operation)
    if product.packed:
        buffers = [Buffer(kind="packed") if (one.kind, one.index) == ("input", 1) else one for one in buffers]
    packed = [product.packed] if product.packed else []
    if _corrected(product):
        parameters.append(("sums", "int32"))
        buffers.append(Buffer(kind="packed", index=len(packed)))
        packed.append("sums")
    scratch: tuple[int, ...] = ()
    if each.split > 1:
        scratch = (4 * each.split * product.batch * down * across * each.m * each.n,)
        parameters += [("partial", "int32" if product.small else "float32"), ("counters", "int32")]
        buffers += [Buffer(kind="scratch"), Buffer(kind="counter")]
    first: tuple[Launch, ...] = ()
    if image is not None:
        laid = Buffer(kind="scratch", index=len(scratch))
        parameters.append(("image", kind(operation)))
        buffers.append(laid)
        scratch += (image[1],)
        first = (Launch(kernel=image[0], arguments=(Buffer(kind="input"), laid)),)
    body = _body(product, a, b, each, steps, (down, across))
    grid = (down * across, each.split * product.batch)
    made = text.kernel(template, parameters, body, grid, each.options)
    return Implementation(
        template=template,
        config=settings,
        launches=(*first, Launch(kernel=made, arguments=tuple(buffers))),
        scratch=scratch,
        packed=tuple(Packed(input=1, how=how) for how in packed),
        counters=down * across * product.batch if each.split > 1 else 0,
        flops=product.flops,
        bytes=text.traffic(operation),
    )


def _body(product: Product, a: Side, b: Side, each: Tile, steps: int, tiles: tuple[int, int]) -> list[str]:
    down, across = tiles
    total = "int32" if product.small else "float32"
    lines = [
        "pid = tl.program_id(0)",
        f"pn = pid % {across}" if across > 1 else "pn = 0",
        f"pm = pid // {across}" if across > 1 else "pm = pid",
        "z = tl.program_id(1)",
    ]
    if each.split > 1:
        lines += [f"part = z % {each.split}", f"z = z // {each.split}"]
    lines += [
        f"rows = pm * {each.m} + tl.arange(0, {each.m})",
        f"columns = pn * {each.n} + tl.arange(0, {each.n})",
        "m = rows" if product.rows % each.m == 0 else f"m = tl.minimum(rows, {product.rows - 1})",
        "n = columns" if product.columns % each.n == 0 else f"n = tl.minimum(columns, {product.columns - 1})",
        f"k = tl.arange(0, {each.k})",
        *a.setup,
        *b.setup,
        f"sum = tl.zeros(({each.m}, {each.n}), tl.{total})",
    ]
    lines += [_loop(steps, each.split)]
    lines += [f"    {line}" for line in (*a.step, *b.step, _dot(product))]
    if each.split == 1:
        return [*lines, *_finish(product, each)]
    return [*lines, *_join(product, each, down * across)]


def _loop(steps: int, split: int) -> str:
    if split == 1:
        return f"for step in range(0, {steps}):"
    share = -(-steps // split)
    last = (
        f"tl.minimum(part * {share} + {share}, {steps})"
        if share * split != steps
        else f"part * {share} + {share}"
    )
    return f"for step in range(part * {share}, {last}):"


def _dot(product: Product) -> str:
    if product.small:
        return "sum = tl.dot(a, b, sum, out_dtype=tl.int32)"
    if kind(product.operation) == "float32":
        return 'sum = tl.dot(a, b, sum, input_precision="ieee")'
    return "sum = tl.dot(a, b, sum)"


def _join(product: Product, each: Tile, tiles: int) -> list[str]:
    """Partial sums stored, counted, and added up by the last program of a tile."""
    size = each.m * each.n
    return [
        f"place = tl.arange(0, {each.m})[:, None] * {each.n} + tl.arange(0, {each.n})[None, :]",
        f"own = (z * {tiles} + pid) * {each.split * size}",
        f"tl.store(partial + own + part * {size} + place, sum)",
        "tl.debug_barrier()",
        f'arrived = tl.atomic_add(counters + z * {tiles} + pid, 1, sem="acq_rel")',
        f"if arrived == {each.split - 1}:",
        "    sum = tl.load(partial + own + place, cache_modifier='.cg')",
        f"    for other in range(1, {each.split}):",
        f"        sum += tl.load(partial + own + other * {size} + place, cache_modifier='.cg')",
        *(f"    {line}" for line in _finish(product, each)),
        f"    tl.store(counters + z * {tiles} + pid, 0)",
    ]


def _finish(product: Product, each: Tile) -> list[str]:
    """The epilogue, and the store."""
    operation = product.operation
    row_mask = None if product.rows % each.m == 0 else "row_inside"
    column_mask = None if product.columns % each.n == 0 else "column_inside"
    batch, row, column = (
        names(prefix, count) for prefix, count in zip(("z", "r", "c"), product.ranks, strict=True)
    )
    output = product.views[0]
    shape = output.shape
    first, second = product.ranks[0], product.ranks[0] + product.ranks[1]
    lines = []
    if row_mask:
        lines.append(f"row_inside = (rows < {product.rows})[:, None]")
    if column_mask:
        lines.append(f"column_inside = (columns < {product.columns})[None, :]")
    lines += text.split("z", shape[:first], batch)
    lines += text.split("m[:, None]", shape[first:second], row)
    lines += text.split("n[None, :]", shape[second:], column)
    axes = [
        *(Axis(name) for name in batch),
        *(Axis(name, row_mask) for name in row),
        *(Axis(name, column_mask) for name in column),
    ]
    lines.append("result = sum" + ".to(tl.float32)" * (product.small and not _corrected(product)))
    if _corrected(product):
        lines.append(f"result = (sum - tl.load(sums + {_place(product)})[None, :]).to(tl.float32)")
    if product.bias:
        bias = operation.input(2)
        loaded = text.register_of(
            bias.dtype, f"tl.load(in2 + {bias.offset} + ({_place(product)}) * {bias.strides[0]})"
        )
        lines.append(f"result = result + {loaded}[None, :]")
    laid = replace(
        operation,
        inputs=(*operation.inputs[: operation.own], *product.views[1:]),
        outputs=(output,),
    )
    more, name = text.epilogue(laid, "result", axes)
    thin = min(product.rows, product.columns) == 1
    spread = f"({each.m}, {each.n})" if thin else ""
    return [*lines, *more, text.store(output, "out0", axes, name, spread=spread)]


def _place(product: Product) -> str:
    """Of a column, among those of all products."""
    return f"z * {product.columns} + n" if product.batch > 1 else "n"


def _corrected(product: Product) -> bool:
    return product.small and (bool(product.zero_point) or product.operation.input(0).dtype == "uint8")


def sums(weights: np.ndarray, zero_point: int, dtype: str) -> np.ndarray:
    """What the input's zero point adds to each column: the kernels read uint8 less 128, as int8.

    Args:
        weights: (columns, depth).
        zero_point: of the input.
        dtype: of the input.
    """
    point = zero_point - 128 if dtype == "uint8" else zero_point
    return np.asarray(weights.astype(np.int64).reshape(len(weights), -1).sum(1) * point).astype(np.int32)


def multiplies(first: str, second: str) -> bool:
    """Whether ``tl.dot`` takes them: small integers with int8, or floats; unlike ones meet in the smaller type."""
    if first in BYTES:
        return second == "int8"
    return first in text.FLOATS and second in text.FLOATS


def kind(operation: Operation) -> str:
    """The type in which an operation's factors are multiplied."""
    first, second = operation.input(0).dtype, operation.input(1).dtype
    if first in BYTES:
        return "int8"
    return first if first != "float32" else second


def factor(dtype: str, wanted: str, value: str) -> str:
    """A loaded factor in the type in which it is multiplied: of uint8, 128 is taken away."""
    if dtype == "uint8":
        return f"({value} ^ 128).to(tl.int8, bitcast=True)"
    return value if dtype == wanted else f"{value}.to(tl.{wanted})"
