"""Models that the engine runs in part, and one of which it runs nothing."""

from __future__ import annotations

import numpy as np
import onnx
from fakes.models import model, value, weight
from onnx import TensorProto, helper


def _node(op: str, inputs: list[str], outputs: list[str], **attributes: object) -> onnx.NodeProto:
    return helper.make_node(op, inputs, outputs, f"{op}_{outputs[0]}", **attributes)


def _conv(name: str, outs: int, ins: int, side: int = 3) -> onnx.TensorProto:
    drawn = np.random.default_rng(len(name) + outs).normal(
        0, (ins * side * side) ** -0.5, (outs, ins, side, side)
    )
    return weight(name, drawn.astype(np.float32))


def _ints(name: str, *numbers: int) -> onnx.TensorProto:
    return weight(name, np.array(numbers, np.int64))


def detector() -> onnx.ModelProto:
    """image [N, 3, 16, 16] -> chosen [M, 3] of NonMaxSuppression, boxes [N, 16, 4], best scores [N, 3, 5]."""
    nodes = [
        _node("Conv", ["image", "w"], ["c"], strides=[4, 4], pads=[1, 1, 1, 1]),
        _node("Shape", ["image"], ["whole"]),
        _node("Gather", ["whole", "zero"], ["batch"]),
        _node("Concat", ["batch", "rest"], ["flat"], axis=0),
        _node("Reshape", ["c", "flat"], ["joined"]),
        _node("Split", ["joined", "parts"], ["sides", "logits"], axis=1),
        _node("Sigmoid", ["logits"], ["scores"]),
        _node("Abs", ["sides"], ["positive"]),
        _node("Transpose", ["positive"], ["boxes"], perm=[0, 2, 1]),
        _node("NonMaxSuppression", ["boxes", "scores", "most", "overlap"], ["chosen"]),
        _node("TopK", ["scores", "five"], ["best", "which"], axis=2),
    ]
    weights = [
        _conv("w", 7, 3),
        *(_ints(name, *numbers) for name, numbers in (("zero", (0,)), ("rest", (7, 16)), ("parts", (4, 3)))),
        *(_ints("most", 4), _ints("five", 5), weight("overlap", np.array([0.5], np.float32))),
    ]
    outputs = [
        value("chosen", [None, 3], TensorProto.INT64),
        value("boxes", ["N", 16, 4]),
        value("best", ["N", 3, 5]),
    ]
    return model(nodes, [value("image", ["N", 3, 16, 16])], outputs, weights)


def sorted_inside() -> onnx.ModelProto:
    """image [N, 3, 9, 7] -> a convolution, the greatest of its channels, two more convolutions that read both ends."""
    nodes = [
        _node("Conv", ["image", "a"], ["first"], pads=[1, 1, 1, 1]),
        _node("Relu", ["first"], ["kept"]),
        _node("TopK", ["kept", "four"], ["greatest", "places"], axis=1),
        _node("Conv", ["greatest", "b"], ["second"], pads=[1, 1, 1, 1]),
        _node("Conv", ["kept", "c"], ["beside"]),
        _node("Add", ["second", "beside"], ["y"]),
    ]
    weights = [_conv("a", 6, 3), _conv("b", 5, 4), _conv("c", 5, 6, 1), _ints("four", 4)]
    return model(nodes, [value("image", ["N", 3, 9, 7])], [value("y", ["N", 5, 9, 7])], weights)


def chosen_branch() -> onnx.ModelProto:
    """x [N, 4] -> a product, and an If whose branches read it; what comes behind is in double."""
    read = [value("taken", None)]
    branches = {
        name: helper.make_graph([_node(op, ["p"], ["taken"])], name, [], read)
        for name, op in (("then_branch", "Neg"), ("else_branch", "Exp"))
    }
    nodes = [
        _node("MatMul", ["x", "w"], ["p"]),
        _node("ReduceSum", ["p"], ["total"], keepdims=0),
        _node("Greater", ["total", "none"], ["positive"]),
        _node("If", ["positive"], ["t"], **branches),
        _node("Cast", ["t"], ["wide"], to=TensorProto.DOUBLE),
        _node("Mul", ["wide", "wide"], ["y"]),
    ]
    weights = [weight("w", np.random.default_rng(0).standard_normal((4, 5)).astype(np.float32))]
    weights.append(weight("none", np.array(0, np.float32)))
    return model(nodes, [value("x", ["N", 4])], [value("y", ["N", 5], TensorProto.DOUBLE)], weights)


def nothing_of_weight() -> onnx.ModelProto:
    """x [N, 4] -> a Relu that the engine has, then what it has not."""
    nodes = [_node("Relu", ["x"], ["r"]), _node("NonZero", ["r"], ["y"])]
    return model(nodes, [value("x", ["N", 4])], [value("y", [2, None], TensorProto.INT64)])
