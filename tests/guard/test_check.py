"""The verdict on sessions that are right, and on ones broken in known ways."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from fakes import models
from guard.helpers import plan, quiet, scale_weight, session, write
from onnx import helper, numpy_helper

from wavefit.guard.check import check
from wavefit.guard.reference import Reference, make_reference
from wavefit.model.samples import random_samples
from wavefit.routes.session import Arrays
from wavefit.schema import Model, Verdict


@pytest.fixture(name="model")
def model_(tmp_path: Path) -> Model:
    return write(models.conv_net(), tmp_path / "m.onnx")


@pytest.fixture(name="reference")
def reference_(model: Model) -> Reference:
    return make_reference(model, random_samples(model, {}, 8, 0), quiet)


@pytest.mark.parametrize("batch", [1, 3, 8, 20])
def test_an_optimised_session_passes_at_any_batch(model: Model, reference: Reference, batch: int) -> None:
    verdict = check(session(model), plan(model, batch), reference)
    assert verdict.passed, verdict.reasons
    assert verdict.factor == 32
    assert verdict.samples == 8
    [error] = verdict.outputs
    assert error.elements == -(-8 // batch) * batch * 10
    assert error.rel_l2_float64 is not None
    assert error.rel_l2_float64 < 1e-6


def test_a_slightly_wrong_weight_fails_in_fp32_and_passes_as_fp16(model: Model, reference: Reference) -> None:
    wrong = scale_weight("conv_w", 1 + 2**-11)
    failed = check(session(model, wrong), plan(model, 8), reference)
    assert not failed.passed
    assert "float64" in failed.reasons[0]
    assert check(session(model, wrong), plan(model, 8, "fp16"), reference).passed


def verdict_after(model: Model, reference: Reference, batch: int, alter: Callable[[Arrays], None]) -> Verdict:
    return check(session(model, alter=alter), plan(model, batch), reference)


def test_one_wrong_position_in_a_large_batch_is_found(model: Model, reference: Reference) -> None:
    def swap(outputs: Arrays) -> None:
        outputs["logits"][[30, 31]] = outputs["logits"][[31, 30]]

    verdict = verdict_after(model, reference, 64, swap)
    assert not verdict.passed
    assert "sample 3" in verdict.reasons[0]  # position 30 or 31


def test_nan_inf_missing_and_wrong_shape_fail(model: Model, reference: Reference) -> None:
    def nan(outputs: Arrays) -> None:
        outputs["logits"][2, 3] = np.nan

    def inf(outputs: Arrays) -> None:
        outputs["logits"][0, 0] = -np.inf

    def missing(outputs: Arrays) -> None:
        del outputs["logits"]

    def shape(outputs: Arrays) -> None:
        outputs["logits"] = outputs["logits"].T

    with_nan, with_inf = (verdict_after(model, reference, 8, alter) for alter in (nan, inf))
    assert "1 NaN and 0 Inf" in with_nan.reasons[0]
    assert with_nan.outputs[0].nan == 1
    assert "0 NaN and 1 Inf" in with_inf.reasons[0]
    assert "is missing" in verdict_after(model, reference, 8, missing).reasons[0]
    assert "has shape (10, 8), not (8, 10)" in verdict_after(model, reference, 8, shape).reasons[0]


def test_constant_weights_prove_nothing_and_the_verdict_says_so_first(tmp_path: Path) -> None:
    proto = models.conv_net()
    for name in ("conv_w", "fc_w"):
        scale_weight(name, 0.0)(proto)
    model = write(proto, tmp_path / "constant.onnx")
    reference = make_reference(model, random_samples(model, {}, 8, 0), quiet)
    verdict = check(session(model), plan(model, 8), reference)
    assert verdict.outputs[0].all_equal
    assert verdict.warnings[0].startswith("THIS CHECK PROVES NOTHING")


def test_without_float64_the_bound_against_fp32_holds(model: Model, reference: Reference) -> None:
    alone = Reference(reference.model, reference.samples, reference.outputs, None, True)
    assert check(session(model), plan(model, 8), alone).passed
    assert check(session(model), plan(model, 8), alone).factor is None
    half_digits = scale_weight("conv_w", 1 + 2e-3)
    verdict = check(session(model, half_digits), plan(model, 8), alone)
    assert not verdict.passed
    assert "fp32 reference" in verdict.reasons[0]


def test_fp16_arithmetic_passes_as_fp16_and_fails_as_fp32(model: Model, reference: Reference) -> None:
    def through_half(proto: onnx.ModelProto) -> None:
        for tensor in proto.graph.initializer:
            array = numpy_helper.to_array(tensor).astype(np.float16).astype(np.float32)
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))

    assert check(session(model, through_half), plan(model, 8, "fp16"), reference).passed
    assert check(session(model, through_half), plan(model, 8, "bf16"), reference).passed
    assert not check(session(model, through_half), plan(model, 8), reference).passed


def test_integer_outputs_are_compared_exactly(tmp_path: Path) -> None:
    proto = models.mlp()
    proto.graph.node.append(helper.make_node("ArgMax", ["y"], ["class"], axis=1, keepdims=0))
    proto.graph.output.append(models.value("class", ["N"], onnx.TensorProto.INT64))
    model = write(proto, tmp_path / "m.onnx")
    reference = make_reference(model, random_samples(model, {}, 8, 0), quiet)

    def other(outputs: Arrays) -> None:
        outputs["class"][1] += 1

    assert check(session(model), plan(model, 8), reference).passed
    verdict = check(session(model, alter=other), plan(model, 8), reference)
    assert "1 of 8 elements differ" in verdict.reasons[0]


def test_a_coupled_model_is_compared_at_the_plans_batch(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["mean"], axes=[0]),
        helper.make_node("Sub", ["x", "mean"], ["y"]),
    ]
    proto = models.model(nodes, [models.value("x", ["N", 4])], [models.value("y", ["N", 4])])
    model = write(proto, tmp_path / "m.onnx")
    reference = make_reference(model, random_samples(model, {}, 8, 0), quiet)
    assert check(session(model), plan(model, 5), reference).passed

    def off(outputs: Arrays) -> None:
        outputs["y"][4] += 0.1

    assert not check(session(model, alter=off), plan(model, 5), reference).passed


def test_a_model_without_a_batch_axis_is_held_to_float64_too(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("MatMul", ["a", "b"], ["c"]),
        helper.make_node("ReduceSum", ["c"], ["sum"], keepdims=0),
    ]
    inputs = [models.value("a", [3, 64]), models.value("b", [64, 5])]
    outputs = [models.value("c", [3, 5]), models.value("sum", [])]
    model = write(models.model(nodes, inputs, outputs), tmp_path / "m.onnx")
    samples = random_samples(model, {}, 8, 0)
    make_reference(model, samples, quiet).save(tmp_path / "reference")
    reference = Reference.load(tmp_path / "reference")
    want = samples.inputs["a"].astype(np.float64) @ samples.inputs["b"].astype(np.float64)
    assert reference.float64 is not None
    np.testing.assert_allclose(reference.float64["c"], want, rtol=1e-12)
    np.testing.assert_allclose(reference.float64["sum"], want.sum(), rtol=1e-12)
    verdict = check(session(model), plan(model, 1), reference)
    assert verdict.passed
    assert all(error.rel_l2_float64 is not None for error in verdict.outputs)

    def off(outputs: Arrays) -> None:
        outputs["c"][2, 4] *= 1 + 2**-10

    assert "from float64" in check(session(model, alter=off), plan(model, 1), reference).reasons[0]
