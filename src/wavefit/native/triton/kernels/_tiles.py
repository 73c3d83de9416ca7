"""Which tiles a product is tried with on a device, and how long each is expected to take."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product as product_of
from math import ceil

from wavefit.native.operation import Config, Limits
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
_DEPTHS = {1: (128, 64), 2: (64, 32, 128), 4: (32, 16)}  # elements of a step, by bytes of a factor
_SPLITS = (1, 2, 3, 4, 6, 8, 9, 12, 16)
_STAGES = (3, 4, 2, 5)
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
    size = product.operation.input(0).itemsize
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
    return (2, 1, 3) if limits.gfx else _STAGES


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
    """By local memory, which holds a step of both factors for each stage, and by registers for the sums."""
    local = size * each.k * (each.m + each.n) * max(1, each.stages - (1 if limits.gfx else 0))
    sums = each.m * each.n / (each.warps * limits.wave)
    return local <= limits.local_bytes and sums <= 128


_STEP_S = 3.5e-7  # that a step takes at least: its loads are under way while those before are computed
_START_S = 2.0e-6  # from a program's start to its first product, and from its last to the end of its stores


def seconds(product: Product, each: Tile, steps: int, limits: Limits) -> float:
    """A roofline of whole tiles on whole compute units, with steps that have a least duration."""
    units, bandwidth = limits.compute_units or 64, limits.bandwidth or _cost.BANDWIDTH
    peak = _peak(product, limits)
    programs = product.batch * ceil(product.rows / each.m) * ceil(product.columns / each.n) * each.split
    here = max(1, min(_resident(each, product, limits), ceil(programs / units)))
    reach = each.m * each.n / (each.m + each.n)
    share = 0.8 * reach / (reach + 12) * {1: 0.8}.get(here, 1.0)
    work = 2 * each.m * each.n * each.k / (peak / units * share)
    step = max(here * work, _STEP_S * max(1.0, 3 / each.stages))
    rounds = ceil(programs / (units * here))
    total = rounds * (ceil(steps / each.split) * step + _START_S)
    moved = _traffic(product, each) / bandwidth / 0.85
    joined = 0.0 if each.split == 1 else 1.5e-6 + each.split * each.m * each.n * 4 / 2e11
    return _cost.LAUNCH_SECONDS + max(total, moved) + joined


def _peak(product: Product, limits: Limits) -> float:
    dtype = "int8" if product.small else product.operation.input(0).dtype
    known = limits.matrix.get(dtype)
    if known is not None:
        return known
    factor = {"float16": 4, "bfloat16": 4, "int8": 8}.get(dtype, 1)
    return factor * (limits.flops or 1e13)


def _resident(each: Tile, product: Product, limits: Limits) -> int:
    size = product.operation.input(0).itemsize
    local = size * each.k * (each.m + each.n) * max(1, each.stages)
    return max(1, min(4, limits.local_bytes // max(local, 1)))


def _traffic(product: Product, each: Tile) -> float:
    """Bytes through memory: each factor and operand once, and a small part of what tiles read again."""
    operation = product.operation
    size = operation.input(0).itemsize
    least = product.batch * size * (product.rows + product.columns) * product.depth
    result = sum(
        product.batch * product.rows * product.columns * view.itemsize
        for view in product.views
        if view.strides[-1] or view.shape[-1] == 1
    )
    again = product.rows * (ceil(product.columns / each.n) - 1) * product.depth * size * product.batch
    return least + result + again / 8
