"""Scaled dot-product attention as one kernel: softmax(scale * Q K^T + mask) V without the matrix of scores.

A work-group takes ``queries`` rows of one batch and head and walks the keys 16 at a time. Each of its work-items has 4
queries, or 2: it scores them against one key, keeps a running maximum and its share of the sum (Milakov and Gimelshein,
Online normalizer calculation for softmax, 2018), and adds up every sixteenth column of the result, as FlashAttention
does (Dao et al., 2022). Keys and values take turns in one local buffer; queries are read through the cache, so that
local memory leaves room for four waves a SIMD.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from wavefit.native.opencl import c
from wavefit.native.opencl.kernels import _source, _space
from wavefit.native.operation import Config, Implementation, Limits, Operation, View

OPS = ("Attention",)

_KEYS = 16  # of one step, and lanes beside each other
_PAD = 4
_FLOATS = ("float32", "float16")
_LONGEST = 256  # elements of a head
_LEAST_WAVES = 4
_CU_LOCAL_BYTES = 65536
_REGISTERS = {4: 84, 2: 54}  # of a work-item by its rows, at heads of 64: clang for gfx906


@dataclass(frozen=True)
class _Sizes:
    """Of the operation, and what a work-group (``tile`` queries) and a work-item (``rows``) take of it."""

    batch: tuple[int, ...]
    queries: int
    keys: int
    head: int  # of a query and a key
    values: int  # of a value
    tile: int = 16
    rows: int = 4

    @property
    def items(self) -> int:
        return self.tile * _KEYS // self.rows

    @property
    def tiles(self) -> int:
        return -(-self.queries // self.tile)

    @property
    def pitch(self) -> int:
        """Floats of one key's scores in local memory."""
        return self.tile + _PAD

    @property
    def local_bytes(self) -> int:
        return 4 * _KEYS * (self.row + self.pitch)

    @property
    def vector(self) -> str:
        return f"float{self.rows}"

    @property
    def row(self) -> int:
        """Floats of a key or a value in local memory."""
        return -(-max(self.head, self.values) // 4) * 4 + _PAD


def claims(operation: Operation) -> bool:
    q, k, v = (operation.input(number) for number in range(3))
    return (
        len(operation.output.shape) >= 2
        and {q.dtype, k.dtype, v.dtype} <= set(_FLOATS)
        and max(q.shape[-1], v.shape[-1]) <= _LONGEST
        and _source.present(operation)
        and not _space.far(operation)
    )


def configurations(operation: Operation, limits: Limits) -> Iterator[Config]:
    """``queries`` of a work-group, ``rows`` of a work-item: few enough that every compute unit has a group."""
    every: list[Config] = [{"queries": queries, "rows": rows} for rows in (4, 2) for queries in (64, 32, 16)]
    fitting = [each for each in every if _fits(_sizes(operation, each), limits)] or [every[-1]]
    yield from sorted(fitting, key=lambda each: cost(operation, each, limits))


def _fits(sizes: _Sizes, limits: Limits) -> bool:
    """Whether the device can hold the group; an AMD one with enough waves of a SIMD beside each other."""
    if sizes.items > limits.work_group or sizes.local_bytes > limits.local_bytes:
        return False
    if not limits.gfx:
        return True
    by_local = _CU_LOCAL_BYTES // sizes.local_bytes * -(-sizes.items // limits.wave) / limits.simds
    registers = (limits.registers or _LEAST_WAVES * _REGISTERS[sizes.rows]) / _LEAST_WAVES
    held = _REGISTERS[sizes.rows] + sizes.rows * (max(sizes.values, 64) - 64) // _KEYS
    return by_local >= _LEAST_WAVES and held <= registers


def build(operation: Operation, config: Config) -> Implementation:
    sizes = _sizes(operation, config)
    groups = sizes.tiles * prod(sizes.batch)
    signature, _ = c.parameters(operation)
    made = _source.kernel(
        "attention",
        signature,
        _body(operation, sizes),
        ((groups * sizes.items,), (sizes.items,)),
        local_bytes=sizes.local_bytes,
    )
    return _source.single("attention", operation, config, made, _flops(sizes))


def cost(operation: Operation, config: Config, limits: Limits) -> float:
    """Arithmetic at an eighth of the peak (scores are read from local memory one key at a time), whole tiles."""
    sizes = _sizes(operation, config)
    units = limits.compute_units or 16
    groups = sizes.tiles * prod(sizes.batch)
    resident = max(1, 1024 // sizes.items)
    turns = max(1.0, groups / (units * resident))
    busy = min(1.0, groups / units)
    filled = sizes.tiles * sizes.tile / sizes.queries
    rounding = -(-groups // (units * resident)) / turns if groups > units * resident else 1.0
    share = 0.125 if sizes.rows == 4 else 0.09
    arithmetic = _flops(sizes) * filled * rounding / ((limits.flops or 1e12) * share * busy)
    return arithmetic + _source.seconds(_source.traffic(operation), groups * 64, limits)


def _flops(sizes: _Sizes) -> int:
    return 2 * prod(sizes.batch) * sizes.queries * sizes.keys * (sizes.head + sizes.values)


def _sizes(operation: Operation, config: Config) -> _Sizes:
    q, k, v = (operation.input(number) for number in range(3))
    return _Sizes(
        batch=operation.output.shape[:-2],
        queries=q.shape[-2],
        keys=k.shape[-2],
        head=q.shape[-1],
        values=v.shape[-1],
        tile=int(config["queries"]),
        rows=int(config["rows"]),
    )


def _body(operation: Operation, sizes: _Sizes) -> list[str]:
    batch = [f"z{axis}" for axis in range(len(sizes.batch))]
    columns = -(-sizes.values // _KEYS)
    pitch = sizes.pitch
    accumulators = [f"a{q}_{n}" for q in range(sizes.rows) for n in range(columns)]
    lines = [
        f"__local __attribute__((aligned(16))) float kv[{_KEYS * sizes.row}];",
        f"__local __attribute__((aligned(16))) float raw[{_KEYS * pitch}];",
        f"const int lid = get_local_id(0), tx = lid % {_KEYS}, ty = lid / {_KEYS} * {sizes.rows};",
        f"const uint head = get_group_id(0) / {sizes.tiles}u;",
        f"const int row0 = get_group_id(0) % {sizes.tiles}u * {sizes.tile};",
        *(_space.split("head", sizes.batch, batch) if batch else []),
        *(f"const int row{q} = min(row0 + ty + {q}, {sizes.queries - 1});" for q in range(1, sizes.rows)),
        f"const int first = min(row0 + ty, {sizes.queries - 1});",
        *(f"float m{q} = -INFINITY, l{q} = 0.0f;" for q in range(sizes.rows)),
        *(f"float {name} = 0.0f;" for name in accumulators),
        f"for (int key0 = 0; key0 < {sizes.keys}; key0 += {_KEYS}) {{",
        *_staged(operation, 1, batch, sizes),
        "barrier(CLK_LOCAL_MEM_FENCE);",
        *_scored(operation, batch, sizes, pitch),
        "barrier(CLK_LOCAL_MEM_FENCE);",
        *_staged(operation, 2, batch, sizes),
        *_shared(columns, pitch, sizes),
        "barrier(CLK_LOCAL_MEM_FENCE);",
        *_added(columns, pitch, sizes),
        "barrier(CLK_LOCAL_MEM_FENCE);",
        "}",
        *(f"raw[tx * {pitch} + ty + {q}] = l{q};" for q in range(sizes.rows)),
        "barrier(CLK_LOCAL_MEM_FENCE);",
        *_finished(operation, batch, sizes, columns, pitch),
    ]
    return lines


def _rows(sizes: _Sizes) -> list[str]:
    return ["first", *(f"row{q}" for q in range(1, sizes.rows))]


def _over(view: View, operation: Operation) -> View:
    """The view with the output's number of axes; batch axes of size 1 repeat."""
    return c.broadcast(view, len(operation.output.shape))


def _staged(operation: Operation, number: int, batch: list[str], sizes: _Sizes) -> list[str]:
    """Keys (input 1) or values (input 2) of one step into local memory; zeros past the last key and element."""
    view = _over(operation.input(number), operation)
    length = sizes.head if number == 1 else sizes.values
    wide = view.strides[-1] == 1 and length % 4 == 0
    width, across = (4, length // 4) if wide else (1, -(-length // 4) * 4)
    place = c.index(view, [*batch, "key", "e"])
    value = c.load_vector(view.dtype, f"in{number}", place, width, wide and c.aligned(view, 4))
    zero = "(float4)(0.0f)" if wide else "0.0f"
    inside = f"key0 + at / {across} < {sizes.keys}"
    if not wide:
        inside += f" && at % {across} < {length}"
    kind = "float4" if wide else "float"
    return [
        f"for (int at = lid; at < {_KEYS * across}; at += {sizes.items}) {{",
        f"const int inside = {inside};",
        f"const int key = inside ? key0 + at / {across} : 0, e = inside ? at % {across} * {width} : 0;",
        f"const {kind} x = inside ? {value} : {zero};",
        f"*(__local {kind} *)(kv + at / {across} * {sizes.row} + at % {across} * {width}) = x;",
        "}",
    ]


def _scored(operation: Operation, batch: list[str], sizes: _Sizes, pitch: int) -> list[str]:
    """Four scores against the lane's key, with scale and mask, into ``raw``."""
    view = _over(operation.input(0), operation)
    wide = view.strides[-1] == 1 and sizes.head % 4 == 0
    lines = [*(f"float s{q} = 0.0f;" for q in range(sizes.rows))]
    lines += [
        "#pragma unroll 1",
        f"for (int d = 0; d < {sizes.head}; d += 4) {{",
        f"const float4 k = *(__local const float4 *)(kv + tx * {sizes.row} + d);",
    ]
    for q, row in enumerate(_rows(sizes)):
        if wide:
            at = c.index(view, [*batch, row, "d"])
            value = c.load_vector(view.dtype, "in0", at, 4, c.aligned(view, 4))
        else:
            last = sizes.head - 1
            lanes = [
                c.load(view.dtype, "in0", c.index(view, [*batch, row, f"min(d + {i}, {last})"]))
                for i in range(4)
            ]
            value = f"(float4)({', '.join(lanes)})"  # past the head's end the key is 0
        lines.append(f"const float4 q{q} = {value};")
    for q in range(sizes.rows):
        for lane in range(4):
            lines.append(f"s{q} = fma(q{q}.s{lane}, k.s{lane}, s{q});")
    lines.append("}")
    scale = c.literal(float(operation.attributes["scale"]))
    lines.append(f"const int known = key0 + tx < {sizes.keys};")
    for q, row in enumerate(_rows(sizes)):
        score = f"s{q} * {scale}"
        if operation.has(3):
            mask = _over(operation.input(3), operation)
            key = f"min(key0 + tx, {sizes.keys - 1})"
            score += " + " + c.load(mask.dtype, "in3", c.index(mask, [*batch, row, key]))
        lines.append(f"s{q} = known ? {score} : -INFINITY;")
        lines.append(f"raw[tx * {pitch} + ty + {q}] = s{q};")
    return lines


def _shared(columns: int, pitch: int, sizes: _Sizes) -> list[str]:
    """The new maximum of each query: older sums are scaled to it, the lane's shares take its scores' place."""
    lines = [
        f"{sizes.vector} top = ({sizes.vector})(-INFINITY);",
        "#pragma unroll 2",
        f"for (int key = 0; key < {_KEYS}; key++)",
        f"top = fmax(top, *(__local const {sizes.vector} *)(raw + key * {pitch} + ty));",
    ]
    for q in range(sizes.rows):
        lines += [
            f"const float n{q} = fmax(m{q}, top.s{q});",
            f"const float z{q}_ = isinf(n{q}) ? 0.0f : n{q};",  # a row without any key so far
            f"const float f{q} = exp(m{q} - z{q}_), p{q} = exp(s{q} - z{q}_);",
            f"m{q} = n{q}; l{q} = l{q} * f{q} + p{q};",
            *(f"a{q}_{n} *= f{q};" for n in range(columns)),
        ]
    lines.append("barrier(CLK_LOCAL_MEM_FENCE);")  # all have seen the scores: shares take their place
    return [*lines, *(f"raw[tx * {pitch} + ty + {q}] = p{q};" for q in range(sizes.rows))]


def _added(columns: int, pitch: int, sizes: _Sizes) -> list[str]:
    lines = [
        "#pragma unroll 2",
        f"for (int key = 0; key < {_KEYS}; key++) {{",
        f"const {sizes.vector} p = *(__local const {sizes.vector} *)(raw + key * {pitch} + ty);",
    ]
    for n in range(columns):
        lines.append(f"const float v{n} = kv[key * {sizes.row} + min(tx + {n * _KEYS}, {sizes.row - 1})];")
        lines += [f"a{q}_{n} = fma(p.s{q}, v{n}, a{q}_{n});" for q in range(sizes.rows)]
    return [*lines, "}"]


def _finished(operation: Operation, batch: list[str], sizes: _Sizes, columns: int, pitch: int) -> list[str]:
    lines = [
        f"{sizes.vector} total = ({sizes.vector})(0.0f);",
        "#pragma unroll 2",
        f"for (int lane = 0; lane < {_KEYS}; lane++)",
        f"total += *(__local const {sizes.vector} *)(raw + lane * {pitch} + ty);",
    ]
    out = operation.output
    for q in range(sizes.rows):
        for n in range(columns):
            axes = [*batch, f"(row0 + ty + {q})", f"(tx + {n * _KEYS})"]
            value = f"(total.s{q} > 0.0f ? a{q}_{n} / total.s{q} : 0.0f)"
            extra, result = c.epilogue(operation, value, axes, f"e{q}_{n}_")
            store = c.store(out.dtype, "out0", c.index(out, axes), result)
            inside = f"row0 + ty + {q} < {sizes.queries} && tx + {n * _KEYS} < {sizes.values}"
            lines += [f"if ({inside}) {{", *extra, store, "}"]
    return lines
