"""Outliers move from activations to weights: by the paper's formula, for nothing where they can, and int8 gains."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

pytest.importorskip("onnx_ir")
pytest.importorskip("onnxruntime")

import onnx_ir as ir
from fakes.models import model, value, weight
from onnx import helper
from precision.quantised import int8, target

from wavefit.model.samples import Samples
from wavefit.precision import graph
from wavefit.precision.compensation import smoothquant
from wavefit.precision.int8 import qdq

WIDTH, TOKENS = 32, 6
OUTLIERS = (3, 17)


def quiet(_: str) -> None:
    pass


def encoder_part(norm: str, opset: int = 17) -> onnx.ModelProto:
    """x -> normalisation with two channels 60 times as large -> two MatMuls with Add, Relu, MatMul -> y."""
    random = np.random.default_rng(0)
    gain = random.uniform(0.5, 1.5, WIDTH)
    gain[list(OUTLIERS)] *= 60
    stored = {"gain": gain, "offset": random.normal(0, 0.1, WIDTH) * gain}
    for name, shape in {"w1": (WIDTH, WIDTH), "w2": (WIDTH, WIDTH), "w3": (WIDTH, 4)}.items():
        stored[name] = random.normal(0, WIDTH**-0.5, shape)
    for name in ("w1", "w2"):  # training keeps what outlying channels do in bounds
        stored[name][list(OUTLIERS)] /= 20
    stored["b1"] = random.normal(0, 0.1, WIDTH)
    nodes = {
        "LayerNormalization": [
            helper.make_node("LayerNormalization", ["x", "gain", "offset"], ["n"], "norm")
        ],
        "decomposed": [
            helper.make_node("ReduceMean", ["x"], ["mean"], "mean", axes=[-1]),
            helper.make_node("Sub", ["x", "mean"], ["d"], "centred"),
            helper.make_node("Mul", ["d", "gain"], ["g"], "gained"),
            helper.make_node("Add", ["g", "offset"], ["n"], "shifted"),
        ],
        "Softplus": [
            helper.make_node("Mul", ["x", "gain"], ["t"], "gained"),
            helper.make_node("Softplus", ["t"], ["n"]),
        ],
    }[norm]
    nodes += [
        helper.make_node("MatMul", ["n", "w1"], ["p"], "one"),
        helper.make_node("Add", ["p", "b1"], ["q"], "one_bias"),
        helper.make_node("MatMul", ["n", "w2"], ["r"], "two"),
        helper.make_node("Add", ["q", "r"], ["s"], "sum"),
        helper.make_node("Relu", ["s"], ["u"], "relu"),
        helper.make_node("MatMul", ["u", "w3"], ["y"], "three"),
    ]
    weights = [weight(name, array.astype(np.float32)) for name, array in stored.items()]
    inputs, outputs = [value("x", ["N", TOKENS, WIDTH])], [value("y", ["N", TOKENS, 4])]
    return model(nodes, inputs, outputs, weights, opset)


def loaded(tmp_path: Path, norm: str) -> ir.Model:
    path = tmp_path / "model.onnx"
    onnx.save(encoder_part(norm), str(path))
    return graph.load(path)


def data(seed: int, items: int = 24) -> Samples:
    array = np.random.default_rng(seed).normal(size=(items, TOKENS, WIDTH)).astype(np.float32)
    return Samples({"x": array}, None, "test")


def distance(one: ir.Model, other: ir.Model, samples: Samples) -> float:
    first, second = (graph.Runner(each)(samples.inputs)["y"] for each in (one, other))
    return float(np.linalg.norm(first - second) / np.linalg.norm(first))


@pytest.mark.parametrize("norm", ["LayerNormalization", "decomposed", "Softplus"])
def test_int8_gains_and_fp32_stays(tmp_path: Path, norm: str) -> None:
    before = loaded(tmp_path, norm)
    layers = qdq.quantisable(before, target())
    after = smoothquant.compensate(before, layers, data(1), quiet)
    unseen = data(2)
    assert distance(before, after, unseen) < 3e-6
    nodes = [name for name in layers if name in ("one", "two", "three")]
    plain = distance(before, int8(before, data(1), nodes), unseen)
    ours = distance(before, int8(after, data(1), nodes), unseen)
    assert ours < 0.5 * plain
    added = len(list(after.graph)) - len(list(before.graph))
    assert added == (1 if norm == "Softplus" else 0)  # nothing can take the factors in behind a Softplus


def test_the_normalisation_is_divided_by_the_papers_factor(tmp_path: Path) -> None:
    before = loaded(tmp_path, "LayerNormalization")
    after = smoothquant.compensate(before, ["one", "two"], data(1), quiet)
    old, new = (graph.constant(graph.nodes(each)["norm"].inputs[1]) for each in (before, after))
    normed = graph.Runner(before, ("n",))(data(1).inputs)["n"]
    size = np.abs(normed.astype(np.float64)).max((0, 1))
    arrays = [graph.constant(graph.nodes(before)[name].inputs[1]) for name in ("one", "two")]
    columns = np.max([np.abs(array).max(1) for array in arrays if array is not None], 0).astype(np.float64)
    scale = old.astype(np.float64) / new  # type: ignore[union-attr]
    fits = []
    for alpha in smoothquant.ALPHAS:
        wanted = size**alpha / columns ** (1 - alpha)
        fits.append(np.allclose(scale, wanted / np.exp(np.log(wanted).mean()), rtol=1e-4))
    assert sum(fits) == 1


def test_a_ceiling_is_not_moved(tmp_path: Path) -> None:
    """Clip(0, 6) does not scale with its channels: a Mul is put behind it."""
    random = np.random.default_rng(5)
    gain = np.where(np.isin(np.arange(WIDTH), OUTLIERS), 6.0, 0.05)
    stored = {
        "w1": random.normal(0, 0.3, (WIDTH, WIDTH)) * gain,
        "w2": random.normal(0, 0.3, (WIDTH, 4)) / gain[:, None],
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["a"], "one"),
        helper.make_node("Clip", ["a", "zero", "six"], ["b"], "relu6"),
        helper.make_node("MatMul", ["b", "w2"], ["y"], "two"),
    ]
    weights = [weight(name, array.astype(np.float32)) for name, array in stored.items()]
    weights += [weight("zero", np.float32(0)), weight("six", np.float32(6))]
    shapes = [value("x", ["N", TOKENS, WIDTH])], [value("y", ["N", TOKENS, 4])]
    onnx.save(model(nodes, *shapes, weights), str(tmp_path / "m.onnx"))
    before = graph.load(tmp_path / "m.onnx")
    assert graph.Runner(before, ("b",))(data(1).inputs)["b"].max() == 6
    after = smoothquant.compensate(before, ["one", "two"], data(1), quiet)
    assert distance(before, after, data(2)) < 3e-6
    assert [node.op_type for node in after.graph] == ["MatMul", "Clip", "Mul", "MatMul"]


def test_channels_without_size_stay() -> None:
    found = smoothquant.factors(np.array([0.0, 4.0, 1.0]), np.array([1.0, 1.0, 0.0]), 0.5)
    np.testing.assert_array_equal(found, [1, 1, 1])  # one channel left: its own geometric mean
    both = smoothquant.factors(np.array([16.0, 1.0]), np.array([1.0, 1.0]), 0.5)
    np.testing.assert_allclose(both, [2, 0.5])  # 4 and 1, over their mean of 2


def test_even_channels_are_left_alone(tmp_path: Path) -> None:
    proto = encoder_part("LayerNormalization")
    for tensor in proto.graph.initializer:
        if tensor.name == "gain":
            tensor.CopyFrom(weight("gain", np.ones(WIDTH, np.float32)))
        if tensor.name in ("w1", "w2"):
            tensor.CopyFrom(
                weight(
                    tensor.name,
                    np.random.default_rng(3).choice([-1.0, 1.0], (WIDTH, WIDTH)).astype(np.float32),
                )
            )
        if tensor.name == "offset":
            tensor.CopyFrom(weight("offset", np.zeros(WIDTH, np.float32)))
    onnx.save(proto, str(tmp_path / "m.onnx"))
    before = graph.load(tmp_path / "m.onnx")
    after = smoothquant.compensate(before, ["one", "two"], data(1), quiet)
    assert distance(before, after, data(2)) < 3e-6
    assert len(list(after.graph)) == len(list(before.graph))


def test_a_graph_without_such_layers(tmp_path: Path) -> None:
    before = loaded(tmp_path, "LayerNormalization")
    after = smoothquant.compensate(before, [], data(1), quiet)
    assert distance(before, after, data(2)) == 0


def test_names_that_the_model_has_are_left_to_it(tmp_path: Path) -> None:
    """A Mul that is put before the layer "layer" would be called "layer_smooth", and make "layer_smoothed"."""
    random = np.random.default_rng(0)
    nodes = [
        helper.make_node("Sigmoid", ["x"], ["layer_smoothed"], "layer_smooth"),
        helper.make_node("Mul", ["layer_smoothed", "gains"], ["g"], "gain"),
        helper.make_node(
            "Mul", ["g", "x"], ["p"], "product"
        ),  # by what is no constant: not free to be scaled
        helper.make_node("MatMul", ["p", "w"], ["y"], "layer"),
    ]
    stored = {"gains": np.array([1, 1, 200, 1, 1, 1, 1, 1]), "w": random.normal(0, 1, (8, 8))}
    weights = [weight(name, array.astype(np.float32)) for name, array in stored.items()]
    onnx.save(model(nodes, [value("x", ["N", 8])], [value("y", ["N", 8])], weights), str(tmp_path / "m.onnx"))
    before = graph.load(tmp_path / "m.onnx")
    samples = Samples({"x": random.normal(0, 1, (32, 8)).astype(np.float32)}, None, "test")
    after = smoothquant.compensate(before, ["layer"], samples, quiet)
    assert [node.op_type for node in after.graph] == ["Sigmoid", "Mul", "Mul", "Mul", "MatMul"]
    assert distance(before, after, samples) < 1e-5
