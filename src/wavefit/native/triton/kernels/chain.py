"""A convolution and the one or two 1x1 convolutions after it in one launch, as bottleneck blocks have them.

A program computes all columns of the first part for its rows, and keeps them; it walks the second part's columns in
pieces, each finished by its epilogue (residual, activation) and stored where it is wanted, and multiplied at once into
the third part's sums. What lies between the parts is neither written nor read again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product as product_of
from math import ceil, prod
from typing import Any

import msgspec
import numpy as np

from wavefit.native.operation import Buffer, Config, Implementation, Launch, Limits, Operation, Packed, View
from wavefit.native.pointwise import Pointwise
from wavefit.native.triton import spills, text
from wavefit.native.triton.kernels import _cost, conv_gemm
from wavefit.native.triton.kernels._conv import Conv
from wavefit.native.triton.text import Axis

OPS = ("Chain",)
_WIDEST = 256  # columns that a program keeps
_HALVES = ("float16", "bfloat16")


@dataclass(frozen=True)
class Part:
    """One convolution of a chain.

    Args:
        weights, bias: numbers of inputs; bias -1 where there is none.
        operands: numbers of inputs that its epilogue reads.
        epilogue: None where there is none.
        output: number of the output where its result is wanted outside; -1: nowhere.
        columns: it makes.
    """

    weights: int
    bias: int
    operands: tuple[int, ...]
    epilogue: Pointwise | None
    output: int
    columns: int


def parts(operation: Operation) -> list[Part]:
    """As the attribute "parts" says; see :mod:`wavefit.native.triton.chains`."""
    found = []
    for each in operation.attributes["parts"]:
        held: dict[str, Any] = dict(each)
        epilogue = held["epilogue"]
        found.append(
            Part(
                weights=held["weights"],
                bias=held["bias"],
                operands=tuple(held["operands"]),
                epilogue=None
                if epilogue is None
                else msgspec.convert(msgspec.to_builtins(epilogue), Pointwise),
                output=held["output"],
                columns=operation.input(held["weights"]).shape[0],
            )
        )
    return found


def claims(operation: Operation) -> bool:
    chain = parts(operation)
    views = [view for view in (*operation.inputs, *operation.outputs) if view is not None]
    columns = [part.columns for part in chain]
    stored = [operation.outputs[part.output] for part in chain if part.output >= 0]
    operands = [operation.input(number) for part in chain for number in part.operands]
    return (
        text.present(operation)
        and len(chain) in (2, 3)
        and operation.input(0).dtype in _HALVES
        and {operation.input(part.weights).dtype for part in chain} == {operation.input(0).dtype}
        and all(operation.constant[part.weights] for part in chain)
        and columns[0] <= _WIDEST
        and columns[-1] <= (_WIDEST if len(chain) == 3 else 1 << 20)
        and all(n % 16 == 0 for n in columns)
        and operation.input(0).shape[1] % 16 == 0
        and operation.input(0).strides[1] == 1
        and all(_by_row(view) for view in stored)
        and all(_by_row(view) or _by_column(view) for view in operands)
        and all(view.dtype in text.STORED for view in views)
        and all(text.has(part.epilogue) for part in chain)
    )


def configurations(operation: Operation, limits: Limits) -> Iterator[Config]:
    """``m`` rows of a program; ``k`` of a step of the first part; ``n`` columns of a piece of the second."""
    first = _first(operation)
    depths = [k for k in (64, 32, 128) if k <= max(16, first.ins)] or [16]
    stages = (2, 1) if limits.gfx else (3, 2, 4)
    depths = depths[:1] if limits.gfx else depths
    found: list[Config] = []
    for m, k, n, warps, stage in product_of((64, 128, 32, 16), depths, (64, 128, 32), (4, 8), stages):
        if m > max(16, 2 * first.pixels - 1) or (m < 64 and warps == 8):
            continue
        each: Config = {"m": m, "k": k, "n": n, "warps": warps, "stages": stage}
        if _fits(operation, each, limits):
            found.append(each)
    if not found:
        found = [{"m": 16, "k": depths[-1], "n": 16, "warps": 4, "stages": 1}]
    yield from sorted(found, key=lambda each: cost(operation, each, limits))


def _fits(operation: Operation, config: Config, limits: Limits) -> bool:
    chain = parts(operation)
    m, k, n, stages = (int(config[name]) for name in ("m", "k", "n", "stages"))
    if spills.spills(limits.gfx, "chain", [m, k, n, int(config["warps"]), stages]):
        return False
    wide, last = _wide(chain[0]), _wide(chain[-1]) if len(chain) == 3 else 0
    lanes = int(config["warps"]) * limits.wave
    local = 2 * max(stages * k * (m + wide), m * wide + stages * n * (wide + last))
    sums = m * max(wide + k // 2, wide // 2 + n + last) / lanes
    return local <= limits.local_bytes and sums <= (80 if limits.gfx else 160)


def cost(operation: Operation, config: Config, limits: Limits) -> float:
    """As :func:`_tiles.seconds` reckons a product: whole programs on whole units, beside the bytes that pass."""
    chain, first = parts(operation), _first(operation)
    m, k = int(config["m"]), int(config["k"])
    units = limits.compute_units or 64
    peak = limits.matrix.get(operation.input(0).dtype) or 4 * (limits.flops or 1e13)
    programs = ceil(first.pixels / m)
    here = max(1, min(2, ceil(programs / units)))
    share = 0.9 * m / (m + 48)
    steps = first.taps * ceil(first.ins / k)
    pieces = ceil(chain[1].columns / int(config["n"]))
    own = _flops(operation) / programs / (peak / units * share)
    weights = 2 * sum(prod(operation.input(part.weights).shape) for part in chain)
    read = weights / 1.2e11  # what a unit loads from the cache a second, about
    alone = max(own, read) + (steps + 3 * pieces) * 5e-8 + 2e-6
    total = ceil(programs / (units * here)) * max(here * own, alone)
    moved = sum(
        view.size * view.itemsize for view in (*operation.inputs, *operation.outputs) if view is not None
    )
    moved_s = moved / (limits.bandwidth or _cost.BANDWIDTH)
    return _cost.LAUNCH_SECONDS + max(total, moved_s) + 0.58 * min(total, moved_s)


def build(operation: Operation, config: Config) -> Implementation:
    chain = parts(operation)
    names, buffers = text.parameters(operation)
    packed = []
    for number, part in enumerate(chain):
        place = next(n for n, (name, _) in enumerate(names) if name == f"in{part.weights}")
        buffers[place] = Buffer(kind="packed", index=number)
        how = f"first {int(config['k'])}" if number == 0 else f"wide {_wide(chain[number - 1])}"
        packed.append(Packed(input=part.weights, how=how if number < 2 else "plain"))
    rows = _first(operation).pixels
    options = {
        name: int(value) for name, value in config.items() if name not in ("m", "n", "k", "warps", "stages")
    }
    options |= {"num_warps": int(config["warps"]), "num_stages": int(config["stages"])}
    body = _body(operation, chain, config)
    made = text.kernel("chain", names, body, (-(-rows // int(config["m"])),), options)
    return Implementation(
        template="chain",
        config=config,
        launches=(Launch(kernel=made, arguments=tuple(buffers)),),
        packed=tuple(packed),
        flops=_flops(operation),
        bytes=text.traffic(operation),
    )


def pack(how: str, operation: Operation, array: np.ndarray) -> np.ndarray:
    """Weights as (columns, depth): the first part's by taps, padded to its steps; the second's to the first's width."""
    kind, *size = how.split()
    if kind == "first":
        moved = np.moveaxis(array, 1, -1)
        taps = moved.reshape(len(array), prod(array.shape[2:]), -1)
        return np.pad(taps, ((0, 0), (0, 0), (0, -taps.shape[-1] % int(size[0]))))
    flat = array.reshape(len(array), -1)
    return flat if kind == "plain" else np.pad(flat, ((0, 0), (0, int(size[0]) - flat.shape[1])))


