"""Which nodes cannot be half by the numbers: values past its end, values that it loses, sums that overflow inside.

A value is bad where half cannot hold it. Half must then neither make it nor read it, so its producer and its readers
are kept; what those make is judged by its own numbers, so the set ends where the numbers are small again.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from wavefit.precision.graph import is_float
from wavefit.precision.half.value_range import HALF_MAX, HALF_SMALLEST, HALF_SMALLEST_NORMAL, Range
from wavefit.schema import KeptNode, Precision

if TYPE_CHECKING:
    import onnx_ir as ir

MARGIN = 2.0
"""How far past the largest (or under the smallest) number seen unseen data is taken to reach.

The largest of n draws grows like ln n where tails are exponential, and like sqrt(ln n) where they are normal: to
double it takes n^2 draws, or n^4. A factor of 2 thus covers as many times more data as elements were seen.
"""

LOSS = 8 * 2.0**-11
"""Relative L2 error of rounding a value to half past which it loses more than rounding explains.

Rounding normal numbers makes at most half's unit roundoff, 2^-11, and about half of that on average. What loses a
few times that is for the guard to judge: it may do no harm.
"""

_ROUNDOFF = 2.0**-11
_UNREAD = {"Shape", "Size"}  # the values of what they take do not matter
_ADDING = {"Add", "Sub", "Sum", "Mean"}
_SMOOTH = {
    "Exp",
    "Sigmoid",
    "Softmax",
    "LogSoftmax",
    "Cos",
    "Cosh",
    "Softplus",
    "HardSigmoid",
}  # f(0) is not 0
_DIVISOR_INPUT = {"Div": 1, "Mod": 1, "Reciprocal": 0, "Log": 0}
_KEEPS_ZERO = {  # what is 0 after rounding stays 0 through these, so a divisor is as bad before them
    "Sqrt", "Abs", "Neg", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Cast", "Expand",
    "Slice", "Gather", "Split", "Concat", "Tile",
}  # fmt: skip
_HANDS_ON = {
    "Add",
    "Where",
    "Identity",
    "Reshape",
    "Transpose",
    "Squeeze",
    "Unsqueeze",
    "Expand",
    "Concat",
    "Slice",
}


def hazards(
    model: ir.Model,
    ranges: Mapping[str, Range],
    low: Precision = "fp16",
    among: Collection[str] | None = None,
) -> tuple[KeptNode, ...]:
    """The nodes that cannot be in ``low``, in the graph's order, each with its reason.

    Args:
        ranges: of every float value, from :func:`wavefit.precision.half.ranges.observe`.
        low: "bf16" has fp32's range, so nothing is kept for it by the numbers.
        among: names of the only nodes that are looked at; None: all.
    """
    if low != "fp16":
        return ()
    divisors, masks = _divisors(model), _masks(model, ranges)
    found: dict[str, KeptNode] = {}
    for node in model.graph:
        if among is not None and node.name not in among:
            continue
        kept = _judge(node, ranges, divisors, masks) if computes(node) else None
        if kept is not None:
            found[kept.node] = kept
    return tuple(found.values())


def computes(node: ir.Node) -> bool:
    """Whether a precision may be chosen for the node: it reads or makes floats, and has no body of its own."""
    if node.op_type in _UNREAD or any(
        attribute.type.name == "GRAPH" for attribute in node.attributes.values()
    ):
        return False
    return any(is_float(value) for value in (*node.inputs, *node.outputs))


def overflows(found: Range | None) -> bool:
    """Whether half cannot hold the largest numbers of a value, by the margin."""
    return found is not None and found.max_abs * MARGIN > HALF_MAX


def lost(found: Range | None) -> bool:
    """Whether rounding a value to half loses more of it than rounding explains."""
    return found is not None and found.half_error > LOSS


def _judge(
    node: ir.Node, ranges: Mapping[str, Range], divisors: set[str], masks: set[str]
) -> KeptNode | None:
    for value, way in _values(node):
        found = ranges.get(str(value.name))
        if found is None:
            continue
        said = (
            (_large(found) if value.name not in masks else None)
            or _small(node, value, found, ranges)
            or (_zero(found) if value.name in divisors else None)
        )
        if said is not None:
            reason, figures = said
            return _kept(node, f"its {way} {str(value.name)!r} {reason}", figures)
    inside = _inside(node, ranges)
    return _kept(node, *inside) if inside is not None else None


def _kept(node: ir.Node, reason: str, figures: dict[str, float]) -> KeptNode:
    return KeptNode(node=str(node.name), op=node.op_type, precision="fp32", reason=reason, figures=figures)


def _values(node: ir.Node) -> Iterator[tuple[ir.Value, str]]:
    for made in node.outputs:
        if is_float(made):
            yield made, "output"
    for read in node.inputs:
        if read is not None and is_float(read):
            yield read, "weight" if read.producer() is None and not read.is_graph_input() else "input"


def _large(found: Range) -> tuple[str, dict[str, float]] | None:
    if not overflows(found):
        return None
    near = f", within a factor of {MARGIN:g} of" if found.max_abs <= HALF_MAX else ", past"
    return f"reaches {found.max_abs:.3g}{near} 65504, where half ends", {"max_abs": found.max_abs}


def _small(
    node: ir.Node, value: ir.Value, found: Range, ranges: Mapping[str, Range]
) -> tuple[str, dict[str, float]] | None:
    if not lost(found) or not _matters(node, value, found, ranges):
        return None
    said = (
        f"loses {100 * found.half_error:.2g} % in half: {100 * found.subnormal_share:.0f} % of it lies under 6.1e-05, "
        f"half's smallest normal number"
    )
    return said, {
        "half_error": found.half_error,
        "root_mean_square": found.root_mean_square,
        "subnormal_share": found.subnormal_share,
    }


def _matters(node: ir.Node, value: ir.Value, found: Range, ranges: Mapping[str, Range]) -> bool:
    """Whether what is lost of a value that the node makes or reads changes what is made of it.

    A constant's loss is one of the node's output.
    """
    if value in node.outputs:
        return _is_used(value, found.half_error, ranges)
    if not _cares(node, value, found.half_error, ranges):
        return False
    is_constant = value.producer() is None and not value.is_graph_input()
    return not is_constant or any(_is_used(made, found.half_error, ranges) for made in node.outputs)


def _is_used(value: ir.Value, loss: float, ranges: Mapping[str, Range]) -> bool:
    readers = [user for user, _ in value.uses() if user.op_type not in _UNREAD]
    return value.is_graph_output() or any(_cares(user, value, loss, ranges) for user in readers)


def _cares(node: ir.Node, value: ir.Value, loss: float, ranges: Mapping[str, Range]) -> bool:
    """Whether a relative loss in what the node reads shows in what it makes, beside half's own rounding of that."""
    if node.op_type in _SMOOTH:
        return False  # an absolute error of 2^-25 is nothing beside f(0)
    if node.op_type == "BatchNormalization" and value in node.inputs[3:]:
        return False  # judged with its epsilon
    is_bias = node.op_type in ("Conv", "ConvTranspose", "Gemm") and value is _input(node, 2)
    is_shift = "Normalization" in node.op_type and value is _input(node, 2)
    if node.op_type in _ADDING or is_bias or is_shift:
        read, made = ranges.get(str(value.name)), ranges.get(str(node.outputs[0].name))
        if read is not None and made is not None:
            return loss * read.root_mean_square > _ROUNDOFF * made.root_mean_square
    return True


