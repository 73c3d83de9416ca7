"""What int8 means for each operator: which inputs are activations, which weights, and what may follow inside a kernel.

A product sums in int32 and needs constant weights of its own; others only map a range to a range; the passing ones
move elements about, and keep the scale of what they are given. A node is in the table for ONNX Runtime's kernels
(QLinearConv, QGemm, QLinearMatMul, QLinearAdd, QLinearMul, QLinearConcat, QLinearAveragePool,
QLinearGlobalAveragePool, QLinearSigmoid, QLinearSoftmax, QLinearLeakyRelu: its docs/OperatorKernels.md and
docs/ContribOperators.md) or MIGraphX's (quant_convolution, quant_dot).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from wavefit.precision import graph
from wavefit.precision.linear import attribute

if TYPE_CHECKING:
    import onnx_ir as ir

CONVOLUTIONS = frozenset({"Conv", "ConvTranspose"})
PRODUCTS = CONVOLUTIONS | {"Gemm", "MatMul"}
PAIRS = frozenset({"Add", "Mul"})
MAPS = frozenset({"AveragePool", "GlobalAveragePool", "LeakyRelu", "Sigmoid", "Softmax"})
OPERATORS = PRODUCTS | PAIRS | MAPS | {"Concat"}
FLOAT_OUTPUT = frozenset({"Gemm", "MatMul"})
"""Whose kernels can give their int32 sums back as floats."""

_SHAPING = frozenset({"Flatten", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})
_PICKING = frozenset({"Gather", "MaxPool", "Resize", "Slice", "Split"})
_IDLE = frozenset({"Dropout", "Identity"})
_PASSING = _SHAPING | _PICKING | _IDLE


def takes_int8(node: ir.Node) -> bool:
    """Whether this node's operands are such that its int8 kernel could run."""
    if node.domain or node.op_type not in OPERATORS or not node.outputs:
        return False
    if not all(graph.is_float(output) for output in node.outputs):
        return False
    if not all(graph.is_float(node.inputs[slot]) for slot in activations(node)):
        return False  # what a custom operator made: its type, and so its range, is unknown
    if node.op_type in CONVOLUTIONS:
        return _weighted(node, 1, 3) and _fixed(node, 2) and not _is_constant(node, 0)
    if node.op_type == "Gemm":
        return _weighted(node, 1, 2) and _gemm_bias(node) and not _is_constant(node, 0) and _alpha(node) > 0
    if node.op_type == "MatMul":
        return not all(_is_constant(node, slot) for slot in (0, 1)) and all(
            _rank(node, s) != 1 for s in (0, 1)
        )
    if node.op_type in PAIRS:
        return not _is_bias(node) and not all(_is_constant(node, slot) for slot in (0, 1))
    return not all(_is_constant(node, slot) for slot in range(len(node.inputs)))


def activations(node: ir.Node) -> tuple[int, ...]:
    """The inputs that have the activations' type: constants among them are stored with it too."""
    if node.op_type in CONVOLUTIONS or node.op_type == "Gemm":
        return (0,)
    if node.op_type == "MatMul" and weight(node) is not None:
        return (0,)
    return tuple(slot for slot, value in enumerate(node.inputs) if value is not None)


def weight(node: ir.Node) -> ir.Value | None:
    """The constant that has the weights' type."""
    if node.op_type not in PRODUCTS or graph.constant(node.inputs[1]) is None:
        return None
    return node.inputs[1]


def weight_axis(node: ir.Node) -> int | None:
    """The weights' axis of output channels; None where a scale for each has no kernel (batched MatMul)."""
    if node.op_type == "Conv":
        return 0
    if node.op_type == "ConvTranspose":
        return (
            1 if attribute(node, "group", 1) == 1 else None
        )  # (C, M/group, ...): a channel is in every group
    if node.op_type == "Gemm":
        return 0 if attribute(node, "transB", 0) else 1
    return 1 if _rank(node, 1) == 2 else None


