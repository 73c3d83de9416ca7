"""Whole models in half: onnx's own graphs, recurrent ones, functions, other domains, exports of PyTorch."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from fakes import models
from onnx import TensorProto, helper, numpy_helper
from precision.cases import type_error

from wavefit.precision import graph
from wavefit.precision.half.convert import cannot, convert
from wavefit.precision.half.emulate import emulated
from wavefit.schema import Precision

LIGHT = sorted((Path(onnx.__file__).parent / "backend/test/data/light").glob("*.onnx"))


def load(proto: onnx.ModelProto, tmp_path: Path) -> ir.Model:
    return graph.load(models.save(proto, tmp_path / "model.onnx"))


def all_low(model: ir.Model, low: Precision = "fp16") -> dict[str, Precision]:
    return dict.fromkeys(graph.nodes(model), low)


def distance(got: np.ndarray, want: np.ndarray) -> float:
    """Relative L2."""
    return float(np.linalg.norm(got.astype(np.float64) - want) / np.linalg.norm(want.astype(np.float64)))


def random_weights(proto: onnx.ModelProto, seed: int = 0) -> onnx.ModelProto:
    """The light files make each weight with a ConstantOfShape of one number; here it is drawn, He-scaled."""
    pick = np.random.default_rng(seed)
    shapes = {tensor.name: numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}
    nodes = []
    for node in proto.graph.node:
        if node.op_type == "ConstantOfShape":
            shape = tuple(shapes[node.input[0]])
            scale = np.sqrt(2 / np.prod(shape[1:])) if len(shape) > 1 else 0.1
            array = pick.normal(0, scale, shape) + (
                len(shape) == 1
            )  # near 1 where it scales or is a variance
            proto.graph.initializer.append(models.weight(node.output[0], array.astype(np.float32)))
        else:
            nodes.append(node)
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)
    proto.ir_version = 8
    return proto


@pytest.mark.parametrize("path", LIGHT, ids=lambda path: path.stem.removeprefix("light_"))
def test_onnx_models_of_opset_9_pass_the_check(path: Path, tmp_path: Path) -> None:
    """The weights are made by ConstantOfShape, whose value has to become half as well."""
    model = graph.load(path)
    assert cannot(model) == ()
    pick = random.Random(0)
    some: dict[str, Precision] = {name: "fp16" for name in graph.nodes(model) if pick.random() < 0.7}
    graph.save(convert(model, some), tmp_path / "half.onnx")


@pytest.mark.parametrize("name", ["squeezenet", "inception_v1"])
def test_onnx_models_compute_the_same_in_half(name: str, tmp_path: Path) -> None:
    path = next(path for path in LIGHT if name in path.stem)
    proto = random_weights(onnx.load(str(path)))
    model = load(proto, tmp_path)
    size = [dim.dim_value for dim in model_input(proto).type.tensor_type.shape.dim]
    x = {model_input(proto).name: np.random.default_rng(1).normal(0, 1, size).astype(np.float32)}
    fp32 = next(iter(graph.Runner(model)(x).values()))
    rounded = next(iter(graph.Runner(emulated(model, all_low(model)))(x).values()))
    converted = convert(model, all_low(model))
    half = next(iter(graph.Runner(converted)(x).values()))
    assert np.ptp(fp32) > 0
    assert 1e-5 < distance(rounded, fp32) < 2e-2
    assert 1e-6 < distance(half, fp32) < 2e-2
    assert graph.weight_bytes(converted) < 0.51 * graph.weight_bytes(model)


def model_input(proto: onnx.ModelProto) -> onnx.ValueInfoProto:
    weights = {tensor.name for tensor in proto.graph.initializer}
    return next(value for value in proto.graph.input if value.name not in weights)


def test_weights_that_an_old_file_lists_as_inputs_become_half(tmp_path: Path) -> None:
    """Until IR version 3 every initializer had to be an input too; and a Constant node is an initializer here."""
    proto = models.mlp()
    proto.graph.input.extend(
        helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        for tensor in proto.graph.initializer
    )
    two = helper.make_node("Constant", [], ["two"], value=models.weight("two", np.float32(2)))
    proto.graph.node.insert(0, two)
    proto.graph.node.append(helper.make_node("Mul", ["y", "two"], ["z"], "twice"))
    proto.graph.output[0].name = "z"
    proto.ir_version = 3
    model = load(proto, tmp_path)
    converted = convert(model, all_low(model))
    graph.save(converted, tmp_path / "half.onnx")
    assert [value.name for value in converted.graph.inputs] == ["x"]
    assert {value.dtype for value in converted.graph.initializers.values()} == {ir.DataType.FLOAT16}
    assert sum(node.op_type == "Cast" for node in converted.graph) == 2


@pytest.mark.parametrize(("operator", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
def test_recurrent_layers(operator: str, gates: int, tmp_path: Path) -> None:
    pick = np.random.default_rng(0)
    shapes = {"w": (1, gates * 5, 6), "r": (1, gates * 5, 5), "b": (1, 2 * gates * 5), "h": (1, 2, 5)}
    weights = [models.weight(n, pick.normal(0, 0.4, s).astype(np.float32)) for n, s in shapes.items()]
    node = helper.make_node(operator, ["x", "w", "r", "b", "", "h"], ["y", "last"], "rnn", hidden_size=5)
    outputs = [models.value("y", ["T", 1, 2, 5]), models.value("last", [1, 2, 5])]
    model = load(models.model([node], [models.value("x", ["T", 2, 6])], outputs, weights), tmp_path)
    converted = convert(model, all_low(model))
    graph.save(converted, tmp_path / "half.onnx")
    x = {"x": pick.normal(0, 1, (7, 2, 6)).astype(np.float32)}
    for made in (converted, emulated(model, all_low(model))):
        for name, want in graph.Runner(model)(x).items():
            assert 0 < distance(graph.Runner(made)(x)[name], want) < 2e-3


def with_function() -> onnx.ModelProto:
    """Two calls of a function of the model's own, with documentation and properties on the model."""
    half = helper.make_tensor("half", TensorProto.FLOAT, [], [0.5])
    body = [
        helper.make_node("Constant", [], ["c"], value=half),
        helper.make_node("Mul", ["a", "c"], ["t"]),
        helper.make_node("Tanh", ["t"], ["o"]),
    ]
    function = helper.make_function("own", "HalfTanh", ["a"], ["o"], body, [helper.make_opsetid("", 17)])
    calls = [
        helper.make_node("HalfTanh", ["x"], ["z"], "first", domain="own"),
        helper.make_node("HalfTanh", ["z"], ["y"], "second", domain="own"),
    ]
    body_graph = helper.make_graph(calls, "g", [models.value("x", ["N"])], [models.value("y", ["N"])])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    proto = helper.make_model(body_graph, opset_imports=imports, functions=[function], ir_version=8)
    proto.doc_string, proto.domain, proto.model_version = "what it is", "org.example", 7
    proto.metadata_props.add(key="licence", value="free")
    return proto


