"""Writes a scaled stretch into a graph: constants that take up the factor, and a Mul where none does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from wavefit.precision.graph import constant
from wavefit.precision.half.rewire import add_constant
from wavefit.precision.half.scaling_rules import rule
from wavefit.precision.half.stretch import Coefficients, constants, edges, touched
from wavefit.precision.names import Names

if TYPE_CHECKING:
    import onnx_ir as ir

_EPSILON = 1e-5  # the specification's default of every normalisation


@dataclass(frozen=True)
class Made:
    """What a new Mul makes: an old value times a power of two."""

    name: str
    source: str
    exponent: int


def apply(model: ir.Model, coefficients: Coefficients, exponent: int) -> list[Made]:
    """Scales every value of the stretch by 2^(coefficient x exponent), in place; returns what new Muls make.

    Names of values stay; each is another number from then on.
    """
    writer = _Writer(model, exponent)
    for node in list(touched(model, coefficients)):
        writer.write(node, coefficients)
    return writer.made


class _Writer:
    def __init__(self, model: ir.Model, exponent: int) -> None:
        self._graph = model.graph
        self._names = Names(model)
        self._exponent = exponent
        self._muls: dict[tuple[str, int], ir.Value] = {}
        self.made: list[Made] = []

    def write(self, node: ir.Node, coefficients: Coefficients) -> None:
        allowed = rule(node)
        read = edges(node, allowed, coefficients)
        for index, coefficient in constants(node, allowed, coefficients):
            self._constant(node, index, int(coefficient * self._exponent))
        if allowed.epsilon and read:
            self._epsilon(node, int(2 * read[0].wanted * self._exponent))
        for edge in read:
            shift = (edge.wanted - coefficients.get(str(edge.value.name), 0)) * self._exponent
            if shift:
                node.replace_input_with(edge.index, self._mul(edge.value, int(shift)))

    def _constant(self, node: ir.Node, index: int, shift: int) -> None:
        value = node.inputs[index]
        array = constant(value)
        if not shift or value is None or array is None:
            return
        name = self._names.fresh(f"{value.name}_scaled")
        scaled = array * array.dtype.type(2.0**shift)
        node.replace_input_with(index, add_constant(self._graph, name, scaled))

    def _epsilon(self, node: ir.Node, shift: int) -> None:
        import onnx_ir as ir

        given = node.attributes.get("epsilon")
        epsilon = float(given.as_float()) if given is not None else _EPSILON
        node.attributes["epsilon"] = ir.AttrFloat32("epsilon", epsilon * 2.0**shift)

    def _mul(self, value: ir.Value, shift: int) -> ir.Value:
        import numpy as np
        import onnx_ir as ir

        key = (str(value.name), shift)
        if key not in self._muls:
            name = self._names.fresh(f"{value.name}_scaled")
            factor = add_constant(
                self._graph, self._names.fresh(f"{name}_by"), np.array(2.0**shift, np.float32)
            )
            node = ir.node("Mul", [value, factor], name=self._names.fresh(name))
            output = node.outputs[0]
            output.name, output.type, output.shape = name, value.type, value.shape
            producer = value.producer()
            if producer is not None:
                self._graph.insert_after(producer, node)
            else:
                self._graph.insert_before(self._graph[0], node)
            self._muls[key] = output
            self.made.append(Made(name, str(value.name), shift))
        return self._muls[key]
