"""A tiled matrix product as C text: what GEMM, batched GEMM and implicit-GEMM convolution share.

A work-group makes ``tile_m`` rows by ``tile_n`` columns, a work-item ``item_m`` by ``item_n`` of them in registers. The
depth is walked in steps of ``tile_k``: both operands' pieces go from memory to registers, then to local memory, while
the piece before is multiplied (two local buffers, one barrier a step). A work-item's rows lie in strips of 4 that are
far apart, so that neighbours read neighbouring local memory; 32 lanes stand 4 by 8 where the tile allows, so that they
share what they read. Compare NVIDIA's CUTLASS ("Efficient GEMM in CUDA"); bounds: Lai and Seznec, CGO 2013.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from wavefit.native.operation import Config

_PAD = 4  # elements that a transposed row of local memory is longer, against bank conflicts; keeps vectors aligned


@dataclass(frozen=True)
class Arithmetic:
    """How elements of the tile are held and multiplied. An element is 32 bits: one float, or several narrower depths.

    Args:
        held: the type of an element in local memory, "float" or "uint".
        sums: the type of an accumulator, "float" or "int".
        product: the statement that adds products to four accumulators ``{c}``, of element ``{f}`` and vector ``{g}``.
        begin: a statement before a step's products, for each ``{c}``; "" for none.
        end: a statement after them.
        registers: 32-bit registers of an accumulator.
        instructions: of a product of two elements, added up.
        ending: instructions that an accumulator takes after a step's products.
        most_elements: of a step; 0: any number.
    """

    held: str
    sums: str
    product: str
    begin: str = ""
    end: str = ""
    registers: float = 1
    instructions: float = 1
    ending: float = 0
    most_elements: int = 0

    @property
    def zero(self) -> str:
        """An element of nothing."""
        return "0.0f" if self.held == "float" else "0"


FLOATS = Arithmetic(held="float", sums="float", product="{c} = fma((float4)({f}), {g}, {c});")

INTEGERS = Arithmetic(held="int", sums="int", product="{c} = mad24((int4)({f}), {g}, {c});")
"""Small integers, one an element, added up in 32 bits as ONNX has it: exact where floats end at 2^24.

On AMD's GPUs as fast as floats (v_mad_i32_i24).
"""


def plain(dtype: str) -> Arithmetic:
    """Of one depth an element, by the factors' type in memory."""
    return INTEGERS if dtype in ("int8", "uint8") else FLOATS