def _zero(found: Range) -> tuple[str, dict[str, float]] | None:
    if not found.smallest or found.smallest >= MARGIN * HALF_SMALLEST:
        return None
    said = f"ends up as a divisor and goes down to {found.smallest:.2g}, which half rounds to 0"
    return said, {"smallest": found.smallest}


def _inside(node: ir.Node, ranges: Mapping[str, Range]) -> tuple[str, dict[str, float]] | None:
    """What goes wrong inside a node whose inputs and outputs all fit."""
    name = str(node.name)
    source = ranges.get(str(node.inputs[0].name)) if node.inputs and node.inputs[0] is not None else None
    if source is not None:
        total = source.sums.get(name, 0.0)
        if total * MARGIN > HALF_MAX:
            near = f"within a factor of {MARGIN:g} of" if total <= HALF_MAX else "past"
            said = f"what it adds up reaches {total:.3g} inside, {near} 65504, where half ends"
            return said, {"sum": total, "max_abs": source.max_abs}
        divisor = source.divisors.get(name, math.inf)
        if divisor < MARGIN * HALF_SMALLEST:
            return (
                f"it divides by the root of {divisor:.2g}, which half rounds to 0",
                {"divisor": divisor},
            )
    return _variance(node, ranges) if node.op_type == "BatchNormalization" else None