def test_functions_are_lowered_and_the_models_words_kept(tmp_path: Path) -> None:
    model = load(with_function(), tmp_path)
    graph.save(convert(model, all_low(model)), tmp_path / "half.onnx")
    saved = onnx.load(tmp_path / "half.onnx")
    kinds = [node.op_type for node in saved.graph.node]
    assert kinds == ["Cast", "Mul", "Tanh", "Mul", "Tanh", "Cast"]
    assert (saved.doc_string, saved.domain, saved.model_version) == ("what it is", "org.example", 7)
    assert [(entry.key, entry.value) for entry in saved.metadata_props] == [("licence", "free")]
    assert {tensor.data_type for tensor in saved.graph.initializer} == {TensorProto.FLOAT16}


def test_operators_of_other_domains_stay(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Exp", ["x"], ["e"], "exp"),
        helper.make_node("Gelu", ["e"], ["g"], "gelu", domain="com.microsoft"),
        helper.make_node("Neg", ["g"], ["y"], "neg"),
        helper.make_node("Scaler", ["e"], ["z"], "ml", domain="ai.onnx.ml", offset=[0.1], scale=[2.0]),
    ]
    outputs = [models.value("y", ["N", 3]), models.value("z", ["N", 3])]
    proto = models.model(nodes, [models.value("x", ["N", 3])], outputs)
    proto.opset_import.extend([helper.make_opsetid("com.microsoft", 1), helper.make_opsetid("ai.onnx.ml", 3)])
    model = load(proto, tmp_path)
    assert [(kept.node, kept.reason) for kept in cannot(model)] == [
        ("gelu", "com.microsoft::Gelu has no definition in the ONNX standard"),
        ("neg", "the type of its value 'g' could not be inferred"),
        ("ml", "ai.onnx.ml::Scaler takes no float16 by its ONNX definition of opset 1"),
    ]
    x = {"x": np.random.default_rng(0).normal(0, 1, (2, 3)).astype(np.float32)}
    converted = convert(model, all_low(model))
    for name, want in graph.Runner(model)(x).items():
        np.testing.assert_allclose(graph.Runner(converted)(x)[name], want, rtol=2e-3)


