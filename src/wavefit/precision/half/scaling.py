"""Smaller or larger numbers in place of an island: a stretch of the graph is scaled by a power of two, and back.

The inference twin of loss scaling. The factor is folded into constant weights at both ends of the stretch, or stands
there as a Mul. Powers of two change no digit: in fp32 the answers stay the same, as long as no number is denormal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from wavefit.precision.graph import constant, copy, is_float, nodes
from wavefit.precision.half.hazards import MARGIN, lost, overflows
from wavefit.precision.half.hazards import hazards as find_hazards
from wavefit.precision.half.scaling_apply import apply
from wavefit.precision.half.scaling_rules import rule
from wavefit.precision.half.stretch import Coefficients, Edge, consistent, constants, edges, grow, touched
from wavefit.precision.half.value_range import HALF_MAX, HALF_SMALLEST, Range, describe
from wavefit.schema import KeptNode, Precision, Scaled

if TYPE_CHECKING:
    import onnx_ir as ir

_DOWN, _UP = range(-1, -31, -1), range(1, 31)  # exponents tried, the nearest first
_SPARE = 3  # bits that a stretch of small numbers is raised further, where there is room
_NODES_A_MUL = 16  # values that a factor may be carried on through to save one Mul
_MUL_DOWN, _MUL_UP = -14, 15  # powers of two that are normal halves


@dataclass(frozen=True)
class Rescaled:
    """A graph of which more can be half.

    Args:
        model: a copy, with the names of nodes and values that the graph had, and a Mul here and there.
        scaled: the stretches.
        left: what cannot be half even so.
    """

    model: ir.Model
    scaled: tuple[Scaled, ...]
    left: tuple[KeptNode, ...]


@dataclass(frozen=True)
class _Seed:
    """A value that half cannot hold, the way it is to be scaled (1 up, -1 down), and the node that it hinders."""

    value: ir.Value
    sign: int
    kept: KeptNode

    @property
    def key(self) -> tuple[str, int]:
        return str(self.value.name), self.sign


@dataclass(frozen=True)
class _Stretch:
    coefficients: Coefficients
    exponent: int
    ranges: dict[str, Range]  # of the whole graph with the stretch scaled
    muls: int

    @property
    def cost(self) -> float:
        return _NODES_A_MUL * self.muls + len(self.coefficients)


def rescale(
    model: ir.Model, ranges: Mapping[str, Range], hazards: Sequence[KeptNode], low: Precision = "fp16"
) -> Rescaled:
    """Scales the stretches around what cannot be ``low``, each where that leaves fewer nodes in fp32.

    Args:
        ranges: of every float value, from :func:`wavefit.precision.half.ranges.observe`.
        hazards: what :func:`wavefit.precision.half.hazards.hazards` found; nothing is done where it is empty.
    """
    edited, now, left = copy(model), dict(ranges), tuple(hazards)
    done: list[Scaled] = []
    tried: set[tuple[str, int]] = set()
    while left:
        seed = next((seed for seed in _seeds(edited, left, now) if seed.key not in tried), None)
        if seed is None:
            break
        tried.add(seed.key)
        found = _best(edited, now, left, seed, low)
        if found is None:
            continue
        stretch = tuple(str(node.name) for node in touched(edited, found.coefficients))
        reason = f"for {seed.kept.node!r}: {seed.kept.reason}"
        done.append(Scaled(nodes=stretch, factor=2.0**found.exponent, reason=reason))
        now = found.ranges
        for each in apply(edited, found.coefficients, found.exponent):
            now[each.name] = now[each.source].scaled(2.0**each.exponent)
        for name, value in edited.graph.initializers.items():
            array = constant(value)
            if name not in now and array is not None and is_float(value):
                now[name] = describe(array)
        left = find_hazards(edited, now, low)
    return Rescaled(edited, tuple(done), left)


def _seeds(model: ir.Model, left: Sequence[KeptNode], ranges: Mapping[str, Range]) -> Iterator[_Seed]:
    """The values around the nodes that half cannot hold, and which way each is to be scaled."""
    known = nodes(model)
    for kept in left:
        node = known[kept.node]
        for value, sign in (*_around(node, ranges, "smallest" in kept.figures), *_inside(node, ranges)):
            yield _Seed(value, sign, kept)


def _around(node: ir.Node, ranges: Mapping[str, Range], divides: bool) -> Iterator[tuple[ir.Value, int]]:
    for value in (*node.outputs, *node.inputs):
        found = ranges.get(str(value.name)) if value is not None else None
        if value is None or found is None:
            continue
        seed = _instead(node, value)
        if overflows(found):
            yield seed, -1
        elif lost(found) or (divides and 0 < found.smallest < MARGIN * HALF_SMALLEST):
            yield seed, 1


def _instead(node: ir.Node, value: ir.Value) -> ir.Value:
    """The value by whose factor a constant can be changed."""
    if constant(value) is None:
        return value
    moment = node.op_type == "BatchNormalization" and value in node.inputs[3:]
    read = node.inputs[0] if moment else None
    return read if read is not None else node.outputs[0]


def _inside(node: ir.Node, ranges: Mapping[str, Range]) -> Iterator[tuple[ir.Value, int]]:
    first = node.inputs[0] if node.inputs else None
    found = ranges.get(str(first.name)) if first is not None else None
    if first is not None and found is not None:
        if found.sums.get(str(node.name), 0.0) * MARGIN > HALF_MAX:
            yield first, -1
        elif found.divisors.get(str(node.name), 1.0) < MARGIN * HALF_SMALLEST:
            yield first, 1


def _best(
    model: ir.Model,
    ranges: Mapping[str, Range],
    left: Sequence[KeptNode],
    seed: _Seed,
    low: Precision,
) -> _Stretch | None:
    """The cheapest stretch around a value that leaves fewer nodes behind: folded far, or near with Muls."""
    stretches = []
    for reach in (_everywhere, lambda other: _must(other, ranges)):
        coefficients = grow(model, seed.value, reach)
        if coefficients is not None:
            found = _fitting(model, ranges, left, coefficients, seed.sign, low)
            if found is not None:
                stretches.append(found)
    return min(stretches, key=lambda stretch: stretch.cost, default=None)


def _fitting(
    model: ir.Model,
    ranges: Mapping[str, Range],
    left: Sequence[KeptNode],
    coefficients: Coefficients,
    sign: int,
    low: Precision,
) -> _Stretch | None:
    """The stretch with the exponent nearest to 0 that leaves the fewest nodes behind, none of them new."""
    before = {kept.node for kept in left}
    changed = {str(node.name) for node in touched(model, coefficients)}
    good: list[tuple[int, _Stretch]] = []
    for exponent in _DOWN if sign < 0 else _UP:
        found = _at(model, ranges, coefficients, exponent)
        if found is not None:
            still = {kept.node for kept in find_hazards(model, found.ranges, low, changed)}
            behind = (before - changed) | still
            if behind < before:
                good.append((len(behind), found))
    if not good:
        return None
    fewest = [found for count, found in good if count == min(count for count, _ in good)]
    spare = [found for found in fewest if 0 < found.exponent <= fewest[0].exponent + _SPARE]
    return spare[-1] if spare else fewest[0]


def _at(
    model: ir.Model, ranges: Mapping[str, Range], coefficients: Coefficients, exponent: int
) -> _Stretch | None:
    """The stretch with that exponent; None where a factor is no power of two, or something new no half."""
    if any((c * exponent).denominator != 1 for c in coefficients.values()):
        return None
    now = dict(ranges)
    for name, coefficient in coefficients.items():
        now[name] = ranges[name].scaled(2.0 ** int(coefficient * exponent))
    muls: set[tuple[str, Fraction]] = set()
    for node in touched(model, coefficients):
        allowed = rule(node)
        if not consistent(node, coefficients):
            return None
        for index, coefficient in constants(node, allowed, coefficients):
            if not _scale_constant(node.inputs[index], coefficient * exponent, now):
                return None
        for edge in edges(node, allowed, coefficients):
            name = str(edge.value.name)
            shift = (edge.wanted - coefficients.get(name, 0)) * exponent
            if shift and not _may_multiply(edge, shift, now[name]):
                return None
            if shift:
                muls.add((name, shift))
    return _Stretch(coefficients, exponent, now, len(muls))


def _scale_constant(value: ir.Value | None, shift: Fraction, now: dict[str, Range]) -> bool:
    """Scales a constant's range; False where the constant is then no half."""
    if value is None or not shift:
        return True
    if shift.denominator != 1:
        return False
    name = str(value.name)
    scaled = now[name].scaled(2.0 ** int(shift))
    if len(value.uses()) == 1:
        now[name] = scaled
    return not overflows(scaled) and (len(value.uses()) == 1 or not lost(scaled))


def _may_multiply(edge: Edge, shift: Fraction, found: Range) -> bool:
    """Whether a Mul by 2^shift may stand before a node in half."""
    if shift.denominator != 1 or not _MUL_DOWN <= shift <= _MUL_UP:
        return False
    after = found.scaled(2.0 ** int(shift))
    return (
        not _bad(found) and not _bad(after) and after.sums.get(str(edge.node.name), 0.0) * MARGIN <= HALF_MAX
    )


def _everywhere(_: ir.Value) -> bool:
    return True


def _must(value: ir.Value, ranges: Mapping[str, Range]) -> bool:
    """Whether half holds neither the value nor all that it is made of."""
    node = value.producer()
    made_of = node.inputs if node is not None else ()
    return any(_bad(ranges.get(str(each.name))) for each in (value, *made_of) if each is not None)


def _bad(found: Range | None) -> bool:
    return overflows(found) or lost(found)
