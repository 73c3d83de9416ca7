"""Convolutions and matrix products."""

from __future__ import annotations

import math

from wavefit.model.flops.operation import Operation, Rule, UnknownShape


def _convolution(weight: int, bias: int) -> Rule:
    """Weights are [M, C/group, *kernel]: each output element sums C/group * kernel products."""

    def rule(operation: Operation) -> int:
        out = operation.out_size()
        return 2 * out * math.prod(operation.shape(weight)[1:]) + (out if operation.has(bias) else 0)

    return rule


def _conv_transpose(operation: Operation) -> int:
    """Weights are [C, M/group, *kernel]: each input element adds to M/group * kernel outputs."""
    products = 2 * operation.size() * math.prod(operation.shape(1)[1:])
    return products + (operation.out_size() if operation.has(2) else 0)


def _gemm(operation: Operation) -> int:
    """alpha * A @ B + beta * C; a factor of 1 costs nothing."""
    rows_and_inner = operation.shape(0)
    inner = rows_and_inner[0 if operation.attributes.get("transA") else 1]
    out = operation.out_size()
    scale = out if operation.attributes.get("alpha", 1.0) != 1.0 else 0
    if operation.has(2):
        scale += out
        scale += operation.size(2) if operation.attributes.get("beta", 1.0) != 1.0 else 0
    return 2 * out * inner + scale


def _matmul(operation: Operation) -> int:
    """numpy.matmul: the last axis of A is summed, over every element of the output."""
    return 2 * operation.out_size() * operation.shape(0)[-1]


def _einsum(operation: Operation) -> int:
    """All terms of the sum: n - 1 products each, and an addition where an index is summed.

    Raises:
        UnknownShape: the equation has an ellipsis.
    """
    equation = operation.attributes.get("equation", b"").decode("ascii", "replace").replace(" ", "")
    if "." in equation or not equation:
        raise UnknownShape
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    sizes = {
        label: size
        for index, term in enumerate(terms)
        for label, size in zip(term, operation.shape(index), strict=False)
    }
    if not arrow:
        right = "".join(label for label in sizes if left.count(label) == 1)
    summed = set(sizes) - set(right)
    return math.prod(sizes.values()) * (len(terms) - 1 + bool(summed))


RULES: dict[str, Rule] = {
    "Conv": _convolution(weight=1, bias=2),
    "ConvInteger": _convolution(weight=1, bias=99),  # input 2 is a zero point
    "QLinearConv": _convolution(weight=3, bias=8),
    "DeformConv": _convolution(weight=1, bias=3),
    "ConvTranspose": _conv_transpose,
    "Gemm": _gemm,
    "MatMul": _matmul,
    "MatMulInteger": _matmul,
    "QLinearMatMul": _matmul,
    "Einsum": _einsum,
}