def test_a_stretch_that_is_half_already_is_joined(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Exp", ["x"], ["e"], "exp"),
        helper.make_node("Cast", ["e"], ["h"], "down", to=TensorProto.FLOAT16),
        helper.make_node("Neg", ["h"], ["n"], "neg"),
        helper.make_node("Cast", ["n"], ["f"], "up", to=TensorProto.FLOAT),
        helper.make_node("Abs", ["f"], ["y"], "abs"),
    ]
    model = load(models.model(nodes, [models.value("x", ["N"])], [models.value("y", ["N"])]), tmp_path)
    converted = convert(model, all_low(model))
    assert [node.op_type for node in converted.graph] == ["Cast", "Exp", "Neg", "Abs", "Cast"]
    graph.save(converted, tmp_path / "half.onnx")


def test_the_same_input_gives_the_same_bytes_in_any_process(tmp_path: Path) -> None:
    """A file's SHA-256 is in the key of a record."""
    case = type_error.build(tmp_path / "case.onnx")
    program = (
        "import sys; from pathlib import Path\n"
        "from wavefit.precision import graph\n"
        "from wavefit.precision.half.convert import convert\n"
        "model = graph.load(Path(sys.argv[1]))\n"
        "graph.save(convert(model, dict.fromkeys(graph.nodes(model), 'fp16')), Path(sys.argv[2]))\n"
    )
    digests = set()
    for seed in ("1", "2"):
        path = tmp_path / f"half{seed}.onnx"
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", program, str(case.path), str(path)]
        subprocess.run(command, env=environment, check=True)
        digests.add(hashlib.sha256(path.read_bytes()).hexdigest())
    assert len(digests) == 1


@pytest.mark.torch
@pytest.mark.parametrize("dynamo", [True, False])
def test_exports_of_pytorch(dynamo: bool, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    net = _attention_net(torch).eval()
    x = torch.randn(2, 3, 16, 16)
    path = tmp_path / "exported.onnx"
    if dynamo:
        torch.onnx.export(net, (x,), dynamo=True, external_data=False).save(str(path))
    else:
        torch.onnx.export(net, (x,), str(path), dynamo=False, opset_version=17, input_names=["x"])
    model = graph.load(path)
    assert cannot(model) == ()
    converted = convert(model, all_low(model))
    graph.save(converted, tmp_path / "half.onnx")
    given = {str(model.graph.inputs[0].name): x.numpy()}
    want = net(x).detach().numpy()
    for made in (converted, emulated(model, all_low(model))):
        assert 0 < distance(next(iter(graph.Runner(made)(given).values())), want) < 5e-3
    assert sum(node.op_type == "Cast" for node in converted.graph) <= 2 + _own_casts(model)


def _own_casts(model: ir.Model) -> int:
    return sum(node.op_type == "Cast" for node in model.graph)


def _attention_net(torch):
    """Convolution, bilinear resize to a size read from a tensor, attention, LayerNorm, GELU, a class for each."""

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = torch.nn.Conv2d(3, 16, 3, padding=1)
            self.norm = torch.nn.LayerNorm(16)
            self.attention = torch.nn.MultiheadAttention(16, 2, batch_first=True)
            self.head = torch.nn.Linear(16, 5)

        def forward(self, x):
            y = torch.nn.functional.gelu(self.stem(x))
            y = torch.nn.functional.interpolate(y, scale_factor=0.5, mode="bilinear", align_corners=False)
            tokens = self.norm(y.flatten(2).transpose(1, 2))
            tokens = tokens + torch.linspace(0, 1, tokens.shape[1]).unsqueeze(-1)
            tokens = tokens + self.attention(tokens, tokens, tokens, need_weights=False)[0]
            return self.head(tokens.clamp(min=-4.0).mean(1)).log_softmax(-1)

    return Net()