@dataclass(frozen=True)
class Tile:
    """The tuned sizes."""

    m: int
    n: int
    k: int
    item_m: int
    item_n: int
    split: int = 1
    """Work-groups that share one tile, each with a part of the depth."""
    unroll: int = 16
    """Steps of the inner loop that are written out: all on NVIDIA; LLVM for AMD then holds too much in registers."""

    @property
    def items(self) -> int:
        """Work-items of a work-group."""
        return (self.m // self.item_m) * (self.n // self.item_n)

    @property
    def local_bytes(self) -> int:
        return 2 * self.k * (self.m + self.n + 2 * _PAD) * 4

    def registers(self, arithmetic: Arithmetic = FLOATS, widths: tuple[int, int] = (4, 4)) -> int:
        """Registers that a work-item holds, fitted to what clang makes for gfx906, gfx1103 and gfx942.

        Accumulators, the pieces on their way, fragments of the steps that are written out, places of the loads.
        """
        pieces = self.k * (self.m + self.n) // self.items
        steps = self.unroll if self.unroll <= 4 else 2
        loads = [
            -(-self.k * side // width // self.items)
            for side, width in zip((self.m, self.n), widths, strict=True)
        ]
        fragments = 3 * (self.item_m + self.item_n) * steps // 4
        sums = int(self.item_m * self.item_n * arithmetic.registers)
        alone = 3 * loads[0] if widths[0] == 1 else 0  # addresses of elements that lie apart, 64 bits each
        return sums + pieces + fragments + 4 * loads[0] + 2 * loads[1] + alone + 18


_KEYS = ("tile_m", "tile_n", "tile_k", "item_m", "item_n", "split", "unroll")


def tile(config: Config) -> Tile:
    return Tile(*(int(config[name]) for name in _KEYS))


def config(tile: Tile) -> Config:
    return {
        "tile_m": tile.m,
        "tile_n": tile.n,
        "tile_k": tile.k,
        "item_m": tile.item_m,
        "item_n": tile.item_n,
        "split": tile.split,
        "unroll": tile.unroll,
    }


@dataclass(frozen=True)
class Side:
    """One operand of the product, seen by the loader.

    Args:
        name: "a" (its side is rows) or "b" (columns).
        along: which index runs over neighbouring elements in memory.
        width: elements of a load, 1 or 4.
        size: rows or columns there are.
        setup: statements for load number ``i``, whose row (or column) is the variable named.
        at: statements for load ``i`` at the depth of the variable named; they may define what ``place`` and ``valid``
            use.
        place: the element to load, a C expression.
        valid: a condition without which zeros stand for what is loaded, "" where there is none.
        load: the expression that loads ``width`` elements at a place, for load number ``i``.
        zero: the element that stands for what is not there.
    """

    name: Literal["a", "b"]
    along: Literal["depth", "side"]
    width: int
    size: int
    setup: Callable[[int, str], list[str]]
    at: Callable[[int, str], list[str]]
    place: Callable[[int, str], str]
    valid: Callable[[int], str]
    load: Callable[[str, int], str]
    zero: str = "0.0f"


def fits(tile: Tile, widths: tuple[int, int]) -> bool:
    """Whether loads of those widths divide the pieces, and no work-item is idle for most of them."""
    for width, side in zip(widths, (tile.m, tile.n), strict=True):
        if side % width or tile.k % width:
            return False
    return tile.k * (tile.m + tile.n) >= 2 * tile.items


def body(tile: Tile, a: Side, b: Side, depth: int, arithmetic: Arithmetic = FLOATS) -> list[str]:
    """Statements from the tile's place to the finished accumulators; ``depth`` counts elements.

    They expect ``row0``, ``col0`` (the tile's first row and column) and ``part`` (of the split depth), and leave
    ``ROWS`` strips by ``COLS`` strips of accumulators; see :func:`results`.
    """
    steps = -(-depth // tile.k)
    each = -(-steps // tile.split)
    held, sums = arithmetic.held, arithmetic.sums
    lines = [
        "const int lid = get_local_id(0);",
        *_positions(tile),
        f"__local __attribute__((aligned(16))) {held} as[{2 * tile.k * (tile.m + _PAD)}];",
        f"__local __attribute__((aligned(16))) {held} bs[{2 * tile.k * (tile.n + _PAD)}];",
        *_prepare(tile, a, held),
        *_prepare(tile, b, held),
        *(f"{sums}4 {name} = ({sums}4)(0);" for name in _accumulators(tile)),
        f"int kt = part * {each * tile.k};" if tile.split > 1 else "int kt = 0;",
        f"const int end = min(kt + {each * tile.k}, {steps * tile.k});"
        if tile.split > 1
        else f"const int end = {steps * tile.k};",
        "int cur = 0;",
        "if (kt < end) {" if tile.split > 1 else "{",
        *_fetch(tile, a, depth, held),
        *_fetch(tile, b, depth, held),
        *_stash(tile, a, "0", held),
        *_stash(tile, b, "0", held),
        "}",
        "barrier(CLK_LOCAL_MEM_FENCE);",
        "__attribute__((opencl_unroll_hint(1)))",  # LLVM unrolls short depths whole, and spills on AMD
        f"for (kt += {tile.k}; kt < end; kt += {tile.k}) {{",
        *_fetch(tile, a, depth, held),
        *_fetch(tile, b, depth, held),
        *_multiply(tile, arithmetic),
        *_stash(tile, a, "(1 - cur)", held),
        *_stash(tile, b, "(1 - cur)", held),
        "cur = 1 - cur;",
        "barrier(CLK_LOCAL_MEM_FENCE);",
        "}",
    ]
    last = _multiply(tile, arithmetic)
    return [*lines, *(["if (kt - " + str(tile.k) + " < end) {", *last, "}"] if tile.split > 1 else last)]


def _accumulators(tile: Tile) -> list[str]:
    return [f"c{m}_{n}" for m in range(tile.item_m) for n in range(tile.item_n // 4)]


def results(tile: Tile) -> list[tuple[str, str, list[str]]]:
    """The accumulators: row and first column as C expressions, and the four lanes."""
    found = []
    rows, columns = tile.item_m // 4 or 1, tile.item_n // 4
    high = min(tile.item_m, 4)
    for m in range(tile.item_m):
        strip, inner = divmod(m, high)
        row = f"row0 + {strip * (tile.m // rows) + inner} + ty * {high}"
        for n in range(columns):
            col = f"col0 + {n * (tile.n // columns)} + tx * 4"
            found.append((row, col, [f"c{m}_{n}.s{lane}" for lane in range(4)]))
    return found


def _positions(tile: Tile) -> list[str]:
    """``tx``, ``ty``: a work-item's column and row of strips. 32 neighbours stand 8 wide and 4 high where they can."""
    across, down = tile.n // tile.item_n, tile.m // tile.item_m
    if across % 8 or down % 4 or across == 8:
        return [f"const int tx = lid % {across}, ty = lid / {across};"]
    blocks = across // 8
    return [
        f"const int tx = lid / 32 % {blocks} * 8 + lid % 8;",
        f"const int ty = lid / {32 * blocks} * 4 + lid % 32 / 8;",
    ]


def _loads(tile: Tile, side: Side) -> int:
    return -(-_pieces(tile, side) // tile.items)


def _pieces(tile: Tile, side: Side) -> int:
    """Loads of the whole work-group."""
    return (tile.m if side.name == "a" else tile.n) * tile.k // side.width


def _some(tile: Tile, side: Side, i: int, lines: list[str]) -> list[str]:
    """Statements of load ``i``, for the work-items that have one."""
    if (i + 1) * tile.items <= _pieces(tile, side):
        return lines
    return [f"if (lid < {_pieces(tile, side) - i * tile.items}) {{", *lines, "}"]


def _pitch(tile: Tile, side: Side) -> int:
    return (tile.m if side.name == "a" else tile.n) + _PAD


def _prepare(tile: Tile, side: Side, held: str) -> list[str]:
    """For each load of a work-item: its depth within the step and its row or column, held to what there is."""
    name, across = side.name, tile.m if side.name == "a" else tile.n
    first = "row0" if name == "a" else "col0"
    lines = []
    for i in range(_loads(tile, side)):
        v = f"(lid + {i * tile.items})" if i else "lid"
        if side.along == "depth":
            run = tile.k // side.width
            lines += [f"const int {name}d{i} = {v} % {run} * {side.width}, {name}s{i} = {v} / {run};"]
        else:
            run = across // side.width
            lines += [f"const int {name}s{i} = {v} % {run} * {side.width}, {name}d{i} = {v} / {run};"]
        step = side.width if side.along == "side" else 1
        within = f"{first} + {name}s{i}"
        if side.size % across:
            within = f"min({within}, {max(side.size - step, 0)})"
        lines.append(f"const int {name}r{i} = {within};")
        lines += side.setup(i, f"{name}r{i}")
        lines.append(f"{_vector(side.width, held)} {name}v{i};")
    return lines


def _fetch(tile: Tile, side: Side, depth: int, held: str) -> list[str]:
    """A step's loads; the depth's end is looked for in the last step only, by all work-items alike."""
    whole = _loaded(tile, side, "", held)
    if depth % tile.k == 0:
        return whole
    return [
        f"if (kt + {tile.k} <= {depth}) {{",
        *whole,
        "} else {",
        *_loaded(tile, side, f"{side.name}k{{i}} < {depth}", held),
        "}",
    ]


def _loaded(tile: Tile, side: Side, limit: str, held: str) -> list[str]:
    lines, name = [], side.name
    for i in range(_loads(tile, side)):
        load = [f"const int {name}k{i} = kt + {name}d{i};", *side.at(i, f"{name}k{i}")]
        conditions = [each for each in (side.valid(i), limit.format(i=i)) if each]
        place = side.place(i, f"{name}k{i}")
        if conditions:
            zero = side.zero if side.width == 1 else f"({held}{side.width})({side.zero})"
            load += [
                f"const int {name}ok{i} = {' && '.join(conditions)};",
                f"{name}v{i} = {side.load(f'({name}ok{i} ? {place} : 0)', i)};",
                f"{name}v{i} = {name}ok{i} ? {name}v{i} : {zero};",
            ]
        else:
            load.append(f"{name}v{i} = {side.load(place, i)};")
        lines += _some(tile, side, i, ["{", *load, "}"])
    return lines


def _stash(tile: Tile, side: Side, buffer: str, held: str) -> list[str]:
    lines, name, pitch = [], side.name, _pitch(tile, side)
    for i in range(_loads(tile, side)):
        at = f"{buffer} * {tile.k * pitch} + {name}d{i} * {pitch} + {name}s{i}"
        if side.width == 1:
            stores = [f"{name}s[{at}] = {name}v{i};"]
        elif side.along == "side":
            stores = [f"*(__local {held}4 *)({name}s + {at}) = {name}v{i};"]
        else:
            stores = [f"{name}s[{at} + {lane * pitch}] = {name}v{i}.s{lane};" for lane in range(4)]
        lines += _some(tile, side, i, stores)
    return lines


def _multiply(tile: Tile, arithmetic: Arithmetic) -> list[str]:
    """One step's products: fragments of both operands from local memory, every accumulator once."""
    high, held = min(tile.item_m, 4), arithmetic.held
    rows, columns = tile.item_m // high, tile.item_n // 4
    pitch_a, pitch_b = tile.m + _PAD, tile.n + _PAD
    lines = [
        f"#pragma unroll {min(tile.unroll, tile.k)}",
        f"for (int k = 0; k < {tile.k}; k++) {{",
        f"__local const {held} *ap = as + cur * {tile.k * pitch_a} + k * {pitch_a} + ty * {high};",
        f"__local const {held} *bp = bs + cur * {tile.k * pitch_b} + k * {pitch_b} + tx * 4;",
    ]
    for strip in range(rows):
        at = f"ap + {strip * (tile.m // rows)}"
        one = f"*({at})" if high == 1 else f"*(__local const {held}{high} *)({at})"
        lines.append(f"const {_vector(high, held)} f{strip} = {one};")
    for n in range(columns):
        at = f"bp + {n * (tile.n // columns)}"
        lines.append(f"const {held}4 g{n} = *(__local const {held}4 *)({at});")
    for m in range(tile.item_m):
        strip, inner = divmod(m, high)
        factor = f"f{strip}" if high == 1 else f"f{strip}.s{inner}"
        lines += [arithmetic.product.format(c=f"c{m}_{n}", f=factor, g=f"g{n}") for n in range(columns)]
    names = _accumulators(tile)
    before = [arithmetic.begin.format(c=name) for name in names if arithmetic.begin]
    after = [arithmetic.end.format(c=name) for name in names if arithmetic.end]
    return ["{", *before, *lines, "}", *after, "}"]


def _vector(width: int, held: str) -> str:
    return held if width == 1 else f"{held}{width}"


def place(tile: Tile, rows: int, columns: int, batch: int) -> list[str]:
    """Statements that define ``row0``, ``col0``, ``part`` and ``batch`` from the number of the work-group.

    Columns run fastest, so that work-groups that run together read the same rows, and all of the other operand, which
    is the smaller one in networks, from the cache.
    """
    across, down = -(-columns // tile.n), -(-rows // tile.m)
    return [
        "const int group = get_group_id(0);",
        f"const int col0 = group % {across} * {tile.n};",
        f"const int row0 = group / {across} % {down} * {tile.m};",
        f"const int part = group / {across * down} % {tile.split};",
        f"const int batch = group / {across * down * tile.split};",
    ]


def groups(tile: Tile, rows: int, columns: int, batch: int) -> int:
    return -(-columns // tile.n) * -(-rows // tile.m) * tile.split * batch


def guarded(rows: int, columns: int, tile: Tile, row: str, col: str, lines: Sequence[str]) -> list[str]:
    """Statements that run only for rows and columns that there are."""
    conditions = [f"row < {rows}"] if rows % tile.m else []
    conditions += [f"col < {columns}"] if columns % tile.n else []
    guard = f"if ({' && '.join(conditions)}) {{" if conditions else "{"
    return [f"{{ const int row = {row}, col = {col};", guard, *lines, "} }"]
