"""Which tiles a product is tried with on a device, and how long each is expected to take."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product as product_of
from math import ceil

from wavefit.native.operation import Config, Limits, View
from wavefit.native.triton import spills
from wavefit.native.triton.kernels import _cost, _product
from wavefit.native.triton.kernels._product import Product, Tile

_SHAPES = (  # m, n, waves
    (128, 256, 8),
    (256, 128, 8),
    (128, 128, 8),
    (128, 128, 4),
    (128, 64, 4),
    (64, 128, 4),
    (64, 256, 4),
    (256, 64, 4),
    (256, 64, 8),
    (64, 64, 4),
    (128, 32, 4),
    (64, 32, 4),
    (32, 64, 4),
    (32, 128, 4),
    (32, 32, 2),
    (16, 64, 4),
    (16, 32, 2),
    (16, 128, 4),
)
_DEPTHS = {1: (128, 64), 2: (64, 128, 32), 4: (32, 16)}  # elements of a step, by bytes of a factor
_SPLITS = (1, 2, 3, 4, 6, 8, 9, 12, 16)
_STAGES = (3, 4, 2)
_LEAST = 16  # of each edge: what tl.dot takes


def configurations(
    product: Product, depths: tuple[int, ...] | None, steps: object, limits: Limits
) -> Iterator[Config]:
    """Tiles by predicted time.

    Args:
        product: what is computed.
        depths: of a step; None: those that suit the type.
        steps: a function of a step's depth that gives the number of steps.
        limits: of the device.
    """
    assert callable(steps)
    found: dict[Tile, float] = {}
    size = product.operation.input(1).itemsize
    for (m, n, warps), k, split in product_of(_SHAPES, depths or _DEPTHS[size], _SPLITS):
        if not _useful(product, m, n, k, split, steps(k), limits):
            continue
        for stages in _stages(limits):
            each = Tile(m, n, k, split, warps, stages, _more(limits, size))
            if _fits(each, size, limits):
                found[each] = seconds(product, each, steps(k), limits)
    if not found:
        each = Tile(32, 32, (depths or _DEPTHS[size])[-1], 1, 2, 2, _more(limits, size))
        found[each] = seconds(product, each, steps(each.k), limits)
    for each in sorted(found, key=lambda one: found[one]):
        yield _product.config(each)


def _stages(limits: Limits) -> tuple[int, ...]:
    return (2, 1) if limits.gfx else _STAGES


def _more(limits: Limits, size: int) -> tuple[tuple[str, int], ...]:
    """Options of AMD's compiler: matrix instructions of 16 rows are the faster ones on CDNA 3 where k is deep."""
    if limits.gfx is None or not limits.gfx.startswith("gfx9"):
        return ()
    return (("matrix_instr_nonkdim", 16), ("waves_per_eu", 0))


def _useful(product: Product, m: int, n: int, k: int, split: int, steps: int, limits: Limits) -> bool:
    """Whether a tile has work for what it holds, and a split is worth its sums."""
    if m > max(32, 2 * product.rows - 1) or n > max(32, 2 * product.columns - 1):
        return False
    if split == 1:
        return True
    programs = product.batch * ceil(product.rows / m) * ceil(product.columns / n)
    units = limits.compute_units or 64
    return steps >= 2 * split and programs * split <= 4 * units and programs < 1.5 * units


def _fits(each: Tile, size: int, limits: Limits) -> bool:
    """By what the compiler spilled; by local memory, which holds a step for each stage; by registers for the sums."""
    if spills.spills(limits.gfx, "product", [each.m, each.n, each.k, each.warps, each.stages]):
        return False
    local = size * each.k * (each.m + each.n) * max(1, each.stages - (1 if limits.gfx else 0))
    sums = each.m * each.n / (each.warps * limits.wave)
    return local <= limits.local_bytes and sums <= 128


_START_S = 1.1e-6  # of a program: to its first product, and from its last to the end of its stores
_STEP_S = 5e-8  # that a step takes at least
_JOIN_S = 1.7e-6  # of the last of several programs: to count, and to see what the others left
_JOINED = 4.7e10  # bytes of partial sums a second that it reads
_OVERLAP = 0.58  # of the shorter of computing and moving bytes, that the longer does not hide
_AGAIN = 0.19  # of what tiles read again, that the cache does not hold


def seconds(product: Product, each: Tile, steps: int, limits: Limits) -> float:
    """Whole tiles on compute units that hold several programs, beside the bytes that pass through memory.

    A unit's programs overlap: one computes while another stores. A program alone does one after the other. The numbers
    were fitted to an H200 (2,100 tiles of ResNet-50's convolutions at 1 and 128 images, ``benchmarks/
    triton_layers.py``): what is ranked first takes 1.0 to 1.2 times the best one's time there.
    """
    units, bandwidth = limits.compute_units or 64, limits.bandwidth or _cost.BANDWIDTH
    programs = product.batch * ceil(product.rows / each.m) * ceil(product.columns / each.n) * each.split
    here = max(1, min(_resident(each, product, limits), ceil(programs / units)))
    reach = each.m * each.n / (each.m + each.n)
    share = 1.29 * reach / (reach + 28.6) * each.k / (each.k + 5.0)
    work = 2 * each.m * each.n * each.k / (_peak(product, limits) / units * share)
    own = ceil(steps / each.split)
    size = 4 if each.split > 1 else sum(view.itemsize for view in _whole(product))
    stored = each.m * each.n * size / (1.5 * bandwidth / units)
    alone = own * max(work, _STEP_S) + stored + _START_S
    full = max(here * own * work, here * stored, alone)
    rounds = programs / (units * here)
    total = full * (ceil(rounds) if rounds < 4 else rounds)
    moved = _traffic(product, each) / bandwidth
    joined = 0.0 if each.split == 1 else _JOIN_S + each.split * each.m * each.n * 4 / _JOINED
    return _cost.LAUNCH_SECONDS + max(total, moved) + _OVERLAP * min(total, moved) + joined


def _whole(product: Product) -> list[View]:
    """The output, and the operands of its size."""
    return [
        view
        for view in product.views
        if all(n == 1 or s for n, s in zip(view.shape, view.strides, strict=True))
    ]


def _peak(product: Product, limits: Limits) -> float:
    dtype = _product.kind(product.operation)
    known = limits.matrix.get(dtype)
    if known is not None:
        return known
    factor = {"float16": 4, "bfloat16": 4, "int8": 8}.get(dtype, 1)
    return factor * (limits.flops or 1e13)


_REGISTERS = 60  # of a work-item beside its sums
_MOST = 4  # programs of a unit that still gain


def _resident(each: Tile, product: Product, limits: Limits) -> int:
    """Programs that a compute unit holds at once, by registers and by local memory."""
    size = product.operation.input(1).itemsize
    local = size * each.k * (each.m + each.n) * max(1, each.stages - bool(limits.gfx)) + 1024
    held = each.m * each.n / (each.warps * limits.wave) + _REGISTERS
    registers = (limits.registers or 512) * limits.simds  # of a lane, of all SIMDs
    return max(1, min(_MOST, int(registers / (held * each.warps)), limits.local_bytes // local))


def _traffic(product: Product, each: Tile) -> float:
    """Bytes through memory: each factor and operand once, and a part of what tiles read again."""
    operation = product.operation
    size = operation.input(0).itemsize
    factors = operation.input(0).size * size + operation.input(1).size * operation.input(1).itemsize
    results = sum(view.size * view.itemsize for view in _whole(product))
    again = product.batch * product.rows * (ceil(product.columns / each.n) - 1) * product.depth * size
    return factors + results + _AGAIN * again
