"""Scaled dot-product attention as one kernel: softmax(scale * Q K^T + mask) V without the matrix of scores.

A work-group takes ``queries`` rows of one batch and head and walks the keys 16 at a time. Each of its work-items has 4
queries: it scores them against one key, keeps a running maximum and its share of the sum (Milakov and Gimelshein,
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
_QUERIES = 4  # of a work-item
_PAD = 4
_FLOATS = ("float32", "float16")
_LONGEST = 256  # elements of a head
_LEAST_WAVES = 4
_CU_LOCAL_BYTES = 65536


@dataclass(frozen=True)
class _Sizes:
    batch: tuple[int, ...]
    queries: int
    keys: int
    head: int  # of a query and a key
    values: int  # of a value

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
    """``queries`` of a work-group: few enough that every compute unit has one."""
    sizes = _sizes(operation)
    fitting = [n for n in (64, 32, 16) if n * _KEYS // _QUERIES <= limits.work_group] or [16]
    fitting = [n for n in fitting if _local_bytes(sizes, n) <= limits.local_bytes] or fitting[-1:]
    if limits.gfx:  # enough waves of a SIMD fit beside each other's local memory
        fitting = [n for n in fitting if _waves(sizes, n, limits) >= _LEAST_WAVES] or fitting[:1]
    for queries in sorted(fitting, key=lambda n: cost(operation, {"queries": n}, limits)):
        yield {"queries": queries}


def _waves(sizes: _Sizes, queries: int, limits: Limits) -> float:
    items = queries * _KEYS // _QUERIES
    return _CU_LOCAL_BYTES // _local_bytes(sizes, queries) * -(-items // limits.wave) / limits.simds


def build(operation: Operation, config: Config) -> Implementation:
    sizes, queries = _sizes(operation), int(config["queries"])
    items = queries * _KEYS // _QUERIES
    tiles = -(-sizes.queries // queries)
    groups = tiles * prod(sizes.batch)
    signature, _ = c.parameters(operation)
    made = _source.kernel(
        "attention",
        signature,
        _body(operation, sizes, queries, tiles),
        ((groups * items,), (items,)),
        local_bytes=_local_bytes(sizes, queries),
    )
    return _source.single("attention", operation, config, made, _flops(sizes))


def cost(operation: Operation, config: Config, limits: Limits) -> float:
    """Arithmetic at an eighth of the peak (scores are read from local memory one key at a time), whole tiles."""
    sizes, queries = _sizes(operation), int(config["queries"])
    tiles = -(-sizes.queries // queries)
    units = limits.compute_units or 16
    groups = tiles * prod(sizes.batch)
    resident = max(1, 1024 // (queries * _KEYS // _QUERIES))
    turns = max(1.0, groups / (units * resident))
    busy = min(1.0, groups / units)
    filled = tiles * queries / sizes.queries
    rounding = -(-groups // (units * resident)) / turns if groups > units * resident else 1.0
    arithmetic = _flops(sizes) * filled * rounding / ((limits.flops or 1e12) * 0.125 * busy)
    return arithmetic + _source.seconds(_source.traffic(operation), groups * 64, limits)


def _flops(sizes: _Sizes) -> int:
    return 2 * prod(sizes.batch) * sizes.queries * sizes.keys * (sizes.head + sizes.values)


def _local_bytes(sizes: _Sizes, queries: int) -> int:
    return 4 * (_KEYS * sizes.row + _KEYS * (queries + _PAD))


def _sizes(operation: Operation) -> _Sizes:
    q, k, v = (operation.input(number) for number in range(3))
    return _Sizes(operation.output.shape[:-2], q.shape[-2], k.shape[-2], q.shape[-1], v.shape[-1])


def _body(operation: Operation, sizes: _Sizes, queries: int, tiles: int) -> list[str]:
    batch = [f"z{axis}" for axis in range(len(sizes.batch))]
    columns = -(-sizes.values // _KEYS)
    pitch = queries + _PAD
    items = queries * _KEYS // _QUERIES
    accumulators = [f"a{q}_{n}" for q in range(_QUERIES) for n in range(columns)]
    lines = [
        f"__local __attribute__((aligned(16))) float kv[{_KEYS * sizes.row}];",
        f"__local __attribute__((aligned(16))) float raw[{_KEYS * pitch}];",
        f"const int lid = get_local_id(0), tx = lid % {_KEYS}, ty = lid / {_KEYS} * {_QUERIES};",
        f"const uint head = get_group_id(0) / {tiles}u;",
        f"const int row0 = get_group_id(0) % {tiles}u * {queries};",
        *(_space.split("head", sizes.batch, batch) if batch else []),
        *(f"const int row{q} = min(row0 + ty + {q}, {sizes.queries - 1});" for q in range(1, _QUERIES)),
        f"const int first = min(row0 + ty, {sizes.queries - 1});",
        *(f"float m{q} = -INFINITY, l{q} = 0.0f;" for q in range(_QUERIES)),
        *(f"float {name} = 0.0f;" for name in accumulators),
        f"for (int key0 = 0; key0 < {sizes.keys}; key0 += {_KEYS}) {{",
        *_staged(operation, 1, batch, sizes, items),
        "barrier(CLK_LOCAL_MEM_FENCE);",
        *_scored(operation, batch, sizes, pitch),
        "barrier(CLK_LOCAL_MEM_FENCE);",
        *_staged(operation, 2, batch, sizes, items),
        *_shared(columns, pitch),
        "barrier(CLK_LOCAL_MEM_FENCE);",
        *_added(columns, pitch, sizes),
        "barrier(CLK_LOCAL_MEM_FENCE);",
        "}",
        *(f"raw[tx * {pitch} + ty + {q}] = l{q};" for q in range(_QUERIES)),
        "barrier(CLK_LOCAL_MEM_FENCE);",
        *_finished(operation, batch, sizes, columns, pitch),
    ]
    return lines


def _rows() -> list[str]:
    return ["first", *(f"row{q}" for q in range(1, _QUERIES))]


def _over(view: View, operation: Operation) -> View:
    """The view with the output's number of axes; batch axes of size 1 repeat."""
    return c.broadcast(view, len(operation.output.shape))


