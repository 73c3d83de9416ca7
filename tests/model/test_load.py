"""Loading good models, and what the Model says of them."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import onnx
import pytest
from fakes import models
from onnx import TensorProto, helper, numpy_helper

from wavefit.model.load import load
from wavefit.schema import TensorSpec


def test_a_model_is_described(tmp_path: Path) -> None:
    path = models.save(models.conv_net(), tmp_path / "net.onnx")
    model = load(path)
    assert (model.name, model.path) == ("net", str(path))
    assert (model.opset, model.ir_version, model.producer) == (17, 8, "wavefit-tests")
    assert model.inputs == (TensorSpec(name="image", dtype="float32", shape=("N", 3, 8, 8)),)
    assert model.outputs == (TensorSpec(name="logits", dtype="float32", shape=("N", 10)),)
    assert model.nodes == 5
    assert model.nodes_by_type == {"Conv": 1, "Relu": 1, "GlobalAveragePool": 1, "Flatten": 1, "Gemm": 1}
    assert model.parameters == 8 * 3 * 3 * 3 + 8 + 10 * 8 + 10
    assert model.weight_bytes == 4 * model.parameters
    assert (model.dynamic, model.batch, model.external) == (("N",), "N", ())
    assert model.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_external_data_count_and_are_hashed(tmp_path: Path) -> None:
    path = models.save_external(models.mlp(seed=1), tmp_path / "m.onnx")
    model = load(path)
    assert model.external == ("weights.data",)
    assert model.parameters == 16 * 32 + 32 + 32 * 4 + 4
    data = path.parent / "weights.data"
    with data.open("r+b") as file:
        file.write(b"\0")
    assert load(path).sha256 != model.sha256


def test_external_data_may_lie_in_a_folder_below(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    path = models.save_external(models.mlp(), tmp_path / "m.onnx", data="deep/w.bin")
    assert load(path).external == ("deep/w.bin",)


def test_a_relative_path_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models.save(models.mlp(), tmp_path / "m.onnx")
    monkeypatch.chdir(tmp_path)
    assert load(Path("m.onnx")).path == str(tmp_path / "m.onnx")


def test_initializers_that_are_listed_as_inputs_are_not_asked_for(tmp_path: Path) -> None:
    proto = models.mlp()
    proto.graph.input.append(models.value("w0", [16, 32]))
    assert [spec.name for spec in load(models.save(proto, tmp_path / "m.onnx")).inputs] == ["x"]


def test_nodes_of_subgraphs_are_counted(tmp_path: Path) -> None:
    branches = {
        name: helper.make_graph([helper.make_node(op, ["x"], [name])], name, [], [models.value(name, [2])])
        for name, op in (("then_branch", "Relu"), ("else_branch", "Neg"))
    }
    node = helper.make_node("If", ["condition"], ["y"], "choose", **branches)
    inputs = [models.value("condition", [], TensorProto.BOOL), models.value("x", [2])]
    model = load(models.save(models.model([node], inputs, [models.value("y", [2])]), tmp_path / "if.onnx"))
    assert model.nodes_by_type == {"If": 1, "Relu": 1, "Neg": 1}
    assert [spec.dtype for spec in model.inputs] == ["bool", "float32"]


def test_functions_of_the_model_are_known_operators(tmp_path: Path) -> None:
    body = helper.make_node("Mul", ["a", "a"], ["b"])
    function = helper.make_function("mine", "Square", ["a"], ["b"], [body], [helper.make_opsetid("", 17)])
    proto = models.model(
        [helper.make_node("Square", ["x"], ["y"], "sq", domain="mine")],
        [models.value("x", ["N", 2])],
        [models.value("y", ["N", 2])],
    )
    proto.functions.append(function)
    proto.opset_import.append(helper.make_opsetid("mine", 1))
    assert load(models.save(proto, tmp_path / "f.onnx")).nodes_by_type == {"Square": 1}


def test_the_runtimes_own_operators_are_known(tmp_path: Path) -> None:
    node = helper.make_node("FastGelu", ["x"], ["y"], "gelu", domain="com.microsoft")
    proto = models.model([node], [models.value("x", ["N", 2])], [models.value("y", ["N", 2])])
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    assert load(models.save(proto, tmp_path / "g.onnx")).nodes == 1


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_an_attention_mask_may_hold_infinities(tmp_path: Path, kind: type) -> None:
    mask = np.triu(np.full((4, 4), -np.inf, kind), 1)
    dtype = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    value = models.value("x", [4, 4], dtype)
    proto = models.model(
        [helper.make_node("Add", ["x", "mask"], ["y"])],
        [value],
        [models.value("y", [4, 4], dtype)],
        [models.weight("mask", mask)],
    )
    assert load(models.save(proto, tmp_path / "mask.onnx")).parameters == 16


def test_typed_fields_and_packed_types_are_measured(tmp_path: Path) -> None:
    weights = [
        helper.make_tensor("f", TensorProto.FLOAT16, [3], [1.0, 2.0, 3.0]),
        helper.make_tensor("q", TensorProto.INT4, [3], [1, -2, 3]),
        helper.make_tensor("s", TensorProto.INT64, [2], [1, 3]),
    ]
    proto = models.model(
        [helper.make_node("Relu", ["x"], ["y"])],
        [models.value("x", ["N"])],
        [models.value("y", ["N"])],
        weights,
        opset=21,
    )
    model = load(models.save(proto, tmp_path / "t.onnx"))
    assert model.parameters == 6  # int64 holds shapes, not parameters
    assert model.weight_bytes == 3 * 2 + 2 + 2 * 8


def test_every_light_model_of_the_onnx_package_loads() -> None:
    folder = Path(onnx.__file__).parent / "backend/test/data/light"
    loaded = [load(path) for path in sorted(folder.glob("light_*.onnx"))]
    assert len(loaded) >= 9
    assert all(model.inputs[0].shape is not None and len(model.inputs[0].shape) == 4 for model in loaded)


@pytest.mark.parametrize(
    ("kind", "precision"),
    [(np.float32, "fp32"), (np.float16, "fp16"), (np.float64, "fp32")],
)
def test_a_files_precision_is_that_of_its_weights(tmp_path: Path, kind: type, precision: str) -> None:
    element = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", element, (1, 2))],
        [helper.make_tensor_value_info("y", element, (1, 3))],
        [numpy_helper.from_array(np.ones((2, 3), kind), "w")],
    )
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    assert load(path).precision == precision


def test_a_file_that_quantises_is_int8(tmp_path: Path) -> None:
    graph = helper.make_graph(
        [
            helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
            helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"]),
        ],
        "g",
        [helper.make_tensor_value_info("x", 1, (1, 2))],
        [helper.make_tensor_value_info("y", 1, (1, 2))],
        [
            numpy_helper.from_array(np.float32(0.1), "s"),
            numpy_helper.from_array(np.uint8(128), "z"),
        ],
    )
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    assert load(path).precision == "int8"
