"""A node as the counting rules see it: its operator, attributes and concrete shapes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

Shape = tuple[int, ...]


class UnknownShape(Exception):
    """A rule needs a shape, or an attribute, that is not known."""


class Operation(NamedTuple):
    """One node. An absent optional input, or an unknown shape, is None."""

    kind: str
    attributes: Mapping[str, Any]
    ins: tuple[Shape | None, ...]
    outs: tuple[Shape | None, ...]

    def has(self, index: int) -> bool:
        return index < len(self.ins) and self.ins[index] is not None

    def shape(self, index: int) -> Shape:
        """The shape of an input.

        Raises:
            UnknownShape: it is absent or unknown.
        """
        if not self.has(index):
            raise UnknownShape
        return self.ins[index]  # type: ignore[return-value]

    def size(self, index: int = 0) -> int:
        """Elements of an input."""
        return math.prod(self.shape(index))

    def out_shape(self, index: int = 0) -> Shape:
        shape = self.outs[index] if index < len(self.outs) else None
        if shape is None:
            raise UnknownShape
        return shape

    def out_size(self, index: int = 0) -> int:
        """Elements of an output."""
        return math.prod(self.out_shape(index))


Rule = Callable[[Operation], int]


def per_output(count: int) -> Rule:
    """So many FLOPs for each element of the first output."""
    return lambda operation: count * operation.out_size()


def per_input(count: int) -> Rule:
    """So many FLOPs for each element of the first input."""
    return lambda operation: count * operation.size()