def _staged(operation: Operation, number: int, batch: list[str], sizes: _Sizes, items: int) -> list[str]:
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
        f"for (int at = lid; at < {_KEYS * across}; at += {items}) {{",
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
    lines = [*(f"float s{q} = 0.0f;" for q in range(_QUERIES))]
    lines += [
        "#pragma unroll 1",
        f"for (int d = 0; d < {sizes.head}; d += 4) {{",
        f"const float4 k = *(__local const float4 *)(kv + tx * {sizes.row} + d);",
    ]
    for q, row in enumerate(_rows()):
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
    for q in range(_QUERIES):
        for lane in range(4):
            lines.append(f"s{q} = fma(q{q}.s{lane}, k.s{lane}, s{q});")
    lines.append("}")
    scale = c.literal(float(operation.attributes["scale"]))
    lines.append(f"const int known = key0 + tx < {sizes.keys};")
    for q, row in enumerate(_rows()):
        score = f"s{q} * {scale}"
        if operation.has(3):
            mask = _over(operation.input(3), operation)
            key = f"min(key0 + tx, {sizes.keys - 1})"
            score += " + " + c.load(mask.dtype, "in3", c.index(mask, [*batch, row, key]))
        lines.append(f"s{q} = known ? {score} : -INFINITY;")
        lines.append(f"raw[tx * {pitch} + ty + {q}] = s{q};")
    return lines


def _shared(columns: int, pitch: int) -> list[str]:
    """The new maximum of each query: older sums are scaled to it, the lane's shares take its scores' place."""
    lines = [
        "float4 top = (float4)(-INFINITY);",
        "#pragma unroll 2",
        f"for (int key = 0; key < {_KEYS}; key++)",
        f"top = fmax(top, *(__local const float4 *)(raw + key * {pitch} + ty));",
    ]
    for q in range(_QUERIES):
        lines += [
            f"const float n{q} = fmax(m{q}, top.s{q});",
            f"const float z{q}_ = isinf(n{q}) ? 0.0f : n{q};",  # a row without any key so far
            f"const float f{q} = exp(m{q} - z{q}_), p{q} = exp(s{q} - z{q}_);",
            f"m{q} = n{q}; l{q} = l{q} * f{q} + p{q};",
            *(f"a{q}_{n} *= f{q};" for n in range(columns)),
        ]
    lines.append("barrier(CLK_LOCAL_MEM_FENCE);")  # all have seen the scores: shares take their place
    return [*lines, *(f"raw[tx * {pitch} + ty + {q}] = p{q};" for q in range(_QUERIES))]


def _added(columns: int, pitch: int, sizes: _Sizes) -> list[str]:
    lines = [
        "#pragma unroll 2",
        f"for (int key = 0; key < {_KEYS}; key++) {{",
        f"const float4 p = *(__local const float4 *)(raw + key * {pitch} + ty);",
    ]
    for n in range(columns):
        lines.append(f"const float v{n} = kv[key * {sizes.row} + min(tx + {n * _KEYS}, {sizes.row - 1})];")
        lines += [f"a{q}_{n} = fma(p.s{q}, v{n}, a{q}_{n});" for q in range(_QUERIES)]
    return [*lines, "}"]


def _finished(operation: Operation, batch: list[str], sizes: _Sizes, columns: int, pitch: int) -> list[str]:
    lines = [
        "float4 total = (float4)(0.0f);",
        "#pragma unroll 2",
        f"for (int lane = 0; lane < {_KEYS}; lane++)",
        f"total += *(__local const float4 *)(raw + lane * {pitch} + ty);",
    ]
    out = operation.output
    for q in range(_QUERIES):
        for n in range(columns):
            axes = [*batch, f"(row0 + ty + {q})", f"(tx + {n * _KEYS})"]
            value = f"(total.s{q} > 0.0f ? a{q}_{n} / total.s{q} : 0.0f)"
            extra, result = c.epilogue(operation, value, axes, f"e{q}_{n}_")
            store = c.store(out.dtype, "out0", c.index(out, axes), result)
            inside = f"row0 + ty + {q} < {sizes.queries} && tx + {n * _KEYS} < {sizes.values}"
            lines += [f"if ({inside}) {{", *extra, store, "}"]
    return lines
