"""A detector's head in which a converter that makes everything half, or goes by a list of operators, breaks a type.

Every part is legal ONNX and comes from exporters: a resize whose scales are computed from shapes, positions from
a Range of floats, Celu (float only, by its definition of opset 12), a mask for values that are infinite (IsInf takes
no half before opset 20), a window made with an explicit type, a branch that reads values from outside it, and one
constant that is read by nodes of both kinds.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

_SEED = 4


@dataclass(frozen=True)
class Case:
    """What the file holds.

    Args:
        path: of the model: image [N,3,12,12] -> scores [N,8], boxes [N,6,2].
        proto: the model.
        data: inputs by name.
        kept: the nodes that can not be half, a minimal set known from the operators' definitions.
    """

    path: Path
    proto: onnx.ModelProto
    data: dict[str, np.ndarray]
    kept: frozenset[str]


def build(path: Path) -> Case:
    """Writes the model (opset 17, 27 nodes, seeded weights) to ``path``."""
    random = np.random.default_rng(_SEED)
    model = _model(random)
    onnx.save(model, str(path))
    data = {"image": random.normal(0, 1, (2, 3, 12, 12)).astype(np.float32)}
    return Case(path, model, data, frozenset({"celu", "positions", "is_inf", "branch"}))


def _model(random: np.random.Generator) -> onnx.ModelProto:
    weights = {
        "stem_w": random.normal(0, 0.3, (8, 3, 3, 3)),
        "head_w": random.normal(0, 0.2, (8, 8, 1, 1)),
        "scale": random.normal(0, 0.5, (8, 1, 1)),
        "two": np.array(2.0),
        "zero": np.array(0.0),
        "one": np.array(1.0),
        "six": np.array(6.0),
        "lowest": np.array(-1e4),
        "box_w": random.normal(0, 0.5, (1, 2)),
    }
    shapes = {"height_index": [2, 3], "unit": [1, 1], "columns": [-1, 1], "window_size": 8, "last": [3]}
    initializers = [numpy_helper.from_array(np.asarray(a, np.float32), n) for n, a in weights.items()]
    initializers += [numpy_helper.from_array(np.asarray(a, np.int64), n) for n, a in shapes.items()]
    graph = helper.make_graph(
        [*_features(), *_scores(), *_boxes()],
        "detector_head",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 3, 12, 12])],
        [
            helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["N", 8]),
            helper.make_tensor_value_info("boxes", TensorProto.FLOAT, ["N", 6, 2]),
        ],
        initializers,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    return model


def _features() -> list[onnx.NodeProto]:
    """A stem, and a Resize to half the size by scales that are computed: [N,8,6,6]."""
    return [
        helper.make_node("Conv", ["image", "stem_w"], ["stem"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("Celu", ["stem"], ["active"], "celu"),
        helper.make_node("Shape", ["active"], ["size"], "shape"),
        helper.make_node("Gather", ["size", "height_index"], ["spatial"], "spatial"),
        helper.make_node("Cast", ["spatial"], ["spatial_f"], "to_float", to=TensorProto.FLOAT),
        helper.make_node("Div", ["spatial_f", "two"], ["target"], "halve"),
        helper.make_node("Div", ["target", "spatial_f"], ["ratio"], "ratio"),
        helper.make_node("Cast", ["unit"], ["unit_f"], "unit_to_float", to=TensorProto.FLOAT),
        helper.make_node("Concat", ["unit_f", "ratio"], ["scales"], "scales", axis=0),
        helper.make_node("Resize", ["active", "", "scales"], ["small"], "resize", mode="linear"),
    ]


def _scores() -> list[onnx.NodeProto]:
    """A 1x1 convolution, weighted by a window, infinite values masked, pooled."""
    window = {"output_datatype": TensorProto.FLOAT}
    return [
        helper.make_node("Conv", ["small", "head_w"], ["head"], "head"),
        helper.make_node("IsInf", ["head"], ["bad"], "is_inf"),
        helper.make_node("Where", ["bad", "lowest", "head"], ["finite"], "where"),
        helper.make_node("Mul", ["finite", "scale"], ["weighted"], "weight"),
        helper.make_node("GlobalAveragePool", ["weighted"], ["pooled"], "pool"),
        helper.make_node("Flatten", ["pooled"], ["flat"], "flatten"),
        helper.make_node("HannWindow", ["window_size"], ["window"], "window", periodic=0, **window),
        helper.make_node("Mul", ["flat", "window"], ["scores"], "apply_window"),
    ]


def _boxes() -> list[onnx.NodeProto]:
    """Positions 0..5, a branch that doubles or negates the strongest score, and two coordinates of each."""
    captured = helper.make_graph(
        [helper.make_node("Mul", ["strongest", "two"], ["then"], "then_mul")],
        "then_branch",
        [],
        [helper.make_tensor_value_info("then", TensorProto.FLOAT, None)],
    )
    other = helper.make_graph(
        [helper.make_node("Neg", ["strongest"], ["else"], "else_neg")],
        "else_branch",
        [],
        [helper.make_tensor_value_info("else", TensorProto.FLOAT, None)],
    )
    return [
        helper.make_node("Range", ["zero", "six", "one"], ["steps"], "positions"),
        helper.make_node("Reshape", ["steps", "columns"], ["grid"], "grid"),
        helper.make_node("ReduceMax", ["weighted"], ["strongest"], "strongest", axes=[1, 2, 3]),
        helper.make_node("ReduceMax", ["strongest"], ["top"], "top", keepdims=0),
        helper.make_node("Greater", ["top", "zero"], ["positive"], "positive"),
        helper.make_node("If", ["positive"], ["offset"], "branch", then_branch=captured, else_branch=other),
        helper.make_node("Squeeze", ["offset", "last"], ["offset_3d"], "squeeze"),
        helper.make_node("Add", ["offset_3d", "grid"], ["centres"], "centres"),
        helper.make_node("MatMul", ["centres", "box_w"], ["boxes"], "boxes"),
    ]
