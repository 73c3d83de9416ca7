"""Which tiles a matrix product is tried with on a device, and how long each is expected to take."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product as product_of
from math import ceil

from wavefit.native.opencl.kernels import _tiles
from wavefit.native.opencl.kernels._product import Product
from wavefit.native.opencl.kernels._tiles import Tile
from wavefit.native.operation import Config, Limits

_TILES = (
    Tile(128, 128, 16, 8, 8),
    Tile(128, 128, 8, 8, 8),
    Tile(128, 64, 8, 8, 4),
    Tile(128, 128, 4, 8, 8),
    Tile(64, 128, 8, 4, 8),
    Tile(32, 64, 8, 2, 4),
    Tile(128, 64, 16, 8, 8),
    Tile(128, 64, 16, 8, 4),
    Tile(64, 128, 16, 4, 8),
    Tile(64, 128, 16, 8, 8),
    Tile(64, 64, 16, 4, 8),
    Tile(64, 64, 16, 8, 8),
    Tile(64, 64, 16, 4, 4),
    Tile(64, 64, 8, 4, 4),
    Tile(64, 32, 16, 4, 4),
    Tile(32, 64, 16, 4, 4),
    Tile(32, 128, 16, 4, 8),
    Tile(32, 64, 16, 2, 4),
    Tile(32, 32, 16, 2, 4),
    Tile(32, 32, 32, 2, 4),
    Tile(16, 64, 16, 2, 4),
    Tile(16, 64, 32, 1, 4),
    Tile(8, 64, 16, 1, 4),
    Tile(8, 128, 8, 1, 4),
)
_SPLITS = (1, 2, 3, 4, 6, 8, 12, 16, 24)


def configurations(product: Product, widths: tuple[int, int], limits: Limits) -> Iterator[Config]:
    """Tiles by predicted time, those first that the device can hold."""
    found = {}
    unrolled = _unrolled(limits)
    for shape, split, unroll in product_of(_TILES, _SPLITS, unrolled):
        tile = replace(shape, split=split, unroll=unroll)
        if allowed(tile, widths, product, limits):
            found[tile] = seconds(product, tile, limits)
    if not found:
        smallest = Tile(32, 32, 16, 2, 4, unroll=unrolled[0])
        found[smallest] = seconds(product, smallest, limits)
    for tile in sorted(found, key=lambda each: found[each]):
        yield _tiles.config(tile)


def _unrolled(limits: Limits) -> tuple[int, ...]:
    """How many steps of the inner loop are written out.

    Few on a CPU: PoCL 3.0 computes nonsense of a tile of 64 by 32 by 16 whose depth of 7 is written out whole.
    """
    if limits.kind == "cpu":
        return (4,)
    return (2, 4) if limits.gfx else (16,)


def allowed(tile: Tile, widths: tuple[int, int], product: Product, limits: Limits) -> bool:
    """Whether the device can hold the tile, with enough waves to hide its memory's latency, and the tile has work."""
    if (
        not _tiles.fits(tile, widths)
        or tile.k > (product.arithmetic.most_elements or tile.k)
        or tile.items > limits.work_group
        or tile.local_bytes > limits.local_bytes
    ):
        return False
    least = _LEAST_WAVES if limits.gfx else _LEAST_WAVES / 2  # NVIDIA's compiler overlaps more within one
    if limits.kind == "gpu" and (tile.items % limits.wave or waves(tile, widths, product, limits) < least):
        return False
    if tile.split > 1 and product.length < 2 * tile.split * tile.k:
        return False
    return tile.registers(product.arithmetic, widths) <= limits.most_registers


_LEAST_WAVES = 4
"""Waves of a SIMD: with fewer, a GPU waits for its memory between two pieces."""


def waves(tile: Tile, widths: tuple[int, int], product: Product, limits: Limits) -> float:
    """Waves that one SIMD holds at once, by registers and by local memory."""
    by_local = _groups_by_local(tile, limits) * _waves_of_group(tile, limits) / limits.simds
    if limits.registers is None:
        return min(by_local, _LEAST_WAVES)
    most = limits.registers // _held(tile, product, limits, widths)
    return min(most, by_local, limits.waves or most)


_CU_LOCAL_BYTES = 65536


