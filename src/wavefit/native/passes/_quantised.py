"""What QuantizeLinear and DequantizeLinear look like in the engine's graph, as the importer makes them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wavefit.native.graph import Graph, Value
from wavefit.native.passes._match import given
from wavefit.native.pointwise import Apply, Argument

BYTES = ("int8", "uint8")


@dataclass(frozen=True, eq=False)
class Dequantised:
    """``(integers - zero_point) * scale``.

    Args:
        integers: int8 or uint8; of a constant also int32.
        scale: known, broadcasting to the integers' shape.
        zero_point: one number for all; None where it differs.
    """

    integers: Value
    scale: Value
    zero_point: int | None

    def like(self, other: Dequantised) -> bool:
        """Whether the same integers mean the same numbers."""
        one, two = self.scale.constant, other.scale.constant
        assert one is not None
        assert two is not None
        return (
            self.integers.dtype == other.integers.dtype
            and self.zero_point is not None
            and self.zero_point == other.zero_point
            and one.size == two.size == 1
            and bool(one.reshape(-1)[0] == two.reshape(-1)[0])
        )


def dequantised(graph: Graph, value: Value | None) -> Dequantised | None:
    """How a value is made of integers; None where it is made otherwise."""
    node = None if value is None else graph.producer(value)
    if node is None or node.op != "Pointwise" or node.epilogue is None or len(node.inputs) not in (2, 3):
        return None
    integers, scale = given(node.inputs[0]), given(node.inputs[1])
    dtypes = BYTES if integers.constant is None else (*BYTES, "int32")
    if integers.dtype not in dtypes or scale.constant is None:
        return None
    rest, zero_point = _without_zero_point(
        list(node.epilogue.steps), given(node.inputs[-1]), len(node.inputs)
    )
    first = len(node.inputs)
    functions = [(step.function, step.arguments) for step in rest]
    cast = ("cast", (0,))
    if functions[:1] != [cast] or len(functions) != 2 or functions[1][0] != "mul":
        return None
    last = node.epilogue.steps[-1].arguments
    if last != (first + len(node.epilogue.steps) - 2, 1):
        return None
    return Dequantised(integers, scale, zero_point)


def _without_zero_point(steps: list[Apply], zero: Value, operands: int) -> tuple[list[Apply], int | None]:
    """The steps but those that subtract the zero point, and that point."""
    subtracted = [n for n, step in enumerate(steps) if step.function == "sub"]
    if not subtracted:
        return steps, 0 if operands == 2 else None
    (place, *more) = subtracted
    arguments = steps[place].arguments
    if more or arguments[0] != operands:
        return [], None
    if operands == 2 and isinstance(arguments[1], float):
        return steps[:place] + steps[place + 1 :], int(arguments[1])
    if operands == 3 and place == 2 and (steps[1].function, steps[1].arguments) == ("cast", (2,)):
        return steps[:1] + steps[3:], None
    return [], None


def numbers(found: Dequantised, zero: np.ndarray | None = None) -> np.ndarray | None:
    """What constant integers stand for, in float32; None where they are computed, or their zero points differ."""
    integers, scale = found.integers.constant, found.scale.constant
    if integers is None or scale is None or found.zero_point is None:
        return None
    return ((integers.astype(np.float64) - found.zero_point) * scale).astype(np.float32)


def quantises(graph: Graph, value: Value) -> tuple[Value, Argument] | None:
    """The scale and zero point with which a value is made of a float, by one QuantizeLinear; see the importer."""
    node = graph.producer(value)
    if node is None or node.op != "Pointwise" or node.epilogue is None or len(node.inputs) != 2:
        return None
    steps = node.epilogue.steps
    names = [step.function for step in steps]
    if names not in (["div", "round", "clip", "cast"], ["div", "round", "add", "clip", "cast"]):
        return None
    if steps[0].arguments != (0, 1) or steps[-1].dtype not in BYTES:
        return None
    zero = steps[2].arguments[1] if names[2] == "add" else 0.0
    return given(node.inputs[1]), zero
