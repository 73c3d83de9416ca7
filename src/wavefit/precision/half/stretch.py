"""A stretch of a graph that may be scaled: which values carry the factor, and where it is put in and taken out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from wavefit.precision.graph import constant, is_float
from wavefit.precision.half.scaling_rules import Rule, rule

if TYPE_CHECKING:
    import onnx_ir as ir

Coefficients = dict[str, Fraction]

_ZERO = Fraction(0)


@dataclass(frozen=True)
class Edge:
    """An input of a node that is to be read with a coefficient, whatever its value has."""

    node: ir.Node
    index: int
    value: ir.Value
    wanted: Fraction


def grow(model: ir.Model, seed: ir.Value, reach: Callable[[ir.Value], bool]) -> Coefficients | None:
    """The coefficients of all values of the stretch around ``seed``, which has 1; None where it cannot be scaled.

    Args:
        reach: whether the factor is carried on into a value; where not, an explicit Mul stands before the node.
    """
    found = _Growth(reach)
    if not found.assign(seed, Fraction(1), needed=True):
        return None
    while True:
        size = len(found.coefficients)
        for node in model.graph:
            found.forward(node)
        if len(found.coefficients) == size:
            return found.coefficients


class _Growth:
    def __init__(self, reach: Callable[[ir.Value], bool]) -> None:
        self.coefficients: Coefficients = {}
        self._reach = reach

    def assign(self, value: ir.Value, coefficient: Fraction, needed: bool = False) -> bool:
        """Gives a value its coefficient and what makes it what that takes; changes nothing where it cannot be done.

        Args:
            needed: whether it is done even past the reach.
        """
        name = str(value.name)
        if name in self.coefficients:
            return self.coefficients[name] == coefficient
        if not coefficient or not _scalable(value) or not (needed or self._reach(value)):
            return not coefficient
        before = dict(self.coefficients)
        self.coefficients[name] = coefficient
        if self._backward(value, coefficient):
            return True
        self.coefficients = before
        return False

    def _backward(self, value: ir.Value, coefficient: Fraction) -> bool:
        node = value.producer()
        assert node is not None
        allowed = rule(node)
        if allowed.kind == "fixed":
            return False
        if allowed.kind == "same":
            for index in allowed.data:  # an input that cannot have it is read through a Mul
                source = node.inputs[index]
                if source is not None and constant(source) is None:
                    self.assign(source, coefficient)
            return True
        return allowed.kind == "free" or self._carry(node, allowed, coefficient)

    def _carry(self, node: ir.Node, allowed: Rule, coefficient: Fraction) -> bool:
        """Lets one input of a product carry what the others do not; where none can, one is read through a Mul."""
        sources = [node.inputs[index] for index in allowed.data]
        if len(set(sources)) == 1 and sources[0] is not None:
            self.assign(sources[0], coefficient / sum(allowed.weights))
            return True
        pairs = list(zip(sources, allowed.weights, strict=True))
        gap = coefficient - sum((self._of(source) * weight for source, weight in pairs), _ZERO)
        for source, weight in pairs:
            if gap and source is not None and str(source.name) not in self.coefficients:
                gap = _ZERO if self.assign(source, gap / weight) else gap
        return True

    def forward(self, node: ir.Node) -> None:
        """Carries the factor of what a node reads on into what it makes, where the node lets it."""
        allowed = rule(node)
        if allowed.kind not in ("same", "sum") or not is_float(node.outputs[0]):
            return
        read = [self._of(node.inputs[index]) for index in allowed.data]
        if allowed.kind == "sum":
            made = sum((c * w for c, w in zip(read, allowed.weights, strict=True)), _ZERO)
        else:
            made = next((c for c in read if c), _ZERO)
        if made:
            for output in node.outputs:
                if is_float(output):
                    self.assign(output, made)

    def _of(self, value: ir.Value | None) -> Fraction:
        return self.coefficients.get(str(value.name), _ZERO) if value is not None else _ZERO


def _scalable(value: ir.Value) -> bool:
    """Whether a value is computed in the main graph, read only there, and not what the caller gets."""
    node = value.producer()
    if node is None or value.is_graph_output() or not is_float(value):
        return False
    return all(user.graph is node.graph for user, _ in value.uses())


def edges(node: ir.Node, allowed: Rule, coefficients: Mapping[str, Fraction]) -> list[Edge]:
    """What coefficient each computed input of a node is to be read with."""
    made = coefficients.get(str(node.outputs[0].name), _ZERO) if node.outputs else _ZERO
    found = []
    for index, value in enumerate(node.inputs):
        if value is None or not is_float(value) or constant(value) is not None:
            continue
        has = coefficients.get(str(value.name), _ZERO)
        found.append(Edge(node, index, value, _wanted(allowed, index, has, made)))
    return _balanced(found, allowed, made) if allowed.kind == "sum" else found


def _wanted(allowed: Rule, index: int, has: Fraction, made: Fraction) -> Fraction:
    if index not in allowed.data or allowed.kind == "fixed":
        return _ZERO
    return made if allowed.kind == "same" else has


def _balanced(found: list[Edge], allowed: Rule, made: Fraction) -> list[Edge]:
    """A product's inputs as they are where their sum is what it makes; else the first takes up the difference."""
    weights = dict(zip(allowed.data, allowed.weights, strict=True))
    gap = made - sum((weights[edge.index] * edge.wanted for edge in found if edge.index in weights), _ZERO)
    if not gap:
        return found
    same = {edge.value for edge in found if edge.index in weights}
    if len(same) == 1:
        each = made / sum(allowed.weights)
        return [Edge(edge.node, edge.index, edge.value, each) for edge in found]
    scaled = [edge for edge in found if edge.index in weights]
    chosen = max(scaled, key=lambda edge: abs(edge.wanted))  # one that has a factor already, if any
    wanted = chosen.wanted + gap / weights[chosen.index]
    return [Edge(e.node, e.index, e.value, wanted) if e is chosen else e for e in found]


def consistent(node: ir.Node, coefficients: Mapping[str, Fraction]) -> bool:
    """Whether all that a node makes has one coefficient: the parts of a Split, one of which the caller gets, do not."""
    made = {coefficients.get(str(value.name), _ZERO) for value in node.outputs if is_float(value)}
    return len(made) <= 1


def touched(model: ir.Model, coefficients: Mapping[str, Fraction]) -> Iterator[ir.Node]:
    """The nodes that make or read a scaled value, in the graph's order."""
    for node in model.graph:
        values = (*node.inputs, *node.outputs)
        if any(value is not None and str(value.name) in coefficients for value in values):
            yield node


def constants(
    node: ir.Node, allowed: Rule, coefficients: Mapping[str, Fraction]
) -> list[tuple[int, Fraction]]:
    """The constant inputs of a node that take a factor, and its coefficient."""
    made = coefficients.get(str(node.outputs[0].name), _ZERO) if node.outputs else _ZERO
    if allowed.kind == "same":
        fixed = [index for index in allowed.data if constant(node.inputs[index]) is not None]
        return [(index, made) for index in fixed]
    if allowed.kind != "free":
        return []
    data = node.inputs[allowed.data[0]]
    read = coefficients.get(str(data.name), _ZERO) if data is not None else _ZERO
    return [(index, factor(read, made)) for index, factor in allowed.constants.items()]
