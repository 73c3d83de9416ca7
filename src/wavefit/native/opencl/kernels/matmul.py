"""Matrix products of any rank, with any strides: GEMM, batched GEMM, and products of vectors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from wavefit.native import space
from wavefit.native.opencl.kernels import _choice, _product, _source, _tiles
from wavefit.native.opencl.kernels._product import Product
from wavefit.native.opencl.kernels._tiles import Side
from wavefit.native.operation import Config, Implementation, Limits, Operation, View

OPS = ("MatMul",)
_TYPES = ({"float32", "float16"}, {"int8", "uint8"})


def claims(operation: Operation) -> bool:
    a, b = operation.input(0), operation.input(1)
    return (
        len(a.shape) >= 2
        and len(b.shape) >= 2
        and _source.present(operation)
        and any({a.dtype, b.dtype} <= types for types in _TYPES)
        and not space.far(operation)
    )


def configurations(operation: Operation, limits: Limits) -> Iterator[Config]:
    """``tile_m`` by ``tile_n`` by ``tile_k`` of a work-group, ``item_m`` by ``item_n`` of a work-item, ``split``."""
    product, a, b = _sides(operation)
    return _choice.configurations(product, (a.width, b.width), limits)


def build(operation: Operation, config: Config) -> Implementation:
    product, a, b = _sides(operation)
    return _product.implementation("matmul", product, a, b, config, ())


def cost(operation: Operation, config: Config, limits: Limits) -> float:
    product, _, _ = _sides(operation)
    return _choice.seconds(product, _tiles.tile(config), limits)


def _sides(operation: Operation) -> tuple[Product, Side, Side]:
    product, a, b, steps = factors(operation)
    product = replace(product, arithmetic=_tiles.plain(a.dtype))
    return (
        product,
        _product.matrix(product, "a", a, steps[0], "in0"),
        _product.matrix(product, "b", b, steps[1], "in1"),
    )


def factors(operation: Operation) -> tuple[Product, View, View, tuple[int, int]]:
    """The product, views of both factors over (batch..., rows..., columns), and the steps from depth to depth."""
    a, b, out = operation.input(0), operation.input(1), operation.output
    rank, depth = len(out.shape), a.shape[-1]
    wide_a = space.over(a, (*out.shape[:-1], depth))
    wide_b = space.over(b, (*out.shape[:-2], *b.shape[-2:]))
    over_a = View(shape=out.shape, strides=(*wide_a.strides[:-1], 0), offset=a.offset, dtype=a.dtype)
    over_b = View(
        shape=out.shape, strides=(*wide_b.strides[:-2], 0, wide_b.strides[-1]), offset=b.offset, dtype=b.dtype
    )
    shared = all(n == 1 or s == 0 for n, s in zip(out.shape[:-2], over_b.strides[:-2], strict=True))
    batch = [] if shared else list(range(rank - 2))
    rows = list(range(rank - 1)) if shared else [rank - 2]
    product, (laid_a, laid_b) = _product.arranged(
        operation, [batch, rows, [rank - 1]], [over_a, over_b], depth
    )
    steps = (wide_a.strides[-1], wide_b.strides[-2]) if depth > 1 else (1, 1)
    return product, laid_a, laid_b, steps