def _variance(node: ir.Node, ranges: Mapping[str, Range]) -> tuple[str, dict[str, float]] | None:
    """A BatchNormalization whose smallest variance plus epsilon is no normal half."""
    value = _input(node, 4)
    found = ranges.get(str(value.name)) if value is not None else None
    epsilon = node.attributes.get("epsilon")
    divisor = (found.low if found is not None else math.inf) + (
        epsilon.as_float() if epsilon is not None else 1e-5
    )
    if divisor >= HALF_SMALLEST_NORMAL / 8:  # 2^-17: a relative error of at most 2^-8, halved by the root
        return None
    return f"its variance plus epsilon goes down to {divisor:.2g}, which half cannot hold", {
        "divisor": divisor
    }


def _input(node: ir.Node, index: int) -> ir.Value | None:
    return node.inputs[index] if len(node.inputs) > index else None


def _divisors(model: ir.Model) -> set[str]:
    """Values that end up as a divisor, or in a logarithm, with nothing between that could mend a zero."""
    found: set[str] = set()
    for node in reversed(list(model.graph)):
        if node.op_type in _DIVISOR_INPUT:
            value = _input(node, _DIVISOR_INPUT[node.op_type])
            if value is not None:
                found.add(str(value.name))
        if node.op_type == "Pow" and _negative(_input(node, 1)) and node.inputs[0] is not None:
            found.add(str(node.inputs[0].name))
        if node.op_type in _KEEPS_ZERO and any(str(value.name) in found for value in node.outputs):
            found |= {str(value.name) for value in node.inputs if value is not None and is_float(value)}
    return found


def _masks(model: ir.Model, ranges: Mapping[str, Range]) -> set[str]:
    """Values that overflow downwards alone, on their way into a Softmax of which every row keeps a finite number.

    There -Inf is as good as -3.4e38, the usual mask of attention: the exponential of both is 0.
    """
    found: set[str] = set()
    for node in reversed(list(model.graph)):
        for value in node.inputs:
            seen = ranges.get(str(value.name)) if value is not None else None
            if value is None or seen is None or seen.high * MARGIN > HALF_MAX or value.is_graph_output():
                continue
            if all(_forgets(user, seen, found) for user, _ in value.uses()):
                found.add(str(value.name))
    return found


def _forgets(node: ir.Node, read: Range, masks: set[str]) -> bool:
    """Whether a node makes of -Inf what it makes of a very low number, or hands it on to one that does."""
    if node.op_type == "Softmax":
        return read.peaks.get(str(node.name), -math.inf) * MARGIN > -HALF_MAX
    return node.op_type in _HANDS_ON and str(node.outputs[0].name) in masks


def _negative(value: ir.Value | None) -> bool:
    from wavefit.precision.graph import constant

    exponent = constant(value)
    return exponent is not None and bool((exponent < 0).any())
