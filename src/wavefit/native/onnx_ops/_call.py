"""One ONNX node being imported: what it is given, what it should make, the engine's nodes that stand for it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from wavefit.errors import InputError
from wavefit.native.graph import Node, Value
from wavefit.native.pointwise import Pointwise

Shape = tuple[int, ...]


@dataclass
class Call:
    """What a family's function reads and writes.

    Args:
        name: of the ONNX node, unique in the graph.
        op: the operator, with its domain where that is not the default.
        opset: version of the operator set that it is of.
        attributes: as the file has them; see :meth:`attribute`.
        inputs: None where an optional one is left out.
        outputs: what is to be made: inferred types; None where nobody reads it, or its shape is not known.
        nodes: the engine's nodes so far.
    """

    name: str
    op: str
    opset: int
    attributes: dict[str, Any]
    inputs: list[Value | None]
    outputs: list[Value | None]
    nodes: list[Node] = field(default_factory=list)
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    def attribute(self, name: str, default: Any = None) -> Any:
        """An attribute's number, string or tuple of numbers."""
        return self.attributes.get(name, default)

    def given(self, index: int) -> bool:
        """Whether an optional input is there."""
        return index < len(self.inputs) and self.inputs[index] is not None

    def input(self, index: int = 0) -> Value:
        """An input that must be there.

        Raises:
            InputError: it is not.
        """
        value = self.inputs[index] if index < len(self.inputs) else None
        if value is None:
            raise InputError(f"{self.called} lacks its input {index}", "export the model again")
        return value

    def optional(self, index: int) -> Value | None:
        return self.inputs[index] if self.given(index) else None

    def constant(self, index: int) -> np.ndarray | None:
        """The elements of an input; None where it is left out or computed."""
        value = self.optional(index)
        return None if value is None else value.constant

    def ints(self, index: int, attribute: str | None = None) -> tuple[int, ...] | None:
        """A list of integers from an input, or in old versions from an attribute; None where neither is known."""
        array = self.constant(index)
        if array is not None:
            return tuple(int(each) for each in array.reshape(-1))
        listed = self.attribute(attribute) if attribute and not self.given(index) else None
        return None if listed is None else tuple(int(each) for each in listed)

    @property
    def called(self) -> str:
        """The node in a sentence."""
        return f"{self.op} node {self.name!r}"

    def wanted(self, index: int) -> bool:
        """Whether anybody reads an optional output."""
        return index < len(self.outputs) and self.outputs[index] is not None

    def output(self, index: int = 0) -> Value:
        """An output whose type was inferred."""
        value = self.outputs[index]
        assert value is not None, self.called
        return value

    # ---- what stands for it -----------------------------------------------------------------------------------------

    def give(self, value: Value, index: int = 0) -> None:
        """Lets an output be a value that is there already."""
        self.outputs[index] = value

    def add(
        self,
        op: str,
        inputs: Sequence[Value | None],
        to: Value | Shape,
        epilogue: Pointwise | None = None,
        own: int = -1,
        **attributes: Any,
    ) -> Value:
        """Adds a node and returns its output: ``to``, or a new value of that shape and the first input's type."""
        if not isinstance(to, Value):
            first = next(value for value in inputs if value is not None)
            to = Value(self._fresh(), to, first.dtype)
        name = self.name if not self.nodes else f"{self.name}:{len(self.nodes)}"
        self.nodes.append(Node(op, name, list(inputs), [to], attributes, epilogue, own, source=(self.name,)))
        return to

    def fresh(self, shape: Shape, dtype: str) -> Value:
        """A new value, which a node is to make."""
        return Value(self._fresh(), shape, dtype)

    def value(self, array: np.ndarray) -> Value:
        """A new constant."""
        return Value(self._fresh(), array.shape, array.dtype.name, array)

    def reshape(self, value: Value, to: Value | Shape) -> Value:
        """The value's elements in another shape.

        Raises:
            InputError: there are more or fewer of them: a shape that was written for another batch.
        """
        shape = to.shape if isinstance(to, Value) else to
        if math.prod(shape) != value.size:
            raise InputError(
                f"{self.called} cannot make {list(shape)} of a tensor of {list(value.shape)}: "
                "its shape was written for other input sizes",
                "give those, or export the model with dynamic sizes",
            )
        if shape == value.shape:
            self.outputs = [value if made is to else made for made in self.outputs]
            return value
        if value.constant is not None and not isinstance(to, Value):
            return self.value(value.constant.reshape(shape))
        return self.add("Reshape", [value], to)

    def transpose(self, value: Value, perm: Sequence[int], to: Value | None = None) -> Value:
        perm = tuple(perm)
        if perm == tuple(range(len(perm))) and to is None:
            return value
        shape = tuple(value.shape[axis] for axis in perm)
        return self.add("Transpose", [value], to or shape, perm=perm)

    def axis(self, number: int, rank: int) -> int:
        """An axis counted from the front.

        Raises:
            InputError: there is no such axis.
        """
        if not -rank <= number < max(rank, 1):
            raise InputError(
                f"{self.called} has no axis {number}: its input has rank {rank}", "check the model"
            )
        return number % rank if rank else 0

    def _fresh(self) -> str:
        return f"{self.name}:{self.op}{next(self._numbers)}"
