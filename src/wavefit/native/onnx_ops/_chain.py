"""Elementwise operators as steps of one expression."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wavefit.native.graph import Value
from wavefit.native.onnx_ops._call import Call
from wavefit.native.pointwise import Apply, Argument, Pointwise

_LARGEST_EXACT = 1 << 24  # integers up to here are the same in every type


def is_float(dtype: str) -> bool:
    return dtype.startswith(("float", "bfloat"))


def step_type(dtype: str) -> str:
    """The type that a step makes: all floats are computed in float32."""
    return "float32" if is_float(dtype) else dtype


class Chain:
    """Steps over operands. Numbers that are known go into the steps as literals; equal values are one operand.

    Args:
        values: the operands; :attr:`arguments` says how steps name them.
        literals: whether known scalars become literals. A scale that differs from layer to layer should not:
            every layer would have a kernel of its own.
    """

    def __init__(self, values: Sequence[Value], literals: bool = True) -> None:
        self.values: list[Value] = []
        self.arguments: list[Argument] = []
        self.steps: list[Apply] = []
        numbers = [_literal(value) if literals else None for value in values]
        if all(number is not None for number in numbers):
            numbers[0] = None  # an expression has an operand at least
        for value, number in zip(values, numbers, strict=True):
            if number is None and value not in self.values:
                self.values.append(value)
            self.arguments.append(self.values.index(value) if number is None else number)

    def __call__(self, function: str, *arguments: Argument, dtype: str = "float32") -> int:
        """Adds a step and returns its number."""
        self.steps.append(Apply(function=function, arguments=arguments, dtype=dtype))
        return len(self.values) + len(self.steps) - 1

    def pointwise(self) -> Pointwise:
        steps = tuple(self.steps) or (
            Apply(function="copy", arguments=(0,), dtype=step_type(self.values[0].dtype)),
        )
        return Pointwise(operands=len(self.values), steps=steps)

    def add_to(self, call: Call, to: Value | tuple[int, ...]) -> Value:
        """A Pointwise node of it."""
        return call.add("Pointwise", self.values, to, self.pointwise(), own=0)


def _literal(value: Value) -> float | None:
    """The number that a constant of one element is. Infinities stay operands: JSON, which makes keys, has none."""
    if value.constant is None or value.size != 1 or value.dtype == "bool":
        return None
    if not is_float(value.dtype) and not np.issubdtype(value.constant.dtype, np.integer):
        return None
    number = float(value.constant.reshape(-1)[0])
    if not np.isfinite(number) or (not is_float(value.dtype) and abs(number) > _LARGEST_EXACT):
        return None
    return number
