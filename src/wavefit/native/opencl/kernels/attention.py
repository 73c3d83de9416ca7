"""Scaled dot-product attention as one kernel: softmax(scale * Q K^T + mask) V without the matrix of scores."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import prod

from wavefit.native import space
from wavefit.native.opencl import c
from wavefit.native.opencl.kernels import _flash, _source
from wavefit.native.opencl.kernels._flash_tile import LANES, Sizes
from wavefit.native.operation import Config, Implementation, Limits, Operation

OPS = ("Attention",)

_FLOATS = ("float32", "float16")
_LONGEST = 256  # elements of a head
_LEAST_WAVES = 4
_CU_LOCAL_BYTES = 65536  # of an AMD compute unit
_SM_LOCAL_BYTES = 196608  # of an NVIDIA multiprocessor, about
_REGISTERS = {(4, 4): 126, (4, 2): 81, (2, 4): 69, (2, 2): 56, (1, 4): 60, (1, 2): 44}
"""Of a lane by its rows and keys, at heads of 64: clang for gfx906; fewer elsewhere."""
_STEP_S = 5e-7  # that a step between two barriers takes at least, as for products
_EXPONENTIAL = 24  # multiplications that a score's way to a share is worth


def claims(operation: Operation) -> bool:
    q, k, v = (operation.input(number) for number in range(3))
    return (
        len(operation.output.shape) >= 2
        and {q.dtype, k.dtype, v.dtype} <= set(_FLOATS)
        and max(q.shape[-1], v.shape[-1]) <= _LONGEST
        and _source.present(operation)
        and not space.far(operation)
    )


def configurations(operation: Operation, limits: Limits) -> Iterator[Config]:
    """``queries`` of a work-group, ``rows`` of them and ``keys`` of a lane; ``hold``: see Sizes."""
    every: list[Config] = [
        {"queries": queries, "rows": rows, "keys": keys, "hold": hold}
        for queries, (rows, keys), hold in product((64, 32, 16), _REGISTERS, (0, 1))
    ]
    fitting = [each for each in every if _fits(operation, _sizes(operation, each), limits)] or every[-2:-1]
    yield from sorted(fitting, key=lambda each: cost(operation, each, limits))


def _fits(operation: Operation, sizes: Sizes, limits: Limits) -> bool:
    """Whether the device can hold the group; an AMD one with enough waves of a SIMD beside each other."""
    if sizes.items > limits.work_group or 4 * sizes.local_floats > limits.local_bytes:
        return False
    held = _held(operation, sizes)
    if not limits.gfx:
        return held <= limits.most_registers
    by_local = _CU_LOCAL_BYTES // (4 * sizes.local_floats) * _waves(sizes, limits) / limits.simds
    return by_local >= _LEAST_WAVES and held * _LEAST_WAVES <= (limits.registers or held * _LEAST_WAVES)


def _held(operation: Operation, sizes: Sizes) -> int:
    """Registers of a lane: more for more columns, for elements that are read one by one, and for many masks."""
    q, k, v = (operation.input(number) for number in range(3))
    single = any(view.strides[-1] != 1 or view.shape[-1] % 4 for view in (q, k, v))
    masks = 24 if operation.has(3) and sizes.rows * sizes.keys == 16 else 0
    return _REGISTERS[sizes.rows, sizes.keys] + sizes.rows * (sizes.columns - 4) + 12 * single + masks


def _waves(sizes: Sizes, limits: Limits) -> int:
    return -(-sizes.items // limits.wave)


def build(operation: Operation, config: Config) -> Implementation:
    sizes = _sizes(operation, config)
    groups = sizes.tiles * prod(sizes.batch)
    made = _source.kernel(
        "attention",
        c.parameters(operation)[0],
        _flash.body(operation, sizes),
        ((groups * sizes.items,), (sizes.items,)),
        local_bytes=4 * sizes.local_floats,
    )
    return _source.single("attention", operation, config, made, _flops(sizes))


def cost(operation: Operation, config: Config, limits: Limits) -> float:
    """Both products as :func:`_choice.seconds` reckons them, in steps of 16, and the shares between them."""
    sizes = _sizes(operation, config)
    units, peak = limits.compute_units or 16, limits.flops or 1e12
    groups = sizes.tiles * prod(sizes.batch)
    here = max(1, min(_resident(operation, sizes, limits), -(-groups // units)))
    speed = peak / units / here * {1: 0.7, 2: 0.95}.get(here, 1.0)

    def step(wide: float, flops: float) -> float:
        reuse = sizes.rows * wide / (sizes.rows + wide)
        return max(flops / (speed * 1.07 * reuse / (reuse + 2)), _STEP_S)

    pairs = 2 * sizes.tile * sizes.span
    scores = sizes.pieces * step(sizes.keys, pairs * sizes.piece * (0.9 if sizes.hold else 1.0))
    shares = pairs * _EXPONENTIAL / speed + 2 * _STEP_S
    results = 0.0
    for block in sizes.blocks:
        width = sum(wide for _, wide in block)
        flops = 2 * sizes.tile * LANES * width * LANES
        results += sizes.keys * step(min(width, 4), flops)
    turns = -(-sizes.length // sizes.span) * -(-groups // (units * here))
    moved = _source.traffic(operation) / (limits.bandwidth or _source.BANDWIDTH)
    return _source.LAUNCH_SECONDS + max(turns * (scores + shares + results), moved)


def _resident(operation: Operation, sizes: Sizes, limits: Limits) -> int:
    """Work-groups that a compute unit runs at once."""
    held = _held(operation, sizes)
    registers = limits.registers or _LEAST_WAVES * held
    by_registers = registers // held * limits.simds // _waves(sizes, limits)
    whole = _CU_LOCAL_BYTES if limits.gfx else max(_SM_LOCAL_BYTES, limits.local_bytes)
    return min(by_registers, whole // (4 * sizes.local_floats))


def _flops(sizes: Sizes) -> int:
    return 2 * prod(sizes.batch) * sizes.queries * sizes.length * (sizes.head + sizes.values)


def _sizes(operation: Operation, config: Config) -> Sizes:
    q, k, v = (operation.input(number) for number in range(3))
    return Sizes(
        batch=operation.output.shape[:-2],
        queries=q.shape[-2],
        length=k.shape[-2],
        head=q.shape[-1],
        values=v.shape[-1],
        tile=int(config["queries"]),
        rows=int(config["rows"]),
        keys=int(config["keys"]),
        hold=bool(config["hold"]),
    )