def _first(operation: Operation) -> Conv:
    """The first part's sizes; the output's are those of any that is stored."""
    x, w = operation.input(0), operation.input(parts(operation)[0].weights)
    y = operation.output
    attributes = operation.attributes
    shape = (y.shape[0], w.shape[0], *y.shape[2:])
    rank = len(x.shape) - 2
    return Conv(
        x=x,
        w=w,
        y=View(shape=shape, strides=y.strides, dtype=y.dtype),
        kernel=w.shape[2:],
        strides=tuple(attributes["strides"]),
        begins=tuple(attributes["pads"])[:rank],
        dilations=tuple(attributes["dilations"]),
        group=1,
    )


def _flops(operation: Operation) -> int:
    return sum(
        2 * _first(operation).pixels * prod(operation.input(part.weights).shape) for part in parts(operation)
    )


def _wide(part: Part) -> int:
    return max(16, text.power_of_two(part.columns))


def _by_row(view: View) -> bool:
    """Whether pixels follow each other at one distance, with their channels side by side."""
    shape, strides = view.shape, view.strides
    step = strides[-1]
    for size, stride in zip(
        reversed((shape[0], *shape[2:])), reversed((strides[0], *strides[2:])), strict=True
    ):
        if size > 1 and stride != step:
            return False
        step = (stride if size > 1 else step) * size
    return len(shape) > 2 and strides[1] == 1


def _by_column(view: View) -> bool:
    """One number a channel, or one for all."""
    places = enumerate(zip(view.shape, view.strides, strict=True))
    channel = len(view.shape) - 3  # (C, 1, 1) or (1, C, 1, 1)
    return len(view.shape) <= 4 and all(
        size == 1 or stride == 0 or axis == channel for axis, (size, stride) in places
    )


