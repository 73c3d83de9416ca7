"""FLOPs and bytes: against published figures of whole networks, and small cases counted by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from fakes import models
from onnx import TensorProto, helper

from wavefit.errors import InputError
from wavefit.model.cost import cost
from wavefit.model.load import load
from wavefit.model.shapes import bind
from wavefit.schema import Cost, NodeCost

LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"


def light(name: str) -> Cost:
    model = load(LIGHT / f"light_{name}.onnx")
    return cost(model, bind(model, 1))


def macs(counted: Cost, *operators: str) -> float:
    """Multiply-adds of those operators, in billions."""
    return sum(node.flops or 0 for node in counted.nodes if node.op in operators) / 2e9


@pytest.mark.parametrize(
    ("name", "published"),
    [
        # Billions of multiply-adds at 224 x 224: He et al. 2015 (table 1: 3.8 with the stride in the 1x1 layer; 4.1
        # as PyTorch builds it), torchvision's documentation of its weights (GFLOPS column) for the others.
        ("resnet50", 4.09),
        ("vgg19", 19.63),
        ("densenet121", 2.83),
        ("squeezenet", 0.35),
    ],
)
def test_published_networks(name: str, published: float) -> None:
    counted = light(name)
    assert macs(counted, "Conv", "Gemm") == pytest.approx(published, rel=0.02)
    assert counted.unknown == ()
    # Everything that is no convolution or matrix product is a small part.
    assert counted.flops / 2e9 == pytest.approx(published, rel=0.05)


def resnet18() -> onnx.ModelProto:
    """ResNet-18 as He et al. describe it, batch norms folded away, weights that are never read left at zero."""
    nodes: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []

    def conv(source: str, cin: int, cout: int, kernel: int, stride: int) -> str:
        name = f"c{len(weights)}"
        weights.append(models.weight(f"{name}_w", np.zeros((cout, cin, kernel, kernel), np.float32)))
        pads = [kernel // 2] * 4
        nodes.append(
            helper.make_node("Conv", [source, f"{name}_w"], [name], name, strides=[stride] * 2, pads=pads)
        )
        return name

    def node(op: str, *sources: str, **attributes: Any) -> str:
        name = f"n{len(nodes)}"
        nodes.append(helper.make_node(op, list(sources), [name], name, **attributes))
        return name

    stem = node("Relu", conv("image", 3, 64, 7, 2))
    current, width = node("MaxPool", stem, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4), 64
    for out, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        for step in (stride, 1):
            shortcut = current if step == 1 and width == out else conv(current, width, out, 1, step)
            inner = node("Relu", conv(current, width, out, 3, step))
            current, width = node("Relu", node("Add", conv(inner, out, out, 3, 1), shortcut)), out
    flat = node("Flatten", node("GlobalAveragePool", current))
    weights += [
        models.weight("fc_w", np.zeros((1000, 512), np.float32)),
        models.weight("fc_b", np.zeros(1000, np.float32)),
    ]
    nodes.append(helper.make_node("Gemm", [flat, "fc_w", "fc_b"], ["logits"], "fc", transB=1))
    return models.model(
        nodes, [models.value("image", ["N", 3, 224, 224])], [models.value("logits", ["N", 1000])], weights
    )


def test_resnet18(tmp_path: Path) -> None:
    model = load(models.save(resnet18(), tmp_path / "resnet18.onnx"))
    # 11,689,512 with PyTorch, less 9,600 scales and shifts of batch norms.
    assert model.parameters == 11_689_512 - 9_600
    counted = cost(model, bind(model, 1))
    assert macs(counted, "Conv", "Gemm") == pytest.approx(1.8, rel=0.02)
    assert cost(model, bind(model, 3)).flops == 3 * counted.flops


def one(
    folder: Path,
    op: str,
    ins: Sequence[Sequence[int] | np.ndarray | None],
    outs: int = 1,
    opset: int = 17,
    **attributes: Any,
) -> NodeCost:
    """The cost of one node: arrays are initializers, shapes float32 inputs, None an absent input."""
    inputs, weights, names = [], [], []
    for index, given in enumerate(ins):
        names.append("" if given is None else f"i{index}")
        if isinstance(given, np.ndarray):
            weights.append(models.weight(f"i{index}", given))
        elif given is not None:
            inputs.append(models.value(f"i{index}", list(given)))
    made = [f"o{index}" for index in range(outs)]
    node = helper.make_node(op, names, made, "it", **attributes)
    outputs = [models.value(name, None) for name in made]
    for entry in outputs:
        entry.type.tensor_type.shape.SetInParent()  # rank 0 stands in: cost forgets it
    path = models.save(models.model([node], inputs, outputs, weights, opset), folder / "one.onnx")
    model = load(path)
    counted = cost(model, {spec.name: spec.shape for spec in model.inputs})  # type: ignore[misc]
    return counted.nodes[0]


f32 = np.float32
BIG = np.zeros((64, 32, 3, 3), f32)


@pytest.mark.parametrize(
    ("op", "ins", "attributes", "flops"),
    [
        # 32 channels in, 64 out, 3 x 3, no padding: 8 x 8 outputs
        ("Conv", [(1, 32, 10, 10), BIG], {}, 2 * (64 * 8 * 8) * (32 * 9)),
        # with a bias: one more addition for each output
        ("Conv", [(1, 32, 10, 10), BIG, np.zeros(64, f32)], {}, 2 * (64 * 8 * 8) * (32 * 9) + 64 * 8 * 8),
        # asymmetric padding (1 above, 0 below, 2 left, 1 right): 9 x 11 outputs
        ("Conv", [(1, 32, 10, 10), BIG], {"pads": [1, 2, 0, 1]}, 2 * (64 * 9 * 11) * (32 * 9)),
        # stride 2 and dilation 2: (10 - 5) // 2 + 1 = 3
        (
            "Conv",
            [(1, 32, 10, 10), BIG],
            {"strides": [2, 2], "dilations": [2, 2]},
            2 * (64 * 3 * 3) * (32 * 9),
        ),
        # 4 groups: each output sees a quarter of the channels
        (
            "Conv",
            [(2, 32, 10, 10), np.zeros((64, 8, 3, 3), f32)],
            {"group": 4},
            2 * (2 * 64 * 8 * 8) * (8 * 9),
        ),
        # depthwise
        ("Conv", [(1, 32, 10, 10), np.zeros((32, 1, 3, 3), f32)], {"group": 32}, 2 * (32 * 8 * 8) * 9),
        # one and three dimensions
        ("Conv", [(1, 4, 10), np.zeros((8, 4, 3), f32)], {}, 2 * (8 * 8) * (4 * 3)),
        ("Conv", [(1, 2, 4, 4, 4), np.zeros((3, 2, 2, 2, 2), f32)], {}, 2 * (3 * 3**3) * (2 * 8)),
        # transposed: each of 32 x 5 x 5 inputs meets 16 x 2 x 2 weights
        (
            "ConvTranspose",
            [(1, 32, 5, 5), np.zeros((32, 16, 2, 2), f32)],
            {"strides": [2, 2]},
            2 * 32 * 25 * 16 * 4,
        ),
        # transposed in 4 groups: a quarter
        (
            "ConvTranspose",
            [(1, 32, 5, 5), np.zeros((32, 4, 2, 2), f32)],
            {"strides": [2, 2], "group": 4},
            2 * 32 * 25 * 4 * 4,
        ),
        ("MatMul", [(5, 7), (7, 3)], {}, 2 * 5 * 7 * 3),
        ("MatMul", [(4, 6, 5, 7), (4, 6, 7, 3)], {}, 2 * 24 * 5 * 7 * 3),
        ("MatMul", [(6, 5, 7), np.zeros((7, 3), f32)], {}, 2 * 6 * 5 * 7 * 3),
        ("MatMul", [(4, 1, 5, 7), (6, 7, 3)], {}, 2 * 4 * 6 * 5 * 7 * 3),
        ("MatMul", [(7,), (7,)], {}, 2 * 7),
        ("MatMul", [(7,), (7, 3)], {}, 2 * 7 * 3),
        ("Gemm", [(5, 7), (7, 3)], {}, 2 * 5 * 7 * 3),
        ("Gemm", [(7, 5), (3, 7), (3,)], {"transA": 1, "transB": 1}, 2 * 5 * 7 * 3 + 15),
        ("Gemm", [(5, 7), (7, 3), (3,)], {"alpha": 0.5, "beta": 2.0}, 2 * 5 * 7 * 3 + 15 + 15 + 3),
        ("Einsum", [(4, 5, 7), (4, 7, 3)], {"equation": "bij,bjk->bik"}, 2 * 4 * 5 * 7 * 3),
        ("Einsum", [(5,), (7,)], {"equation": "i,j->ij"}, 35),
        ("Einsum", [(5, 7)], {"equation": "ij->"}, 35),
        ("Einsum", [(5, 7)], {"equation": "ij->ji"}, 0),
        ("Einsum", [(5, 7), (7, 3)], {"equation": "ij, jk"}, 2 * 5 * 7 * 3),
        ("Einsum", [(5, 7), (7, 3)], {"equation": "...j,jk->...k"}, None),
        ("Relu", [(2, 3, 4)], {}, 24),
        ("Add", [(2, 1, 4), (3, 1)], {}, 24),
        ("Sum", [(2, 3), (2, 3), (2, 3)], {}, 12),
        ("Sigmoid", [(2, 3)], {}, 24),
        ("Softmax", [(2, 10)], {}, 100),
        ("BatchNormalization", [(2, 4, 3, 3), *[np.ones(4, f32)] * 4], {}, 2 * 72),
        ("LayerNormalization", [(2, 8), np.ones(8, f32), np.ones(8, f32)], {}, 7 * 16),
        ("MaxPool", [(1, 4, 6, 6)], {"kernel_shape": [3, 3], "strides": [3, 3]}, 4 * 4 * 9),
        ("GlobalAveragePool", [(2, 4, 6, 6)], {}, 2 * 4 * 36),
        ("ReduceMean", [(2, 3, 4)], {"axes": [1]}, 24),
        ("ReduceL2", [(2, 3, 4)], {"axes": [1]}, 48),
        ("Transpose", [(2, 3, 4)], {}, 0),
        ("Concat", [(2, 3), (2, 5)], {"axis": 1}, 0),
        ("NonZero", [(2, 3)], {}, None),
    ],
)
def test_flops_of_one_node(
    tmp_path: Path, op: str, ins: list[Any], attributes: Mapping[str, Any], flops: int | None
) -> None:
    assert one(tmp_path, op, ins, **attributes).flops == flops


@pytest.mark.parametrize(
    ("op", "gates", "per_unit"),
    [
        # Adding the two products of a gate, the gate's activation, the state: see the operators' equations.
        ("LSTM", 4, 4 + 3 * 4 + 2 + 4),
        ("GRU", 3, 3 + 2 * 4 + 1 + 5),
        ("RNN", 1, 2),
    ],
)
def test_recurrent(tmp_path: Path, op: str, gates: int, per_unit: int) -> None:
    steps, batch, width, hidden = 5, 2, 8, 6
    arrays = [np.zeros((1, gates * hidden, columns), f32) for columns in (width, hidden)]
    node = one(tmp_path, op, [(steps, batch, width), *arrays], hidden_size=hidden)
    products = 2 * gates * hidden * (width + hidden)
    assert node.flops == steps * batch * (products + hidden * per_unit)
    both = [np.concatenate([array, array]) for array in arrays]
    bias = np.zeros((2, 2 * gates * hidden), f32)
    node = one(
        tmp_path, op, [(steps, batch, width), *both, bias], hidden_size=hidden, direction="bidirectional"
    )
    assert node.flops == 2 * steps * batch * (products + hidden * (per_unit + 2 * gates))


@pytest.mark.skipif(onnx.defs.onnx_opset_version() < 23, reason="this onnx has no Attention operator")
def test_attention_counts_as_its_parts(tmp_path: Path) -> None:
    """Q K^T, the scale, the softmax, and the product with V; in both layouts."""
    batch, heads, queries, keys, width = 2, 4, 3, 5, 8
    scores = batch * heads * queries * keys
    expected = 2 * scores * width + scores + 5 * scores + 2 * scores * width
    four = [(batch, heads, queries, width), *[(batch, heads, keys, width)] * 2]
    assert one(tmp_path, "Attention", four, opset=23).flops == expected
    three = [(batch, queries, heads * width), *[(batch, keys, heads * width)] * 2]
    assert (
        one(tmp_path, "Attention", three, opset=23, q_num_heads=heads, kv_num_heads=heads).flops == expected
    )


@pytest.mark.parametrize(
    ("op", "ins", "attributes", "size"),
    [
        ("Relu", [(2, 3)], {}, 4 * (6 + 6)),
        ("Mul", [(2, 3), (3,)], {}, 4 * (6 + 3 + 6)),
        ("Conv", [(1, 32, 10, 10), BIG], {}, 4 * (3200 + BIG.size + 64 * 64)),
        ("Transpose", [(2, 3)], {}, 4 * 12),
        ("Flatten", [(2, 3)], {}, 0),  # a view
        # A lookup reads the rows that it takes, not the whole table.
        ("Gather", [(1000, 16), np.zeros(7, np.int64)], {}, 7 * 8 + 2 * 4 * 7 * 16),
    ],
)
def test_bytes_of_one_node(
    tmp_path: Path, op: str, ins: list[Any], attributes: Mapping[str, Any], size: int
) -> None:
    assert one(tmp_path, op, ins, **attributes).bytes == size


def test_bytes_follow_the_type(tmp_path: Path) -> None:
    nodes = [helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT16)]
    proto = models.model(nodes, [models.value("x", [2, 3])], [models.value("y", [2, 3], TensorProto.FLOAT16)])
    model = load(models.save(proto, tmp_path / "m.onnx"))
    assert cost(model, {"x": (2, 3)}).bytes == 4 * 6 + 2 * 6


def test_the_same_input_twice_is_read_once(tmp_path: Path) -> None:
    nodes = [helper.make_node("Mul", ["x", "x"], ["y"])]
    proto = models.model(nodes, [models.value("x", [2, 3])], [models.value("y", [2, 3])])
    model = load(models.save(proto, tmp_path / "m.onnx"))
    assert cost(model, {"x": (2, 3)}).bytes == 4 * 12


def test_shapes_that_are_calculated_are_followed(tmp_path: Path) -> None:
    """Shape -> Gather -> Concat -> Reshape, as exporters write a flatten with a dynamic batch."""
    constants = {
        "zero": np.array(0, np.int64),
        "minus": np.array([-1], np.int64),
        "axes": np.array([0], np.int64),
        "w": np.zeros((12, 5), f32),
    }
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"]),
        helper.make_node("Unsqueeze", ["n", "axes"], ["n1"]),
        helper.make_node("Concat", ["n1", "minus"], ["target"], axis=0),
        helper.make_node("Reshape", ["x", "target"], ["flat"]),
        helper.make_node("MatMul", ["flat", "w"], ["y"], "product"),
    ]
    proto = models.model(
        nodes,
        [models.value("x", ["N", 3, 4])],
        [models.value("y", ["N", 5])],
        [models.weight(name, array) for name, array in constants.items()],
    )
    model = load(
        models.save_external(proto, tmp_path / "m.onnx")
    )  # small constants outside are read all the same
    counted = cost(model, bind(model, 7))
    assert counted.nodes[-1].flops == 2 * 7 * 12 * 5
    assert counted.unknown == ()


def test_arithmetic_on_shapes_is_carried_out(tmp_path: Path) -> None:
    """Half of the last axis, by Slice, Div and Cast of the shape: shape inference alone gives up on it."""
    constants = {
        "two": np.array([2], np.int64),
        "last": np.array([-1], np.int64),
        "end": np.array([2**31], np.int64),
        "zero": np.array([0], np.int64),
    }
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Slice", ["s", "last", "end"], ["w"]),
        helper.make_node("Cast", ["w"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Cast", ["two"], ["two_f"], to=TensorProto.FLOAT),
        helper.make_node("Div", ["f", "two_f"], ["half_f"]),
        helper.make_node("Floor", ["half_f"], ["floor"]),
        helper.make_node("Cast", ["floor"], ["half"], to=TensorProto.INT64),
        helper.make_node("Slice", ["x", "zero", "half", "last"], ["left"]),
        helper.make_node("Relu", ["left"], ["y"], "relu"),
    ]
    proto = models.model(
        nodes,
        [models.value("x", ["N", 3, "W"])],
        [models.value("y", ["N", 3, "H"])],
        [models.weight(name, array) for name, array in constants.items()],
    )
    model = load(models.save(proto, tmp_path / "m.onnx"))
    counted = cost(model, bind(model, 2, {"W": 9}))
    assert counted.unknown == ()
    assert [node.op for node in counted.nodes] == [node.op_type for node in nodes]
    assert counted.nodes[-1].flops == 2 * 3 * 4


def test_a_bomb_behind_shape_arithmetic_is_not_carried_out(tmp_path: Path) -> None:
    many = models.weight("many", np.array(10**15, np.int64))
    nodes = [
        helper.make_node("Range", ["zero", "many", "one"], ["r"]),
        helper.make_node("Relu", ["x"], ["y"]),
    ]
    small = [models.weight(name, np.array(value, np.int64)) for name, value in (("zero", 0), ("one", 1))]
    values = [models.value(name, [2]) for name in "xy"]
    model = load(
        models.save(models.model(nodes, values[:1], values[1:], [many, *small]), tmp_path / "m.onnx")
    )
    assert cost(model, {"x": (2,)}).nodes[1].flops == 2


def test_an_exporters_stale_shapes_do_not_count(tmp_path: Path) -> None:
    proto = models.mlp()
    proto.graph.value_info.append(models.value("m0", [1, 32]))
    model = load(models.save(proto, tmp_path / "m.onnx"))
    assert cost(model, bind(model, 6)).nodes[0].flops == 2 * 6 * 16 * 32


def test_functions_are_looked_into(tmp_path: Path) -> None:
    body = helper.make_node("MatMul", ["a", "a"], ["b"])
    function = helper.make_function("mine", "Square", ["a"], ["b"], [body], [helper.make_opsetid("", 17)])
    node = helper.make_node("Square", ["x"], ["y"], domain="mine")
    proto = models.model([node], [models.value("x", [4, 4])], [models.value("y", [4, 4])])
    proto.functions.append(function)
    proto.opset_import.append(helper.make_opsetid("mine", 1))
    model = load(models.save(proto, tmp_path / "f.onnx"))
    counted = cost(model, {"x": (4, 4)})
    assert (counted.flops, [node.op for node in counted.nodes]) == (2 * 4**3, ["MatMul"])


def test_unknown_operators_are_said_and_left_out(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["r"], "relu"),
        helper.make_node("Strange", ["r"], ["s"], "one", domain="com.microsoft"),
        helper.make_node("Strange", ["s"], ["y"], "two", domain="com.microsoft"),
    ]
    proto = models.model(nodes, [models.value("x", ["N", 3])], [models.value("y", ["N", 3])])
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    model = load(models.save(proto, tmp_path / "m.onnx"))
    counted = cost(model, bind(model, 2))
    assert counted.unknown == ("Strange (2 nodes)",)
    assert counted.flops == 6
    assert [node.flops for node in counted.nodes] == [6, None, None]


def test_a_shape_that_depends_on_the_data_is_unknown(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("NonZero", ["x"], ["where"]),
        helper.make_node("Cast", ["where"], ["y"], to=TensorProto.FLOAT),
        helper.make_node("Relu", ["y"], ["z"]),
    ]
    proto = models.model(nodes, [models.value("x", [2, 3])], [models.value("z", [2, "found"])])
    counted = cost(load(models.save(proto, tmp_path / "m.onnx")), {"x": (2, 3)})
    assert counted.unknown == ("NonZero (1 node)", "Relu (1 node)")
    assert [node.bytes for node in counted.nodes] == [None, None, None]


def test_shapes_that_do_not_fit_are_one_sentence(tmp_path: Path) -> None:
    model = load(models.save(models.mlp(), tmp_path / "m.onnx"))
    with pytest.raises(InputError, match="input 'x' of m was given no shape"):
        cost(model, {})
    with pytest.raises(InputError, match=r"was given shape \[2, 17\], it is \['N', 16\]"):
        cost(model, {"x": (2, 17)})
