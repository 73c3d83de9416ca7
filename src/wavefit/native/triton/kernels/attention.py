"""Scaled dot-product attention in one kernel: softmax(scale * Q K^T + mask) V without the matrix of scores.

A program holds some queries of one head and walks the keys in steps, with a running largest score and sum (Dao et al.,
FlashAttention, 2022).
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from msgspec.structs import replace

from wavefit.native import space
from wavefit.native.operation import Config, Implementation, Limits, Operation, View
from wavefit.native.triton import text
from wavefit.native.triton.kernels import _cost
from wavefit.native.triton.text import Axis

OPS = ("Attention",)
_LONGEST = 256  # elements of a head
_LOG2E = 1.4426950408889634
_TILES = (
    (64, 64, 4, 3),
    (128, 64, 4, 3),
    (64, 32, 4, 3),
    (32, 64, 4, 2),
    (16, 64, 4, 2),
    (128, 32, 4, 3),
    (16, 32, 2, 2),
)


def claims(operation: Operation) -> bool:
    q, k, v = (operation.input(number) for number in range(3))
    return (
        len(operation.output.shape) >= 2
        and q.dtype == k.dtype == v.dtype
        and q.dtype in text.FLOATS
        and max(q.shape[-1], v.shape[-1]) <= _LONGEST
        and text.present(operation)
        and text.computes(operation)
    )


def configurations(operation: Operation, limits: Limits) -> Iterator[Config]:
    """``queries`` of a program, ``keys`` of a step."""
    found: list[Config] = []
    for queries, keys, warps, stages in _TILES:
        if queries > max(16, 2 * operation.output.shape[-2] - 1):
            continue
        if limits.wave == 32 and limits.gfx and queries * keys > 2048:  # spills on gfx1100
            continue
        found.append(
            {"queries": queries, "keys": keys, "warps": warps, "stages": 1 if limits.gfx else stages}
        )
    yield from sorted(found, key=lambda each: cost(operation, each, limits))


def build(operation: Operation, config: Config) -> Implementation:
    queries, keys = int(config["queries"]), int(config["keys"])
    shape = operation.output.shape
    batch = shape[:-2]
    tiles = -(-shape[-2] // queries)
    options = {"num_warps": int(config["warps"]), "num_stages": int(config["stages"])}
    body = _body(operation, queries, keys, tiles)
    return text.single("attention", operation, config, body, (tiles, prod(batch)), options, _flops(operation))


def cost(operation: Operation, config: Config, limits: Limits) -> float:
    queries, keys = int(config["queries"]), int(config["keys"])
    shape, length = operation.output.shape, operation.input(1).shape[-2]
    programs = prod(shape[:-2]) * -(-shape[-2] // queries)
    units = limits.compute_units or 64
    peak = limits.matrix.get(operation.input(0).dtype) or limits.flops or 1e13
    here = max(1, min(4, -(-programs // units)))
    work = 2 * queries * keys * (operation.input(0).shape[-1] + shape[-1])
    step = max(here * work / (peak / units * 0.4 * queries / (queries + 32)), 6e-7)
    rounds = -(-programs // (units * here))
    return _cost.LAUNCH_SECONDS + rounds * (2e-6 + -(-length // keys) * step)


def _flops(operation: Operation) -> int:
    q, k, v = (operation.input(number) for number in range(3))
    return 2 * prod(operation.output.shape[:-1]) * k.shape[-2] * (q.shape[-1] + v.shape[-1])


def _over(view: View, batch: tuple[int, ...]) -> View:
    return space.over(view, (*batch, *view.shape[-2:]))


def _body(operation: Operation, queries: int, keys: int, tiles: int) -> list[str]:
    q, k, v = (operation.input(number) for number in range(3))
    output = operation.output
    batch = output.shape[:-2]
    count, length, head, values = output.shape[-2], k.shape[-2], q.shape[-1], v.shape[-1]
    wide, wide_v = max(16, text.power_of_two(head)), max(16, text.power_of_two(values))
    names = [f"z{axis}" for axis in range(len(batch))]
    at = [Axis(name) for name in names]
    inside_h, inside_v = _mask("h", head, wide), _mask("hv", values, wide_v)
    across_h, across_v = (each and f"{each}[None, :]" for each in (inside_h, inside_v))
    inside_m = _mask("m", count, queries * tiles)
    row = Axis("m[:, None]", inside_m and f"{inside_m}[:, None]")
    key_mask = None if length % keys == 0 else f"(keys < {length})"
    last = Axis("keys[None, :]", key_mask and f"{key_mask}[None, :]")
    load_q = text.load_raw(_over(q, batch), "in0", [*at, row, Axis("h[None, :]", across_h)])
    load_k = text.load_raw(
        _over(k, batch), "in1", [*at, last, Axis("h[:, None]", inside_h and f"{inside_h}[:, None]")]
    )
    down = Axis("keys[:, None]", key_mask and f"{key_mask}[:, None]")
    load_v = text.load_raw(_over(v, batch), "in2", [*at, down, Axis("hv[None, :]", across_v)])
    precise = ', input_precision="ieee"' if q.dtype == "float32" else ""
    scale = float(operation.attributes["scale"]) * _LOG2E
    lines = [
        *text.split("tl.program_id(1)", batch, names),
        f"m = tl.program_id(0) * {queries} + tl.arange(0, {queries})",
        f"h = tl.arange(0, {wide})",
        f"hv = tl.arange(0, {wide_v})",
        f"q = {_filled(load_q, (queries, wide), (count, head))}",
        f'largest = tl.full(({queries},), float("-inf"), tl.float32)',
        f"total = tl.zeros(({queries},), tl.float32)",
        f"sum = tl.zeros(({queries}, {wide_v}), tl.float32)",
        f"for start in range(0, {length}, {keys}):",
        f"    keys = start + tl.arange(0, {keys})",
        f"    key = {_filled(load_k, (wide, keys), (head, length))}",
        f"    scores = tl.dot(q, key{precise}) * {scale!r}",
    ]
    if operation.has(3):
        mask = space.over(operation.input(3), (*batch, count, length))
        lines.append(
            f"    scores += ({text.load(mask, 'in3', [*at, row, last])}).to(tl.float32) * {_LOG2E!r}"
        )
    if key_mask:
        lines.append(f'    scores = tl.where({key_mask}[None, :], scores, float("-inf"))')
    cast = f".to(tl.{text.STORED[q.dtype]})"
    lines += [
        "    highest = tl.maximum(largest, tl.max(scores, 1))",
        '    held = tl.where(highest == float("-inf"), 0.0, highest)',
        "    shares = tl.exp2(scores - held[:, None])",
        "    fade = tl.exp2(largest - held)",
        "    total = total * fade + tl.sum(shares, 1)",
        f"    value = {_filled(load_v, (keys, wide_v), (length, values))}",
        f"    sum = tl.dot(shares{cast}, value, sum * fade[:, None]{precise})",
        "    largest = highest",
        "result = sum / total[:, None]",
    ]
    column = Axis("hv[None, :]", across_v)
    later = [
        view if view is None else space.over(view, output.shape) for view in operation.inputs[operation.own :]
    ]
    later_over = replace(operation, inputs=(*operation.inputs[: operation.own], *later))
    more, name = text.epilogue(later_over, "result", [*at, row, column])
    spread = f"({queries}, {wide_v})" if min(count, values) == 1 else ""
    return [*lines, *more, text.store(output, "out0", [*at, row, column], name, spread=spread)]


def _filled(load: str, tile: tuple[int, int], sizes: tuple[int, int]) -> str:
    """A load of the tile's shape also where an axis of size 1 has no part in the place."""
    return f"tl.broadcast_to({load}, {tile})" if min(sizes) == 1 else load


def _mask(name: str, size: int, held: int) -> str | None:
    return None if size == held else f"({name} < {size})"