def _body(operation: Operation, chain: list[Part], config: Config) -> list[str]:
    m, n, k = int(config["m"]), int(config["n"]), int(config["k"])
    first, wide = _first(operation), _wide(chain[0])
    steps = first.taps * -(-first.ins // k)
    even = first.pixels % m == 0
    a = conv_gemm.channels(first, k)
    length = steps * k
    half = text.STORED[operation.input(0).dtype]
    inside = None if even else "row_inside"
    lines = [
        f"rows = tl.program_id(0) * {m} + tl.arange(0, {m})",
        "m = rows" if even else f"m = tl.minimum(rows, {first.pixels - 1})",
        *([] if even else [f"row_inside = (rows < {first.pixels})[:, None]"]),
        f"k = tl.arange(0, {k})",
        f"c0 = tl.arange(0, {wide})",
        _held("c0", chain[0].columns, wide),
        *a.setup,
        f"weights = in{chain[0].weights} + (nc0[None, :] * {length} + k[:, None])",
        f"sum = tl.zeros(({m}, {wide}), tl.float32)",
        f"for step in range(0, {steps}):",
        *(f"    {line}" for line in a.step),
        f"    b = tl.load(weights + step * {k})",
        "    sum = tl.dot(a, b, sum)",
    ]
    more, result = _finished(operation, chain[0], "sum", "c0", inside, "p")
    lines += [*more, f"kept = {result}.to(tl.{half})"]
    if len(chain) == 3:
        lines.append(f"last = tl.zeros(({m}, {_wide(chain[2])}), tl.float32)")
        lines.append(f"c2 = tl.arange(0, {_wide(chain[2])})")
        lines.append(_held("c2", chain[2].columns, _wide(chain[2])))
    piece = [
        f"c1 = start + tl.arange(0, {n})",
        _held("c1", chain[1].columns, n),
        f"b = tl.load(in{chain[1].weights} + (nc1[None, :] * {wide} + c0[:, None]))",
        "piece = tl.dot(kept, b)",
    ]
    more, result = _finished(operation, chain[1], "piece", "c1", inside, "q", chain[1].columns % n != 0)
    piece += more
    if len(chain) == 3:
        guard = f", mask=(c1 < {chain[1].columns})[:, None], other=0.0" if chain[1].columns % n else ""
        piece += [
            f"b = tl.load(in{chain[2].weights} + (nc2[None, :] * {chain[1].columns} + c1[:, None]){guard})",
            f"last = tl.dot({result}.to(tl.{half}), b, last)",
        ]
    lines += [f"for start in range(0, {chain[1].columns}, {n}):", *(f"    {line}" for line in piece)]
    if len(chain) == 3:
        more, _ = _finished(
            operation, chain[2], "last", "c2", inside, "r", chain[2].columns != _wide(chain[2])
        )
        lines += more
    return lines


def _held(name: str, columns: int, wide: int) -> str:
    """Columns held inside, so that what lies outside is loaded twice and not from elsewhere."""
    return f"n{name} = {name}" if columns % wide == 0 else f"n{name} = tl.minimum({name}, {columns - 1})"


def _finished(
    operation: Operation,
    part: Part,
    value: str,
    column: str,
    inside: str | None,
    prefix: str,
    uneven: bool = False,
) -> tuple[list[str], str]:
    """Statements from a part's sums to its result, stored where it is wanted; the result's name."""
    lines = [f"{prefix}v = {value}"]
    if part.bias >= 0:
        bias = operation.input(part.bias)
        loaded = text.register_of(
            bias.dtype, f"tl.load(in{part.bias} + {bias.offset} + n{column} * {bias.strides[0]})"
        )
        lines.append(f"{prefix}v = {prefix}v + {loaded}[None, :]")
    result = f"{prefix}v"
    mask = f"({column} < {part.columns})[None, :]" if uneven else None
    if part.epilogue is not None:
        operands = [result]
        for number in part.operands:
            view = operation.input(number)
            lines.append(f"{prefix}in{number} = {_operand(view, number, column, inside)}")
            operands.append(f"{prefix}in{number}")
        more, result = text.expression(part.epilogue, operands, prefix)
        lines += more
    if part.output >= 0:
        output = operation.outputs[part.output]
        place = View(shape=(2, 2), strides=(output.strides[-1], 1), offset=output.offset, dtype=output.dtype)
        axes = [Axis("m[:, None]", inside), Axis(f"{column}[None, :]", mask)]
        lines.append(text.store(place, f"out{part.output}", axes, result))
    return lines, result


def _operand(view: View, number: int, column: str, inside: str | None) -> str:
    if _by_column(view):
        stride = next((s for n, s in zip(view.shape, view.strides, strict=True) if n > 1), 0)
        return text.register_of(
            view.dtype, f"tl.load(in{number} + {view.offset} + n{column} * {stride})[None, :]"
        )
    place = View(shape=(2, 2), strides=(view.strides[-1], 1), offset=view.offset, dtype=view.dtype)
    return text.load(place, f"in{number}", [Axis("m[:, None]", inside), Axis(f"n{column}[None, :]")])