def _waves_of_group(tile: Tile, limits: Limits) -> int:
    return -(-tile.items // max(limits.wave, 1))


def _held(tile: Tile, product: Product, limits: Limits, widths: tuple[int, int] = (4, 4)) -> int:
    """Registers that a work-item is given."""
    granule = max(limits.register_granule, 1)
    return -(-tile.registers(product.arithmetic, widths) // granule) * granule


def _groups_by_local(tile: Tile, limits: Limits) -> int:
    """Work-groups whose local memory a compute unit holds; an SM of NVIDIA's has 100 to 228 KiB of it."""
    return max(1, (_CU_LOCAL_BYTES if limits.gfx else 4 * limits.local_bytes) // tile.local_bytes)


def _resident(tile: Tile, product: Product, limits: Limits) -> int:
    """Whole work-groups that a compute unit runs at once."""
    held = _held(tile, product, limits)
    by_registers = (limits.registers or 4 * held) // held * limits.simds // _waves_of_group(tile, limits)
    return max(1, min(by_registers, _groups_by_local(tile, limits)))


_STEP_S = 5e-7  # that a step takes at least: from a load of global memory to its use, and a barrier
_LAUNCHES_S = (4e-6, 14e-6)  # of one kernel, and of two that wait for each other


def seconds(product: Product, tile: Tile, limits: Limits) -> float:
    """A roofline with whole tiles on whole compute units, and steps that have a least duration.

    Elements of several depths take as long as floats where the device multiplies them in one instruction.

    A tile's share of the peak grows with the products per element read from local memory, item_m * item_n / (item_m +
    item_n), which is 4 for 8x8. Short steps pay for their barrier; a compute unit with one work-group alone waits at
    every barrier. The numbers were fitted to an H200 (30 tiles of each of 12 products, from 1 to 128 images): the tile
    that is ranked first takes 1.0 to 1.2 times the best one's time there.
    """
    units, peak, bandwidth = limits.compute_units or 16, limits.flops or 1e12, limits.bandwidth or 1e11
    groups = _tiles.groups(tile, product.rows, product.columns, product.batch)
    here = max(1, min(_resident(tile, product, limits), -(-groups // units)))
    reuse = tile.item_m * tile.item_n / (tile.item_m + tile.item_n)
    share = 1.1 * reuse / (reuse + 2) * tile.k / (tile.k + 0.5) * {1: 0.7, 2: 0.95}.get(here, 1.0)
    arithmetic = product.arithmetic
    work = 2 * tile.m * tile.n * (tile.k * arithmetic.instructions + arithmetic.ending)
    work *= 2 if _single_issue(product, limits) else 1
    step = max(here * work / (peak / units * share), _STEP_S)
    steps = ceil(ceil(product.length / tile.k) / tile.split) + 1
    compute = -(-groups // (units * here)) * steps * step
    return max(compute, _traffic(product, tile) / bandwidth) + partial_sums(product, tile.split, bandwidth)


def _single_issue(product: Product, limits: Limits) -> bool:
    """Whether the peak counts two instructions at once, and integers' products go one at a time.

    RDNA 3 and 4: AMD, "RDNA3" ISA, 7.6 (Dual Issue VALU), whose opcodes have floats' multiply-add and dot product of
    halves, and no integers' product.
    """
    dual = limits.gfx is not None and limits.gfx.startswith(("gfx11", "gfx12"))
    return dual and product.arithmetic.sums == "int"


def _traffic(product: Product, tile: Tile) -> float:
    """Bytes through memory: each factor once, or a third of how often tiles read it, which the cache does not hold."""
    across, down = -(-product.columns // tile.n), -(-product.rows // tile.m)
    first, second = _bytes(product)
    again = (product.rows * across * first + product.columns * down * second) / 3
    return max(least_bytes(product), product.batch * again)


def least_bytes(product: Product) -> int:
    """Of both factors and the result, each once."""
    first, second = _bytes(product)
    result = product.columns * product.operation.output.itemsize
    return product.batch * (product.rows * (result + first) + product.columns * second)


def _bytes(product: Product) -> tuple[int, int]:
    """Of a row of the first factor, and of a column of the second."""
    first, second = (product.depth * product.operation.input(number).itemsize for number in (0, 1))
    return first, second


def partial_sums(product: Product, split: int, bandwidth: float) -> float:
    """Seconds of launches, and of writing and reading partial sums."""
    if split == 1:
        return _LAUNCHES_S[0]
    return _LAUNCHES_S[1] + 8 * split * product.batch * product.rows * product.columns / bandwidth
