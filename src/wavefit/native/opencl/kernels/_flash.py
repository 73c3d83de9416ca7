"""The text of the attention kernel: a tile of queries against all keys, a tile at a time, in one pass.

Lanes lie 16 beside each other. A lane has ``rows`` queries and, of a tile of keys, every sixteenth: it scores them as
a blocked product does, a piece of the head at a time. Maxima of the lanes meet in local memory, each lane keeps its
share of its queries' sums (Milakov and Gimelshein, Online normalizer calculation for softmax, 2018), and sums and
results so far are scaled when a maximum grows (Dao et al., FlashAttention, 2022). Then 16 keys at a time, their shares
and values pass through local memory into the lane's columns of the result. No buffer there outlives its phase, so
little local memory is needed: what the scores take and what the results take is the same place.
"""

from __future__ import annotations

from wavefit.native import space
from wavefit.native.opencl import c
from wavefit.native.opencl.kernels._flash_tile import LANES, PAD, Sizes
from wavefit.native.operation import Operation, View

_LOG2E = 1.4426950408889634


def body(operation: Operation, sizes: Sizes) -> list[str]:
    """The statements of the kernel; one work-group for each tile of queries of each batch."""
    batch = [f"z{axis}" for axis in range(len(sizes.batch))]
    rows = range(sizes.rows)
    return [
        f"__local __attribute__((aligned(16))) float pool[{sizes.local_floats}];",
        f"const int lid = get_local_id(0), tx = lid % {LANES}, ty = lid / {LANES} * {sizes.rows};",
        f"const uint head = get_group_id(0) / {sizes.tiles}u;",
        f"const int row0 = get_group_id(0) % {sizes.tiles}u * {sizes.tile};",
        *(c.split("head", sizes.batch, batch) if batch else []),
        *(f"const int row_{r} = min(row0 + ty + {r}, {sizes.queries - 1});" for r in rows),
        *(f"float m{r} = -INFINITY, l{r} = 0.0f;" for r in rows),
        *(f"float a{r}_{n} = 0.0f;" for r in rows for n in range(sizes.columns)),
        *(_queries(operation, batch, sizes, "0", sizes.piece * sizes.pieces) if sizes.hold else []),
        f"for (int key0 = 0; key0 < {sizes.length}; key0 += {sizes.span}) {{",
        *_scores(operation, batch, sizes),
        *_mask(operation, batch, sizes),
        *_shares(sizes),
        *_results(operation, batch, sizes),
        "}",
        *_end(operation, batch, sizes),
    ]


def _over(operation: Operation, number: int) -> View:
    """An input with the output's number of axes; batch axes of size 1 repeat."""
    return space.broadcast(operation.input(number), len(operation.output.shape))


# ---- from the buffers into local memory ------------------------------------------------------------------------------


def _queries(operation: Operation, batch: list[str], sizes: Sizes, first: str, width: int) -> list[str]:
    tile = (sizes.tile, width)
    return _staged(_over(operation, 0), 0, batch, ("row0", first), tile, (0, sizes.row), sizes.items)


