"""Matrix products of any rank: of a computed matrix with constant weights, or of two computed ones, in a batch.

Rows of all leading axes are one long list of rows where the second factor is the same for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from dataclasses import replace as changed

import numpy as np
from msgspec.structs import replace

from wavefit.native import space
from wavefit.native.operation import Config, Implementation, Limits, Operation, View
from wavefit.native.triton import text
from wavefit.native.triton.kernels import _product, _tiles
from wavefit.native.triton.kernels._product import Product, Side
from wavefit.native.triton.text import Axis

OPS = ("MatMul",)


def claims(operation: Operation) -> bool:
    a, b = operation.input(0), operation.input(1)
    small = a.dtype in _product.BYTES
    return (
        len(a.shape) >= 2
        and len(b.shape) >= 2
        and len(operation.outputs) == 1
        and _product.multiplies(a.dtype, b.dtype)
        and (not small or (_shared(operation) and operation.constant[1]))
        and text.present(operation)
        and text.computes(operation)
    )


def configurations(operation: Operation, limits: Limits) -> Iterator[Config]:
    """``m`` by ``n`` by ``k``, ``split``, ``warps``, ``stages``: see :class:`_product.Tile`."""
    form = _form(operation)
    return _tiles.configurations(form.product, None, lambda k: -(-form.depth // k), limits)


def cost(operation: Operation, config: Config, limits: Limits) -> float:
    form, each = _form(operation), _product.tile(config)
    return _tiles.seconds(form.product, each, -(-form.depth // each.k), limits)


def build(operation: Operation, config: Config) -> Implementation:
    form, each = _form(operation), _product.tile(config)
    product = form.product
    if form.packs:
        product = changed(product, packed=f"depth {each.k}")
    a = _factor(product, form.a, "a", each.k, form.depth, form.a_step)
    b = (
        _weights(form, each.k)
        if form.packs
        else _factor(product, form.b, "b", each.k, form.depth, form.b_step)
    )
    return _product.implementation("matmul", product, a, b, each, config, -(-form.depth // each.k))


def pack(how: str, operation: Operation, array: np.ndarray) -> np.ndarray:
    """(depth, columns) as (columns, depth), padded with zeros to whole steps."""
    turned = array.reshape(array.shape[-2:]).T
    if how == "sums":
        zero_point = int(operation.attributes.get("zero_point", 0))
        return _product.sums(turned, zero_point, operation.input(0).dtype)
    return np.pad(turned, ((0, 0), (0, -turned.shape[1] % int(how.split()[1]))))


@dataclass(frozen=True)
class _Form:
    """The product; views of both factors over (batch..., rows..., columns), and from depth to depth."""

    product: Product
    a: View
    b: View
    a_step: int
    b_step: int
    depth: int
    packs: bool


def _shared(operation: Operation) -> bool:
    """Whether all products have the same second factor."""
    out, b = operation.output, operation.input(1)
    wide = space.over(b, (*out.shape[:-2], *b.shape[-2:]))
    return all(n == 1 or s == 0 for n, s in zip(out.shape[:-2], wide.strides[:-2], strict=True))


def _form(operation: Operation) -> _Form:
    a, b, out = operation.input(0), operation.input(1), operation.output
    rank, depth = len(out.shape), a.shape[-1]
    wide_a = space.over(a, (*out.shape[:-1], depth))
    wide_b = space.over(b, (*out.shape[:-2], *b.shape[-2:]))
    over_a = replace(wide_a, shape=out.shape, strides=(*wide_a.strides[:-1], 0))
    over_b = replace(wide_b, shape=out.shape, strides=(*wide_b.strides[:-2], 0, wide_b.strides[-1]))
    shared = _shared(operation)
    batch = [] if shared else list(range(rank - 2))
    rows = list(range(rank - 1)) if shared else [rank - 2]
    views, ranks, (laid_a, laid_b) = _product.arranged(operation, [batch, rows, [rank - 1]], [over_a, over_b])
    first, second = ranks[0], ranks[0] + ranks[1]
    shape = views[0].shape
    product = Product(
        operation=operation,
        rows=int(np.prod(shape[first:second])),
        columns=int(np.prod(shape[second:])),
        depth=depth,
        batch=int(np.prod(shape[:first])),
        views=views,
        ranks=ranks,
        zero_point=int(operation.attributes.get("zero_point", 0)),
    )
    packs = shared and operation.constant[1]
    return _Form(product, laid_a, laid_b, wide_a.strides[-1], wide_b.strides[-2], depth, packs)


def _weights(form: _Form, k: int) -> Side:
    length = -(-form.depth // k) * k
    setup = (f"weights = in1 + (n[None, :] * {length} + k[:, None])",)
    operation = form.product.operation
    kind = _product.kind(operation)
    loaded = _product.factor(operation.input(1).dtype, kind, f"tl.load(weights + step * {k})")
    return Side(setup, (f"b = {loaded}",))


def _factor(product: Product, view: View, name: str, k: int, depth: int, step: int) -> Side:
    """A computed factor: rows by depth for ``a``, depth by columns for ``b``."""
    first, second = product.ranks[0], product.ranks[0] + product.ranks[1]
    along = slice(first, second) if name == "a" else slice(second, None)
    number, across, deep = ("m", "[:, None]", "[None, :]") if name == "a" else ("n", "[None, :]", "[:, None]")
    batch = _product.names(f"{name}z", first)
    side = _product.names(f"{name}i", len(view.shape[along]))
    setup = [
        *text.split("z", view.shape[:first], batch),
        *text.split(number, view.shape[along], side),
        f"{name}_at = "
        + _index(view, [*batch, *side], [*range(first), *range(*along.indices(len(view.shape)))]),
    ]
    place = f"{name}_at{across} + (step * {k} + k){deep} * {step}"
    guard = ""
    if depth % k:
        other = product.zero_point if product.small else 0.0
        guard = f", mask=(k < {depth} - step * {k}){deep}, other={other}"
    number_ = 0 if name == "a" else 1
    kind = _product.kind(product.operation)
    loaded = _product.factor(view.dtype, kind, f"tl.load(in{number_} + ({place}){guard})")
    return Side(tuple(setup), (f"{name} = {loaded}",))


def _index(view: View, names: list[str], axes: list[int]) -> str:
    """The place of a row's or column's first element; a tensor also where all lie at one place."""
    shown = View(
        shape=tuple(view.shape[axis] for axis in axes),
        strides=tuple(view.strides[axis] for axis in axes),
        offset=view.offset,
        dtype=view.dtype,
    )
    return f"{names[-1]} * 0 + {text.index(shown, [Axis(each) for each in names])}"
