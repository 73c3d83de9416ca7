"""Elementwise expressions: what a fused chain computes for each element, as data.

Operands are numbered 0, 1, ..., and the results of the steps go on from there: in an expression of two operands, step 0
makes number 2. The last step is what is stored. Operands broadcast as numpy's do.
"""

from __future__ import annotations

from wavefit.schema import Struct

Argument = int | float
"""An int is the number of an operand or step; a float is a constant."""


class Apply(Struct, frozen=True, kw_only=True):
    """One function of scalars.

    ``function`` is a key of :data:`wavefit.native.opencl.functions.FUNCTIONS`; ``dtype`` is numpy's name of the result.
    Floats are computed in float32 whatever type they are stored in.
    """

    function: str
    arguments: tuple[Argument, ...]
    dtype: str = "float32"


class Pointwise(Struct, frozen=True, kw_only=True):
    """An expression of ``operands`` operands."""

    operands: int
    steps: tuple[Apply, ...]


def then(first: Pointwise | None, second: Pointwise, place: int) -> Pointwise:
    """``second`` applied with the result of ``first`` as its operand ``place``.

    The operands of the result are those of ``first``, then those of ``second`` without that one. None for ``first``
    stands for a bare operand 0.
    """
    first = first or Pointwise(operands=1, steps=())
    operands = first.operands + second.operands - 1
    moved = len(second.steps) and operands - first.operands

    def of_first(number: Argument) -> Argument:
        return number if isinstance(number, float) or number < first.operands else number + moved

    def of_second(number: Argument) -> Argument:
        if isinstance(number, float):
            return number
        if number == place:
            return operands + len(first.steps) - 1 if first.steps else 0
        if number < second.operands:
            return first.operands + number - (number > place)
        return number - second.operands + operands + len(first.steps)

    steps = [_renumbered(step, of_first) for step in first.steps]
    steps += [_renumbered(step, of_second) for step in second.steps]
    return Pointwise(operands=operands, steps=tuple(steps))


def _renumbered(step: Apply, number: object) -> Apply:
    assert callable(number)
    return Apply(
        function=step.function, arguments=tuple(number(each) for each in step.arguments), dtype=step.dtype
    )
