"""Which Pointwise nodes compute scale * x + shift with constant scale and shift."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from wavefit.native.graph import Node, Value
from wavefit.native.passes._match import given
from wavefit.native.pointwise import Apply

_FLOATS = ("float32", "float16")


@dataclass(eq=False)
class Affine:
    """scale * source + shift; both broadcast to the source's shape, in float64."""

    source: Value
    scale: np.ndarray
    shift: np.ndarray


_Term = tuple[np.ndarray | None, np.ndarray]
"""The factor of x, None where a term has no x, and what is added."""


def affine(node: Node) -> Affine | None:
    """The scale and shift of a Pointwise of one computed operand; None where it is no affine function of it."""
    computed = {value for value in node.inputs if value is not None and value.constant is None}
    if node.epilogue is None or len(computed) != 1 or not node.epilogue.steps:
        return None
    source = computed.pop()
    if source.dtype not in _FLOATS or source.shape != node.output.shape or node.output.dtype not in _FLOATS:
        return None
    terms: list[_Term] = [_operand(given(value), source) for value in node.inputs]
    for step in node.epilogue.steps:
        term = _applied(step, terms)
        if term is None:
            return None
        terms.append(term)
    scale, shift = terms[-1]
    if scale is None or not (np.isfinite(scale).all() and np.isfinite(shift).all()):
        return None
    return Affine(source, scale, shift)


def per_channel(array: np.ndarray, rank: int, axis: int, size: int) -> np.ndarray | None:
    """An array that differs along one axis at most, as a vector; None where it differs along others."""
    if array.ndim > rank:
        return None
    shape = (1,) * (rank - array.ndim) + array.shape
    if any(n != 1 for place, n in enumerate(shape) if place != axis):
        return None
    return np.ascontiguousarray(np.broadcast_to(array.reshape(-1), (size,)))


def _operand(value: Value, source: Value) -> _Term:
    if value is source:
        return np.ones(()), np.zeros(())
    assert value.constant is not None
    return None, value.constant.astype(np.float64)


def _applied(step: Apply, terms: list[_Term]) -> _Term | None:
    rule = _RULES.get(step.function)
    if rule is None or step.dtype not in _FLOATS:
        return None
    given_terms = [
        (None, np.asarray(a, np.float64)) if isinstance(a, float) else terms[a] for a in step.arguments
    ]
    with np.errstate(all="ignore"):
        return rule(*given_terms)


def _add(one: _Term, other: _Term) -> _Term:
    scales = [each[0] for each in (one, other) if each[0] is not None]
    scale = None if not scales else scales[0] if len(scales) == 1 else scales[0] + scales[1]
    return scale, one[1] + other[1]


def _neg(one: _Term) -> _Term:
    return None if one[0] is None else -one[0], -one[1]


def _sub(one: _Term, other: _Term) -> _Term:
    return _add(one, _neg(other))


def _mul(one: _Term, other: _Term) -> _Term | None:
    if one[0] is not None and other[0] is not None:
        return None
    if one[0] is None and other[0] is None:
        return None, one[1] * other[1]
    (scale, shift), (_, factor) = (one, other) if one[0] is not None else (other, one)
    assert scale is not None
    return scale * factor, shift * factor


def _div(one: _Term, other: _Term) -> _Term | None:
    if other[0] is not None:
        return None
    return None if one[0] is None else one[0] / other[1], one[1] / other[1]


def _fma(one: _Term, other: _Term, addend: _Term) -> _Term | None:
    product = _mul(one, other)
    return None if product is None else _add(product, addend)


def _same(one: _Term) -> _Term:
    return one


def _of_constant(function: Callable[[np.ndarray], np.ndarray]) -> Callable[[_Term], _Term | None]:
    def rule(one: _Term) -> _Term | None:
        return (None, function(one[1])) if one[0] is None else None

    return rule


_RULES: dict[str, Callable[..., _Term | None]] = {
    "add": _add,
    "sub": _sub,
    "neg": _neg,
    "mul": _mul,
    "div": _div,
    "fma": _fma,
    "copy": _same,
    "cast": _same,
    "sqrt": _of_constant(np.sqrt),
    "reciprocal": _of_constant(np.reciprocal),
}
