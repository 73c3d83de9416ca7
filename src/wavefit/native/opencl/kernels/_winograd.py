"""Winograd's minimal filtering: the matrices of F(m x m, 3 x 3), and transforms by them as C text.

Cook-Toom at the points of :data:`POINTS` and infinity: Lavin and Gray, "Fast Algorithms for Convolutional Neural
Networks" (CVPR 2016), section 4; the general form is Vincent et al., "On Improving the Numerical Stability of Winograd
Convolutions" (2017). ``y = A' [(G g G') * (B' d B)] A``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np

from wavefit.native.opencl import c

Matrix = tuple[tuple[Fraction, ...], ...]

TAPS = 3

POINTS: dict[int, tuple[Fraction, ...]] = {
    2: (Fraction(0), Fraction(1), Fraction(-1)),
    4: (Fraction(0), Fraction(5, 8), Fraction(-5, 8), Fraction(3, 2), Fraction(-3, 2)),
}
"""Of F(m x m, 3 x 3), by m; for 4, those that err least of ten sets tried: see conv_winograd."""


def size(m: int) -> int:
    """Rows of a transformed tile."""
    return m + TAPS - 1


def matrices(m: int) -> tuple[Matrix, Matrix, Matrix]:
    """``A'`` (m rows), ``G`` and ``B'`` (a row a point, the last for infinity)."""
    points = POINTS[m]
    a = [[point**power for point in points] + [Fraction(int(power == m - 1))] for power in range(m)]
    g, b = [], []
    for number, point in enumerate(points):
        others = points[:number] + points[number + 1 :]
        scale = Fraction(1)
        for other in others:
            scale *= point - other
        g.append([point**power / scale for power in range(TAPS)])
        b.append([*_polynomial(others), Fraction(0)])
    g.append([Fraction(int(power == TAPS - 1)) for power in range(TAPS)])
    b.append(_polynomial(points))
    return _frozen(a), _frozen(g), _frozen(b)


def _polynomial(roots: Sequence[Fraction]) -> list[Fraction]:
    """The coefficients of the product of (x - root), lowest power first."""
    found = [Fraction(1)]
    for root in roots:
        found = [
            low - root * high for low, high in zip([Fraction(0), *found], [*found, Fraction(0)], strict=True)
        ]
    return found


def _frozen(rows: Sequence[Sequence[Fraction]]) -> Matrix:
    return tuple(tuple(row) for row in rows)


def weights(m: int, array: np.ndarray) -> np.ndarray:
    """(O, C, 3, 3) as (points, C, O), computed in float64 and rounded once."""
    g = np.array([[float(value) for value in row] for row in matrices(m)[1]])
    turned = np.einsum("ik,ockl,jl->ijco", g, array.astype(np.float64), g)
    return np.ascontiguousarray(turned.reshape(size(m) ** 2, *turned.shape[2:]).astype(array.dtype))


def transform(
    matrix: Matrix, kind: str, load: Callable[[int, int], str], store: Callable[[int, int, str], list[str]]
) -> list[str]:
    """Statements that compute ``matrix X matrix'``, of loads of X's elements.

    Args:
        matrix: applied to columns first, so that only its rows stay in registers.
        kind: C type of an element.
        load: the expression of element (row, column).
        store: statements for element (row, column) of the result, whose value is the variable named.
    """
    count, wide = len(matrix), len(matrix[0])
    lines = [f"{kind} {', '.join(f't{i}_{j}' for i in range(count))};" for j in range(wide)]
    for j in range(wide):
        lines.append("{")
        used = [k for k in range(wide) if any(row[k] for row in matrix)]
        lines += [f"const {kind} d{k} = {load(k, j)};" for k in used]
        lines += [f"t{i}_{j} = {_combined(matrix[i], [f'd{k}' for k in range(wide)])};" for i in range(count)]
        lines.append("}")
    for i in range(count):
        for j in range(count):
            value = _combined(matrix[j], [f"t{i}_{k}" for k in range(wide)])
            lines += ["{", f"const {kind} r = {value};", *store(i, j, "r"), "}"]
    return lines


def _combined(factors: Sequence[Fraction], names: Sequence[str]) -> str:
    """A sum of multiples; factors of 1 and -1 cost an addition, others a multiply-add."""
    text = ""
    for factor, name in sorted(zip(factors, names, strict=True), key=lambda pair: abs(pair[0]) != 1):
        if factor == 0:
            continue
        if not text:
            text = name if factor == 1 else f"{c.literal(float(factor))} * {name}"
        elif abs(factor) == 1:
            text = f"{text} {'+' if factor > 0 else '-'} {name}"
        else:
            text = f"{text} + {c.literal(float(factor))} * {name}"
    return text