def _staged(
    view: View,
    number: int,
    batch: list[str],
    start: tuple[str, str],
    tile: tuple[int, int],
    place: tuple[int, int],
    items: int,
) -> list[str]:
    """A tile of a matrix into local memory. Past its last row that row again, past its last column zeros.

    Args:
        view: the matrix, its last two axes.
        number: of the input.
        batch: coordinates on the other axes.
        start: first row and column.
        tile: rows and columns of the tile, the columns a multiple of 4.
        place: where in ``pool``, and floats from row to row.
        items: of a work-group.
    """
    last, columns = view.shape[-2] - 1, view.shape[-1]
    wide = 4 if view.strides[-1] == 1 and columns % 4 == 0 else 1
    across = tile[1] // wide
    down = view.strides[-2] == 1 and wide == 1  # neighbours in memory are neighbours in a column
    r, e = (f"at % {tile[0]}", f"at / {tile[0]}") if down else (f"at / {across}", f"at % {across} * {wide}")
    kind = "float4" if wide == 4 else "float"
    at = c.index(view, [*batch, "row", "column"])
    value = c.load_vector(view.dtype, f"in{number}", at, wide, wide == 4 and c.aligned(view, 4))
    if columns % tile[1]:
        value = f"column < {columns} ? {value} : ({kind})(0.0f)"
    count = tile[0] * across
    steps = [
        f"const int r = {r}, e = {e};",
        f"const int row = min({start[0]} + r, {last}), column = {start[1]} + e;",
        f"*(__local {kind} *)(pool + {place[0]} + r * {place[1]} + e) = {value};",
        "}",
    ]
    if count % items:
        return [f"for (int at = lid; at < {count}; at += {items}) {{", *steps]
    lines = []
    for turn in range(count // items):
        lines += [f"{{ const int at = lid + {turn * items};", *steps]
    return lines


# ---- the phases of one tile of keys ----------------------------------------------------------------------------------


def _scores(operation: Operation, batch: list[str], sizes: Sizes) -> list[str]:
    rows, keys = range(sizes.rows), range(sizes.keys)
    pitch, piece = sizes.piece + PAD, sizes.piece
    keys_at = sizes.tile * sizes.row
    view, tile = _over(operation, 1), (sizes.span, piece)
    queries = [] if sizes.hold else _queries(operation, batch, sizes, "d0", piece)
    offset = "d0 + d" if sizes.hold else "d"
    return [
        *(f"float s{r}_{k} = 0.0f;" for r in rows for k in keys),
        "#pragma unroll 1",
        f"for (int d0 = 0; d0 < {piece * sizes.pieces}; d0 += {piece}) {{",
        *queries,
        *_staged(view, 1, batch, ("key0", "d0"), tile, (keys_at, pitch), sizes.items),
        "barrier(CLK_LOCAL_MEM_FENCE);",
        f"#pragma unroll {sizes.unroll}",
        f"for (int d = 0; d < {piece}; d += 4) {{",
        *(
            f"const float4 k{k} = *(__local const float4 *)(pool + {keys_at} + (tx + {LANES * k}) * {pitch} + d);"
            for k in keys
        ),
        *(line for r in rows for line in _multiplied(r, sizes, offset)),
        "}",
        "barrier(CLK_LOCAL_MEM_FENCE);",
        "}",
    ]


def _multiplied(row: int, sizes: Sizes, offset: str) -> list[str]:
    q = f"q{row}"
    lines = [
        f"const float4 {q} = *(__local const float4 *)(pool + (ty + {row}) * {sizes.row} + {offset});",
    ]
    for part in "0123":
        lines += [f"s{row}_{k} = fma({q}.s{part}, k{k}.s{part}, s{row}_{k});" for k in range(sizes.keys)]
    return lines


def _mask(operation: Operation, batch: list[str], sizes: Sizes) -> list[str]:
    """Scale and mask; keys past the last one score -infinity."""
    scale = c.literal(float(operation.attributes["scale"]))
    masked, lines = operation.has(3), []
    for k in range(sizes.keys):
        key = f"key0 + tx + {LANES * k}"
        lines.append(f"const int key_{k} = min({key}, {sizes.length - 1});")
        for r in range(sizes.rows):
            score = f"s{r}_{k} * {scale}"
            if masked:
                view = _over(operation, 3)
                at = c.index(view, [*batch, f"row_{r}", f"key_{k}"])
                score = f"fma(s{r}_{k}, {scale}, {c.load(view.dtype, 'in3', at)})"
            if sizes.length % sizes.span:
                score = f"{key} < {sizes.length} ? {score} : -INFINITY"
            lines.append(f"s{r}_{k} = {score};")
    return lines


def _shares(sizes: Sizes) -> list[str]:
    """Scores become shares of the new maximum, to which what is summed up so far is scaled."""
    rows, keys = range(sizes.rows), range(sizes.keys)
    vector = sizes.vector
    lines = []
    for r in rows:
        top = f"s{r}_0"
        for k in keys[1:]:
            top = f"fmax({top}, s{r}_{k})"
        lines.append(f"const float t{r} = {top};")
    lines += [
        f"{sizes.shares_at('tx')} = ({vector})({', '.join(f't{r}' for r in rows)});",
        "barrier(CLK_LOCAL_MEM_FENCE);",
        f"{vector} top = {sizes.shares_at('0')};",
        f"#pragma unroll {sizes.unroll}",
        f"for (int lane = 1; lane < {LANES}; lane++)",
        f"top = fmax(top, {sizes.shares_at('lane')});",
    ]
    for r in rows:
        lines += [
            f"const float n{r} = fmax(m{r}, {sizes.part('top', r)});",
            f"const float c{r} = isinf(n{r}) ? 0.0f : n{r};",  # a row without any key so far
            f"const float f{r} = exp2((m{r} - c{r}) * {c.literal(_LOG2E)});",
            f"m{r} = n{r};",
            *(f"s{r}_{k} = exp2((s{r}_{k} - c{r}) * {c.literal(_LOG2E)});" for k in keys),
            f"l{r} = l{r} * f{r} + ({' + '.join(f's{r}_{k}' for k in keys)});",
            *(f"a{r}_{n} *= f{r};" for n in range(sizes.columns)),
        ]
    return [*lines, "barrier(CLK_LOCAL_MEM_FENCE);"]


def _results(operation: Operation, batch: list[str], sizes: Sizes) -> list[str]:
    """16 keys at a time: the shares that lanes hold, and the values, through local memory."""
    vector, lines = sizes.vector, []
    view = _over(operation, 2)
    for k in range(sizes.keys):
        shares = ", ".join(f"s{r}_{k}" for r in range(sizes.rows))
        lines.append(f"{sizes.shares_at('tx')} = ({vector})({shares});")
        column = 0
        for block in sizes.blocks:
            width = sum(wide for _, wide in block) * LANES
            start, tile = (f"key0 + {LANES * k}", str(block[0][0])), (LANES, width)
            lines += [
                *_staged(view, 2, batch, start, tile, (sizes.values_at, width), sizes.items),
                "barrier(CLK_LOCAL_MEM_FENCE);",
                *_added(sizes, block, column, width),
                "barrier(CLK_LOCAL_MEM_FENCE);",
            ]
            column += width // LANES
    return lines


def _added(sizes: Sizes, block: list[tuple[int, int]], column: int, width: int) -> list[str]:
    vector = sizes.vector
    lines = [
        f"#pragma unroll {sizes.unroll}",
        f"for (int key = 0; key < {LANES}; key++) {{",
        f"const {vector} p = {sizes.shares_at('key')};",
    ]
    for start, wide in block:
        kind = "float" if wide == 1 else f"float{wide}"
        at = f"pool + {sizes.values_at + start - block[0][0]} + key * {width} + tx * {wide}"
        lines.append(f"const {kind} v{start} = *(__local const {kind} *)({at});")
        for lane in range(wide):
            v = f"v{start}" if wide == 1 else f"v{start}.s{lane}"
            lines += [
                f"a{r}_{column} = fma({sizes.part('p', r)}, {v}, a{r}_{column});" for r in range(sizes.rows)
            ]
            column += 1
    return [*lines, "}"]


def _end(operation: Operation, batch: list[str], sizes: Sizes) -> list[str]:
    """The lanes' sums joined; a query that the mask leaves no key gives 0."""
    vector, rows = sizes.vector, range(sizes.rows)
    lines = [
        f"{sizes.shares_at('tx')} = ({vector})({', '.join(f'l{r}' for r in rows)});",
        "barrier(CLK_LOCAL_MEM_FENCE);",
        f"{vector} total = ({vector})(0.0f);",
        f"#pragma unroll {sizes.unroll}",
        f"for (int lane = 0; lane < {LANES}; lane++)",
        f"total += {sizes.shares_at('lane')};",
    ]
    out = operation.output
    places = [
        f"(tx * {wide} + {start + lane})"
        for block in sizes.blocks
        for start, wide in block
        for lane in range(wide)
    ]
    for r in rows:
        lines.append(
            f"const float over{r} = {sizes.part('total', r)} > 0.0f ? 1.0f / {sizes.part('total', r)} : 0.0f;"
        )
        lines.append(f"if (row0 + ty + {r} < {sizes.queries}) {{")
        for n, column in enumerate(places):
            axes = [*batch, f"(row0 + ty + {r})", column]
            extra, result = c.epilogue(operation, f"a{r}_{n} * over{r}", axes, f"e{r}_{n}_")
            store = c.store(out.dtype, "out0", c.index(out, axes), result)
            lines += [f"if ({column} < {sizes.values}) {{", *extra, store, "}"]
        lines.append("}")
    return lines
