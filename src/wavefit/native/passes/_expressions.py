"""Elementwise expressions together with the values that are their operands: joined, and made short."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wavefit.native.graph import Value
from wavefit.native.pointwise import Apply, Argument, Pointwise, then

_LARGEST_EXACT = 1 << 24  # integers up to here are the same in every type

Expression = tuple[list[Value], Pointwise]
"""The values of the operands, and what is computed of them."""


def join(producer: Expression, consumer: Expression, value: Value, kept: int = 0) -> Expression:
    """The consumer's expression with the producer's in place of its operand ``value``.

    Args:
        producer: makes ``value``.
        consumer: reads ``value``, at one place or at several.
        value: what is no longer stored.
        kept: operands of the producer that stay in front, read or not.
    """
    inputs, pointwise = tidy(*consumer)
    place = inputs.index(value)
    joined = then(producer[1], pointwise, place)
    return tidy([*producer[0], *inputs[:place], *inputs[place + 1 :]], joined, kept)


def tidy(inputs: Sequence[Value], pointwise: Pointwise, kept: int = 0) -> Expression:
    """The same expression with every operand and every step once, and none that the result does not need.

    Args:
        inputs: one for each operand.
        pointwise: the expression.
        kept: the first operands, which stay where they are, read or not.
    """
    steps, result = _distinct(inputs, pointwise)
    needed = _needed(steps, result, len(inputs))
    operands = [n for n in range(len(inputs)) if n < kept or n in needed]
    order = operands + [n for n in range(len(inputs), len(inputs) + len(steps)) if n in needed]
    number = {old: new for new, old in enumerate(order)}
    renumbered = [
        _with_arguments(
            steps[old - len(inputs)], [a if isinstance(a, float) else number[a] for a in arguments]
        )
        for old in order[len(operands) :]
        for arguments in [steps[old - len(inputs)].arguments]
    ]
    if (
        not renumbered and number[result] != 0
    ):  # the last step is what is stored, and operand 0 where there is none
        renumbered = [Apply(function="copy", arguments=(number[result],), dtype=inputs[result].dtype)]
    return [inputs[n] for n in operands], Pointwise(operands=len(operands), steps=tuple(renumbered))


def _distinct(inputs: Sequence[Value], pointwise: Pointwise) -> tuple[list[Apply], int]:
    """The steps, each once, numbered on from the operands, and the number of the result."""
    first: dict[Value, int] = {}
    known: list[Argument] = [first.setdefault(value, n) for n, value in enumerate(inputs)]
    dtypes = [value.dtype for value in inputs]
    steps: list[Apply] = []
    made: dict[Apply, int] = {}
    for number, step in enumerate(pointwise.steps):
        step = _with_arguments(step, [a if isinstance(a, float) else known[a] for a in step.arguments])
        last = number == len(pointwise.steps) - 1
        same = _no_change(step, dtypes, last)
        if same is None and step not in made:
            made[step] = len(inputs) + len(steps)
            steps.append(step)
            dtypes.append(step.dtype)
        known.append(made[step] if same is None else same)
    result = known[-1]
    assert isinstance(result, int)
    return steps, result


def _no_change(step: Apply, dtypes: Sequence[str], last: bool) -> int | None:
    """The number of what a step only repeats: a copy, or a cast to the type that its argument is computed in already.

    Halves are computed as floats, so that a cast between the two changes nothing before it is stored.
    """
    source = step.arguments[0]
    if step.function not in ("copy", "cast") or isinstance(source, float):
        return None
    if dtypes[source] == step.dtype:
        return source
    return source if not last and {dtypes[source], step.dtype} == {"float16", "float32"} else None


def _needed(steps: Sequence[Apply], result: int, operands: int) -> set[int]:
    needed, open_ = set(), [result]
    while open_:
        number = open_.pop()
        if number in needed:
            continue
        needed.add(number)
        if number >= operands:
            open_ += [a for a in steps[number - operands].arguments if not isinstance(a, float)]
    return needed


def _with_arguments(step: Apply, arguments: Sequence[Argument]) -> Apply:
    return Apply(function=step.function, arguments=tuple(arguments), dtype=step.dtype)


def readers(pointwise: Pointwise, operand: int) -> list[Apply]:
    """The steps that read an operand."""
    return [step for step in pointwise.steps if any(_is(a, operand) for a in step.arguments)]


def with_literal(pointwise: Pointwise, operand: int, value: float) -> Pointwise:
    """The expression with a constant in place of an operand, which it has no longer."""

    def moved(argument: Argument) -> Argument:
        if isinstance(argument, float) or argument < operand:
            return argument
        return value if argument == operand else argument - 1

    steps = [_with_arguments(step, [moved(a) for a in step.arguments]) for step in pointwise.steps]
    return Pointwise(operands=pointwise.operands - 1, steps=tuple(steps))


def uniform(array: np.ndarray) -> float | None:
    """The one finite number that all elements are, exact in every type; None where they differ."""
    if array.size == 0:
        return None
    first = array.reshape(-1)[0]
    if array.size > 1 and not bool(np.all(array == first)):
        return None
    number = float(first)
    exact = np.issubdtype(array.dtype, np.floating) or abs(number) <= _LARGEST_EXACT
    return number if exact and np.isfinite(number) else None


def _is(argument: Argument, operand: int) -> bool:
    return not isinstance(argument, float) and argument == operand
