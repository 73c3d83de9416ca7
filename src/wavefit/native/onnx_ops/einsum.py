"""Einsum of one or two operands as reductions, transposes and a product of matrices."""

from __future__ import annotations

import math

from wavefit.native.graph import Value
from wavefit.native.onnx_ops._call import Call


def _einsum(call: Call) -> str | None:
    equation = str(call.attribute("equation")).replace(" ", "")
    if "." in equation:
        return "an ellipsis in its equation is not read"
    left, arrow, output = equation.partition("->")
    terms = left.split(",")
    if not arrow:
        output = "".join(sorted(letter for letter in set(left) - {","} if left.count(letter) == 1))
    if len(terms) > 2 or any(len(set(term)) < len(term) for term in terms):
        return f"its equation is {equation!r}: products of two tensors without diagonals are computed"
    others = [set(output).union(*(terms[:place] + terms[place + 1 :])) for place in range(len(terms))]
    operands = [
        _summed(call, call.input(place), term, keep)
        for place, (term, keep) in enumerate(zip(terms, others, strict=True))
    ]
    if len(operands) == 1:
        value, letters = operands[0]
        moved = call.transpose(value, [letters.index(letter) for letter in output])
        call.give(moved)
    else:
        _product(call, operands, output)
    return None


def _summed(call: Call, value: Value, letters: str, keep: set[str]) -> tuple[Value, str]:
    """Without the axes that stand in this operand alone."""
    gone = tuple(axis for axis, letter in enumerate(letters) if letter not in keep)
    if not gone:
        return value, letters
    shape = tuple(size for axis, size in enumerate(value.shape) if axis not in gone)
    summed = call.add("Reduce", [value], shape, kind="sum", axes=gone)
    return summed, "".join(letter for letter in letters if letter in keep)


def _product(call: Call, operands: list[tuple[Value, str]], output: str) -> None:
    """Shared letters are batches where the output has them, summed over where it has not."""
    (a, left), (b, right) = operands
    sizes = dict(zip(left + right, a.shape + b.shape, strict=True))
    batch = [letter for letter in output if letter in left and letter in right]
    inner = [letter for letter in left if letter in right and letter not in output]
    rows = [letter for letter in left if letter not in right]
    columns = [letter for letter in right if letter not in left]

    def arranged(value: Value, letters: str, order: tuple[list[str], ...]) -> Value:
        moved = call.transpose(value, [letters.index(letter) for part in order for letter in part])
        outer = tuple(sizes[letter] for letter in order[0])
        return call.reshape(
            moved, outer + tuple(math.prod(sizes[each] for each in part) for part in order[1:])
        )

    first = arranged(a, left, (batch, rows, inner))
    second = arranged(b, right, (batch, inner, columns))
    product = call.add("MatMul", [first, second], (*first.shape[:-1], second.shape[-1]))
    made = [*batch, *rows, *columns]
    apart = call.reshape(product, tuple(sizes[letter] for letter in made))
    call.give(call.transpose(apart, [made.index(letter) for letter in output]))


OPERATORS = {"Einsum": _einsum}