def passes(node: ir.Node) -> bool:
    """Whether it only moves elements of its first input about, so that their scale stays."""
    if node.domain or node.op_type not in _PASSING or not all(graph.is_float(each) for each in node.outputs):
        return False
    if node.op_type in ("MaxPool", "Dropout"):
        return len(node.outputs) == 1 and len(node.inputs) < 3  # no indices, no mask, not in training
    if node.op_type == "Resize":  # ONNX Runtime computes other modes in floats
        return bool(attribute(node, "mode", "nearest") == "nearest")
    return True


def tail(node: ir.Node) -> ir.Node:
    """The last node that runs inside this one's int8 kernel: the bias of a MatMul, then a Relu or Clip."""
    last = node
    following = _only_reader(last)
    if following is not None and node.op_type == "MatMul" and _is_bias(following):
        last, following = following, _only_reader(following)
    if following is not None and following.inputs[0] is last.outputs[0] and bounds(following) is not None:
        last = following
    return last


def bias_of(node: ir.Node) -> np.ndarray | None:
    """The constant that an Add adds to each output channel of a MatMul with constant weights."""
    if node.domain or node.op_type != "Add":
        return None
    for slot in (0, 1):
        given = node.inputs[slot]
        product = given.producer() if given is not None else None
        bias = graph.constant(node.inputs[1 - slot])
        if product is None or bias is None or product.op_type != "MatMul" or weight(product) is None:
            continue
        columns = graph.constant(weight(product)).shape[-1]  # type: ignore[union-attr]
        if bias.shape in {(columns,), (1, columns)} and _only_reader(product) is node:
            return bias.reshape(-1)
    return None


def bounds(node: ir.Node) -> tuple[float, float] | None:
    """What a Relu, or a Clip with constant ends, cuts off; None for any other node."""
    if node.domain or not (
        node.op_type == "Relu" or (node.op_type == "Clip" and _fixed(node, 1) and _fixed(node, 2))
    ):
        return None
    if node.op_type == "Relu":
        return 0.0, np.inf
    ends = [graph.constant(node.inputs[slot]) if slot < len(node.inputs) else None for slot in (1, 2)]
    low, high = (None if end is None else float(end.reshape(())) for end in ends)
    return -np.inf if low is None else low, np.inf if high is None else high


def readers(value: ir.Value) -> Iterator[tuple[ir.Node, int]]:
    """Nodes that read it, and as which input."""
    for use in value.uses():
        yield use.node, use.idx


def _is_bias(node: ir.Node) -> bool:
    return bias_of(node) is not None


def _only_reader(node: ir.Node) -> ir.Node | None:
    if len(node.outputs) != 1 or node.outputs[0].is_graph_output():
        return None
    found = list(readers(node.outputs[0]))
    return found[0][0] if len(found) == 1 and found[0][0].graph is node.graph else None


def _weighted(node: ir.Node, slot: int, least_rank: int) -> bool:
    array = graph.constant(node.inputs[slot])
    return array is not None and array.ndim >= least_rank and array.size > 0


def _fixed(node: ir.Node, slot: int) -> bool:
    """Whether an input is left out or constant."""
    value = node.inputs[slot] if slot < len(node.inputs) else None
    return value is None or graph.constant(value) is not None


def _gemm_bias(node: ir.Node) -> bool:
    """Whether C is left out, or a constant with one number a column."""
    if not _fixed(node, 2):
        return False
    if len(node.inputs) < 3 or node.inputs[2] is None:
        return True
    weights, bias = graph.constant(node.inputs[1]), graph.constant(node.inputs[2])
    assert weights is not None
    assert bias is not None
    columns = weights.shape[weight_axis(node) or 0]
    return bias.shape in {(), (1,), (1, 1), (columns,), (1, columns)}


def _alpha(node: ir.Node) -> float:
    return float(attribute(node, "alpha", 1.0))


def _rank(node: ir.Node, slot: int) -> int | None:
    value = node.inputs[slot]
    return None if value is None or value.shape is None else len(value.shape)


def _is_constant(node: ir.Node, slot: int) -> bool:
    value = node.inputs[slot]
    return value is None or graph.constant(value) is not None
