"""How a factor on what an operator reads shows in what it makes: which are linear, homogeneous, or indifferent to it.

A value scaled by 2^(c e) has the coefficient c, e being one integer for a whole stretch. The mathematics is that of
the ONNX operator specification.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

from wavefit.precision.graph import constant, is_float

if TYPE_CHECKING:
    import onnx_ir as ir

_SAME_FIRST = {  # f(a x) = a f(x) for a > 0, in the first input
    "Relu", "LeakyRelu", "PRelu", "Abs", "Neg", "Identity", "MaxPool", "AveragePool", "LpPool", "GlobalMaxPool",
    "GlobalAveragePool", "GlobalLpPool", "ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2",
    "CumSum", "TopK", "Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Slice", "Split", "Gather",
    "GatherElements", "GatherND", "Expand", "Tile", "DepthToSpace", "SpaceToDepth", "Resize", "Upsample", "Dropout",
    "ReverseSequence", "Compress",
}  # fmt: skip
_SAME_ALL = {"Add", "Sub", "Sum", "Mean", "Concat", "Max", "Min", "Where", "Clip", "Pad"}
_LINEAR = {"Conv", "ConvTranspose", "MatMul", "Gemm"}
_NORMS = {"LayerNormalization", "InstanceNormalization", "RMSNormalization", "GroupNormalization"}
_INDIFFERENT = {"ArgMax", "ArgMin", "Shape", "Size"}

_FITS = (2.0**-13, 2.0**15)  # variances that half holds with room to spare: they are left as they are

Factors = Callable[[Fraction, Fraction], Fraction]
"""A constant's coefficient from those of the node's data input and of its output."""


@dataclass(frozen=True)
class Rule:
    """What one node allows.

    Args:
        kind: "same", all of ``data`` and the outputs have one coefficient; "sum", the output has the weighted sum of
            those of ``data``; "free", input and output may have any, for ``constants`` take up the difference;
            "fixed", none of them may be scaled.
        data: indices of inputs that carry the numbers.
        weights: of "sum", one for each of ``data``.
        constants: of "free": the coefficient of each constant input.
        epsilon: of "free": whether the attribute epsilon is to be scaled with the square of the input.
    """

    kind: str
    data: tuple[int, ...] = ()
    weights: tuple[Fraction, ...] = ()
    constants: dict[int, Factors] = field(default_factory=dict)
    epsilon: bool = False


FIXED = Rule("fixed")


def rule(node: ir.Node) -> Rule:
    """The node's."""
    kind = node.op_type
    if node.domain or not node.inputs or any(a.type.name == "GRAPH" for a in node.attributes.values()):
        return FIXED
    if kind in _INDIFFERENT:
        return Rule("free", (0,))
    if kind in _SAME_FIRST:
        return Rule("same", (0,)) if all(is_float(v) for v in (node.inputs[0], node.outputs[0])) else FIXED
    if kind in _SAME_ALL:
        floats = tuple(index for index, value in enumerate(node.inputs) if is_float(value))
        return Rule("same", floats) if _pads_nothing_else(node) else FIXED
    if kind in _LINEAR:
        return _linear(node)
    if kind in ("Mul", "Div"):
        return _factor(node)
    if kind in _NORMS or kind == "BatchNormalization":
        return _norm(node)
    power = _power(node)
    return Rule("sum", (0,), (power,)) if power is not None else FIXED


def _pads_nothing_else(node: ir.Node) -> bool:
    """A Clip or Pad of an old opset holds its numbers in attributes, which are left alone."""
    old = {"Clip": ("min", "max"), "Pad": ("value",)}.get(node.op_type, ())
    return not any(name in node.attributes for name in old)


def _linear(node: ir.Node) -> Rule:
    weights = [index for index in (0, 1) if constant(node.inputs[index]) is not None]
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    if bias is not None and constant(bias) is None:
        return FIXED
    constants: dict[int, Factors] = {2: lambda _, made: made} if bias is not None else {}
    if not weights:
        return Rule("sum", (0, 1), (Fraction(1), Fraction(1))) if bias is None else FIXED
    constants[weights[0]] = lambda read, made: made - read
    return Rule("free", (1 - weights[0],), constants=constants)


def _factor(node: ir.Node) -> Rule:
    left, right = (constant(value) is not None for value in node.inputs)
    one = Fraction(1)
    if left and right:
        return FIXED
    if node.op_type == "Mul":
        if left or right:
            return Rule("free", (int(left),), constants={int(right): lambda read, made: made - read})
        return Rule("sum", (0, 1), (one, one))
    if right:
        return Rule("free", (0,), constants={1: lambda read, made: read - made})
    if left:
        return Rule("free", (1,), constants={0: lambda read, made: made + read})
    return Rule("sum", (0, 1), (one, -one))


def _norm(node: ir.Node) -> Rule:
    """A normalisation forgets a factor once epsilon has it too, squared; one over stored moments can also take it up
    in its scale."""
    given = [index for index in range(1, len(node.inputs)) if node.inputs[index] is not None]
    arrays = {index: constant(node.inputs[index]) for index in given}
    if any(array is None for array in arrays.values()) or len(node.outputs) > 1:
        return FIXED
    if node.op_type != "BatchNormalization":
        return Rule("free", (0,), constants=dict.fromkeys(given, _made), epsilon=True)
    variance = arrays[4]
    if variance is not None and variance.size and _FITS[0] <= variance.min() and variance.max() <= _FITS[1]:
        in_scale: dict[int, Factors] = {1: lambda read, made: made - read, 2: _made, 3: lambda read, _: read}
        return Rule("free", (0,), constants=in_scale)
    in_moments: dict[int, Factors] = {
        1: _made,
        2: _made,
        3: lambda read, _: read,
        4: lambda read, _: 2 * read,
    }
    return Rule("free", (0,), constants=in_moments, epsilon=True)


def _made(_: Fraction, made: Fraction) -> Fraction:
    return made


def _power(node: ir.Node) -> Fraction | None:
    """p of an operator with f(a x) = a^p f(x)."""
    fixed = {"Sqrt": Fraction(1, 2), "Reciprocal": Fraction(-1), "ReduceSumSquare": Fraction(2)}
    if node.op_type != "Pow":
        return fixed.get(node.op_type)
    exponent = constant(node.inputs[1])
    if exponent is None or exponent.size != 1:
        return None
    found = Fraction(float(exponent.reshape(-1)[0])).limit_denominator(8)
    return found if float(found) == float(exponent.reshape(-1)[0]) and found else None
