"""The references against formulas and PyTorch in double, and what they say where they cannot be had."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from fakes import models
from guard.helpers import quiet, write
from onnx import TensorProto, helper, numpy_helper

from wavefit.errors import InputError
from wavefit.guard.exact import NoFloat64, run_float64
from wavefit.guard.reference import Reference, make_reference
from wavefit.model.samples import Samples, random_samples
from wavefit.schema import Model


def weights(proto: object) -> dict[str, np.ndarray]:
    return {w.name: numpy_helper.to_array(w).astype(np.float64) for w in proto.graph.initializer}  # type: ignore[attr-defined]


def test_float64_is_the_formula_in_double(tmp_path: Path) -> None:
    proto = models.mlp()
    w = weights(proto)
    model = write(proto, tmp_path / "m.onnx")
    samples = random_samples(model, {}, 5, 1)
    x = samples.inputs["x"].astype(np.float64)
    want = np.maximum(x @ w["w0"] + w["b0"], 0) @ w["w1"] + w["b1"]
    have = run_float64(model, samples.inputs, 10)["y"]
    assert have.dtype == np.float64
    np.testing.assert_allclose(have, want, rtol=1e-13)
    reference = make_reference(model, samples, quiet)
    assert reference.outputs["y"].dtype == np.float32
    error = np.linalg.norm(reference.outputs["y"] - want) / np.linalg.norm(want)
    assert 1e-9 < error < 1e-6  # fp32 rounding, and no more


@pytest.mark.torch
def test_float64_of_a_convolutional_net_is_torch_in_double(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    proto = models.conv_net()
    w = {name: torch.from_numpy(array) for name, array in weights(proto).items()}
    model = write(proto, tmp_path / "m.onnx")
    image = random_samples(model, {}, 3, 0).inputs["image"]
    y = torch.nn.functional.conv2d(torch.from_numpy(image).double(), w["conv_w"], w["conv_b"], padding=1)
    want = y.relu().mean((2, 3)) @ w["fc_w"].T + w["fc_b"]
    np.testing.assert_allclose(run_float64(model, {"image": image}, 10)["logits"], want, rtol=1e-12)


def scalar_op(nodes: list[object], weight: tuple = (), dtype: int = TensorProto.FLOAT) -> object:
    return models.model(
        nodes, [models.value("x", ["N", 4], dtype)], [models.value("y", ["N", 4], dtype)], weight, opset=18
    )


def test_float64_keeps_no_float32_in_casts_and_constants(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Constant", [], ["third"], value_float=1 / 3),
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("ConstantOfShape", ["shape"], ["zeros"]),
        helper.make_node("Cast", ["x"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Exp", ["f"], ["e"]),
        helper.make_node("Add", ["e", "zeros"], ["a"]),
        helper.make_node("Mul", ["a", "third"], ["y"]),
    ]
    model = write(scalar_op(nodes), tmp_path / "m.onnx")
    x = random_samples(model, {}, 3, 0).inputs["x"]
    want = np.exp(x.astype(np.float64)) * np.float64(np.float32(1 / 3))
    np.testing.assert_allclose(run_float64(model, {"x": x}, 10)["y"], want, rtol=1e-15)


def test_float64_runs_branches(tmp_path: Path) -> None:
    def branch(name: str, op: str) -> object:
        node = helper.make_node(op, ["x"], [name])
        return helper.make_graph([node], name, [], [models.value(name, None)])

    zero = numpy_helper.from_array(np.float32(0), "zero")
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        helper.make_node("Greater", ["sum", "zero"], ["positive"]),
        helper.make_node(
            "If", ["positive"], ["y"], then_branch=branch("t", "Exp"), else_branch=branch("e", "Neg")
        ),
    ]
    model = write(scalar_op(nodes, (zero,)), tmp_path / "m.onnx")
    x = np.full((1, 4), 0.3, np.float32)
    np.testing.assert_allclose(
        run_float64(model, {"x": x}, 10)["y"], np.exp(x.astype(np.float64)), rtol=1e-15
    )


def test_an_operator_that_would_take_too_long_is_named(tmp_path: Path) -> None:
    node = helper.make_node("LpPool", ["x"], ["y"], "pool", kernel_shape=[2, 2])
    proto = models.model(
        [node], [models.value("x", ["N", 3, 128, 128])], [models.value("y", ["N", 3, 127, 127])], opset=18
    )
    model = write(proto, tmp_path / "m.onnx")
    reference = make_reference(model, random_samples(model, {}, 1, 0), quiet)
    assert reference.float64 is None
    assert reference.warnings == (
        "no float64 reference: LpPool 'pool' would take too long on onnx's reference evaluator (49152 elements)",
    )


def test_an_unknown_operator_is_named(tmp_path: Path) -> None:
    node = helper.make_node("FastGelu", ["x"], ["y"], "gelu", domain="com.microsoft")
    proto = scalar_op([node])
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    model = write(proto, tmp_path / "m.onnx")
    reference = make_reference(model, random_samples(model, {}, 2, 0), quiet)
    assert reference.float64 is None
    assert "FastGelu" in reference.warnings[0]


def test_a_run_beyond_its_time_is_given_up(tmp_path: Path) -> None:
    model = write(models.mlp(), tmp_path / "m.onnx")
    with pytest.raises(NoFloat64, match="took too long"):
        run_float64(model, {"x": np.ones((1, 16), np.float32)}, -1)


def test_a_float64_run_far_from_fp32_is_not_trusted(tmp_path: Path) -> None:
    # 1e8 + x - 1e8 in fp32 keeps no digit of x: the model is ill-conditioned, and float64 would excuse any answer
    big = numpy_helper.from_array(np.float32(1e8), "big")
    nodes = [helper.make_node("Add", ["x", "big"], ["s"]), helper.make_node("Sub", ["s", "big"], ["y"])]
    model = write(scalar_op(nodes, (big,)), tmp_path / "m.onnx")
    reference = make_reference(model, random_samples(model, {}, 4, 0), quiet)
    assert reference.float64 is None
    assert "ill-conditioned" in reference.warnings[0]


def test_data_sorted_by_class_is_sampled_evenly(tmp_path: Path) -> None:
    model = write(models.mlp(), tmp_path / "m.onnx")
    x = np.random.default_rng(0).standard_normal((100, 16)).astype(np.float32)
    reference = make_reference(model, Samples({"x": x}, np.repeat(np.arange(4), 25), "test"), quiet)
    assert reference.samples.count == 8
    assert reference.samples.labels is not None
    assert set(reference.samples.labels) == {0, 1, 2, 3}


def test_an_item_that_depends_on_its_neighbours_is_noticed(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["mean"], axes=[0]),
        helper.make_node("Sub", ["x", "mean"], ["y"]),
    ]
    proto = models.model(nodes, [models.value("x", ["N", 4])], [models.value("y", ["N", 4])])
    model = write(proto, tmp_path / "m.onnx")
    samples = random_samples(model, {}, 8, 0)
    reference = make_reference(model, samples, quiet)
    assert not reference.per_item
    batch = samples.batch(0, 3)["x"]
    np.testing.assert_allclose(reference.expected(0, 3)["y"], batch - batch.mean(0), rtol=1e-5, atol=1e-6)


def test_a_frozen_batch_is_run_in_blocks(tmp_path: Path) -> None:
    model = write(models.mlp(batch=3), tmp_path / "m.onnx")
    reference = make_reference(model, random_samples(model, {}, 7, 0), quiet)
    assert reference.per_item
    assert reference.float64 is not None
    assert reference.samples.count == reference.outputs["y"].shape[0] == 6  # 2 blocks of 3 fit in 8


def test_saved_and_loaded_without_pickle(tmp_path: Path) -> None:
    model = write(models.mlp(), tmp_path / "m.onnx")
    reference = make_reference(model, random_samples(model, {}, 8, 0), quiet)
    reference.save(tmp_path / "ref")
    again = Reference.load(tmp_path / "ref")
    assert isinstance(again.model, Model)
    assert again.model == model
    assert reference.float64 is not None
    assert again.float64 is not None
    np.testing.assert_array_equal(again.float64["y"], reference.float64["y"])
    np.testing.assert_array_equal(again.expected(5, 12)["y"], reference.outputs["y"][np.arange(5, 17) % 8])
    (tmp_path / "ref" / "reference.npz").write_bytes(b"PK\x03\x04")
    with pytest.raises(InputError, match="could not be read"):
        Reference.load(tmp_path / "ref")


def test_a_half_precision_file_is_judged_by_its_own_roundoff(tmp_path: Path) -> None:
    half = numpy_helper.from_array(np.full((4, 4), 0.1, np.float16), "w")
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    proto = models.model([node], [models.value("x", ["N", 4], 10)], [models.value("y", ["N", 4], 10)], [half])
    model = write(proto, tmp_path / "m.onnx")
    reference = make_reference(model, random_samples(model, {}, 4, 0), quiet)
    assert reference.unit_roundoff == 2.0**-11
    assert reference.float64 is not None
    x = reference.samples.inputs["x"].astype(np.float64)
    np.testing.assert_allclose(
        reference.float64["y"], x @ np.full((4, 4), np.float64(np.float16(0.1))), rtol=1e-14
    )
