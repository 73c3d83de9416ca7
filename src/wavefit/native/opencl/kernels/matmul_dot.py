"""Products with a constant matrix in int8, or in halves two at a time; see :mod:`_words`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from wavefit.native import space
from wavefit.native.opencl.kernels import _choice, _product, _source, _tiles, _words, matmul
from wavefit.native.opencl.kernels._product import Product
from wavefit.native.opencl.kernels._tiles import Side
from wavefit.native.operation import Config, Implementation, Limits, Operation, Packed

OPS = ("MatMul",)


def claims(operation: Operation) -> bool:
    """One matrix for the whole batch."""
    a, b = operation.input(0), operation.input(1)
    return (
        _words.claims(operation)
        and len(a.shape) >= 2
        and len(b.shape) == 2
        and _source.present(operation)
        and not space.far(operation)
    )


offered = _words.offered


def configurations(operation: Operation, limits: Limits) -> Iterator[Config]:
    """As for a matrix product, and ``sums``: how words are multiplied; ``tile_k`` counts words."""
    how = _words.sums(operation, limits)
    product, a = _arranged(operation, how)
    for config in _choice.configurations(product, (a.width, 4), limits):
        yield {**config, "sums": how}


def build(operation: Operation, config: Config) -> Implementation:
    product, a = _arranged(operation, str(config["sums"]))
    packed = (Packed(input=1, how="words"),)
    return _product.implementation("matmul_dot", product, a, _words.columns(product), config, packed)


def pack(how: str, operation: Operation, array: np.ndarray) -> np.ndarray:
    """(depths, columns) as words; see :func:`_words.pack`."""
    return _words.pack(operation, array.T[:, None])


def cost(operation: Operation, config: Config, limits: Limits) -> float:
    product, _ = _arranged(operation, str(config["sums"]))
    return _choice.seconds(product, _tiles.tile(config), limits)


def _arranged(operation: Operation, how: str) -> tuple[Product, Side]:
    product, laid, _, steps = matmul.factors(operation)
    x, w = operation.input(0), operation.input(1)
    whole = _words.whole(x, len(x.shape) - 1)
    elements = _words.elements(w.shape[::-1], w.dtype)
    made = _words.in_words(product, elements, how, whole)
    return made, _words.rows(made, laid, steps[0], x)
