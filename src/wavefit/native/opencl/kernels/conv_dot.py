"""Convolutions of one group in int8, or in halves two at a time, as implicit products of words.

As :mod:`conv_gemm`, whose tiles and input patches these are, with elements of four channels in int8 or two in half.
The first factor's zero point is what padding holds; see :mod:`_words` for how sums are put right for it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from wavefit.native.opencl.kernels import _choice, _conv, _product, _tiles, _words, conv_gemm
from wavefit.native.opencl.kernels._conv import Conv
from wavefit.native.opencl.kernels._product import Product
from wavefit.native.opencl.kernels.conv_gemm import Reading
from wavefit.native.operation import Config, Implementation, Limits, Operation, Packed

OPS = ("Conv",)


def claims(operation: Operation) -> bool:
    return _words.claims(operation) and conv_gemm.one_group(operation)


offered = _words.offered


def configurations(operation: Operation, limits: Limits) -> Iterator[Config]:
    """As for a matrix product, and ``sums``: how words are multiplied; ``tile_k`` counts words."""
    how = _words.sums(operation, limits)
    product, reading = _arranged(operation, how)
    for config in _choice.configurations(product, (reading.width, 4), limits):
        yield {**config, "sums": how}


def build(operation: Operation, config: Config) -> Implementation:
    product, reading = _arranged(operation, str(config["sums"]))
    a = conv_gemm.pixels(product, _conv.conv(operation), _tiles.tile(config), reading)
    packed = (Packed(input=1, how="words"),)
    return _product.implementation("conv_dot", product, a, _words.columns(product), config, packed)


def pack(how: str, operation: Operation, array: np.ndarray) -> np.ndarray:
    """(O, C, kernel...) as words; see :func:`_words.pack`."""
    return _words.pack(operation, array.reshape(*array.shape[:2], -1).swapaxes(1, 2))


def cost(operation: Operation, config: Config, limits: Limits) -> float:
    """A product's, an eighth more where places are computed."""
    product, _ = _arranged(operation, str(config["sums"]))
    factor = 1.0 if conv_gemm.plain(_conv.conv(operation), operation) else 1.125
    return _choice.seconds(product, _tiles.tile(config), limits) * factor


def _arranged(operation: Operation, how: str) -> tuple[Product, Reading]:
    product, _ = conv_gemm.arranged(operation)
    shape = _conv.conv(operation)
    whole = _words.whole(shape.x, 1)
    elements = _words.elements(shape.w.shape, shape.w.dtype)
    return _words.in_words(product, elements, how, whole), _reading(operation, shape, whole)


def _reading(operation: Operation, shape: Conv, whole: bool) -> Reading:
    count = _words.depths(shape.x.dtype)
    elements = -(-shape.ins // count)
    width = 4 if whole and elements % 4 == 0 else 1
    left = "" if whole else f"{shape.ins} - {{channel}}"
    text = _words.load(operation, width, 1, left)
    return Reading(
        count, elements, width, lambda place: text.replace("{at}", place), zero=_words.zero(operation)
    )
