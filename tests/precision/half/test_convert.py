"""Typed graphs: that they load, what is in them, and their numbers against half arithmetic in numpy."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from fakes import models
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from precision import typed
from precision.cases import type_error

from wavefit.errors import InputError
from wavefit.precision import graph
from wavefit.precision.half.convert import cannot, convert
from wavefit.precision.half.emulate import emulated
from wavefit.precision.int8 import opset
from wavefit.schema import Precision

# What ONNX's reference, which is numpy, does not compute: DequantizeLinear before opset 19, boxes as drawn here.
NOT_IN_REFERENCE = {"quantised", "suppression"}


def load(proto: onnx.ModelProto, tmp_path: Path) -> ir.Model:
    return graph.load(models.save(proto, tmp_path / "model.onnx"))


def all_low(model: ir.Model, low: Precision = "fp16") -> dict[str, Precision]:
    return dict.fromkeys(graph.nodes(model), low)


def drawn(model: ir.Model, seed: int, low: Precision = "fp16") -> dict[str, Precision]:
    """About half of the nodes; all of them for seed 0."""
    pick = random.Random(seed)
    return {name: low for name in graph.nodes(model) if seed == 0 or pick.random() < 0.5}


def casts(model: ir.Model) -> list[ir.Node]:
    return [node for node in model.graph if node.op_type == "Cast"]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", typed.GRAPHS)
def test_any_assignment_gives_a_graph_that_loads_and_computes(name: str, seed: int, tmp_path: Path) -> None:
    proto = typed.graph(name)
    model = load(proto, tmp_path)
    assignment = drawn(model, seed)
    for io in ("low", "fp32"):
        converted = convert(model, assignment, "fp16", io)
        graph.save(converted, tmp_path / "half.onnx")  # onnx's full check, strict inference
        runner = graph.Runner(converted)
    given = typed.inputs(proto, seed)
    names = [value.name for value in proto.graph.output]
    if name in NOT_IN_REFERENCE:
        half = list(runner(given).values())
    else:
        with np.errstate(over="ignore"):
            half = ReferenceEvaluator(str(tmp_path / "half.onnx")).run(names, given)
    assert {name: array.dtype for name, array in runner(given).items()} == {
        name: array.dtype for name, array in graph.Runner(model)(given).items()
    }
    fp32, rounded = graph.Runner(model)(given), graph.Runner(emulated(model, assignment))(given)
    for output, got in zip(names, half, strict=True):
        got = got.reshape(
            rounded[output].shape
        )  # the reference joins what a Loop collects along its first axis
        np.testing.assert_allclose(got, rounded[output], rtol=2e-3, atol=1e-3)
        np.testing.assert_allclose(got, fp32[output], rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("name", [name for name, (opset, _) in typed.GRAPHS.items() if opset >= 13])
def test_bfloat16_passes_the_check(name: str, tmp_path: Path) -> None:
    """ONNX Runtime's CPU provider has no kernels of bfloat16, so the graph is checked and not opened."""
    model = load(typed.graph(name), tmp_path)
    for seed in range(2):
        for io in ("fp32", "low"):
            graph.save(convert(model, drawn(model, seed, "bf16"), "bf16", io), tmp_path / "half.onnx")


def test_bfloat16_of_convolutions_from_opset_22_on(tmp_path: Path) -> None:
    model = load(models.conv_net(), tmp_path)
    assert [kept.node for kept in cannot(model, "bf16")] == ["conv", "pool"]
    later = opset.raised(model, 22)
    assert cannot(later, "bf16") == ()
    converted = convert(later, all_low(later, "bf16"), "bf16")
    graph.save(converted, tmp_path / "half.onnx")
    assert {value.dtype for value in converted.graph.initializers.values()} == {ir.DataType.BFLOAT16}


def test_the_default_domain_by_its_other_name(tmp_path: Path) -> None:
    proto = models.mlp()
    proto.opset_import[0].domain = "ai.onnx"
    for node in proto.graph.node:
        node.domain = "ai.onnx"
    model = load(proto, tmp_path)
    graph.save(convert(model, all_low(model)), tmp_path / "half.onnx")
    assert cannot(model) == ()


def test_a_plain_network_is_half_between_two_casts(tmp_path: Path) -> None:
    model = load(models.conv_net(), tmp_path)
    converted = convert(model, all_low(model))
    first, last = casts(converted)
    assert (first.inputs[0].name, last.outputs[0].name) == ("image", "logits")
    kinds = {
        value.dtype
        for node in converted.graph
        for value in (*node.inputs, *node.outputs)
        if value.name not in ("image", "logits")
    }
    assert kinds == {ir.DataType.FLOAT16}
    assert graph.weight_bytes(converted) * 2 == graph.weight_bytes(model)
    assert cannot(model) == ()


def test_inputs_and_outputs_in_half(tmp_path: Path) -> None:
    model = load(models.conv_net(), tmp_path)
    converted = convert(model, all_low(model), io="low")
    assert casts(converted) == []
    assert [value.dtype for value in (*converted.graph.inputs, *converted.graph.outputs)] == [
        ir.DataType.FLOAT16,
        ir.DataType.FLOAT16,
    ]


def test_one_cast_a_value_whoever_reads_it(tmp_path: Path) -> None:
    nodes = [helper.make_node("Exp", ["x"], ["a"], "a")]
    nodes += [helper.make_node("Neg", ["a"], [f"k{i}"], f"k{i}") for i in range(3)]
    nodes += [helper.make_node("Abs", ["a"], [f"h{i}"], f"h{i}") for i in range(3)]
    nodes += [helper.make_node("Sum", ["k0", "k1", "k2", "h0", "h1", "h2"], ["y"], "y")]
    model = load(models.model(nodes, [models.value("x", ["N"])], [models.value("y", ["N"])]), tmp_path)
    kept = {"k0", "k1", "k2", "y"}
    converted = convert(model, {name: "fp16" for name in graph.nodes(model) if name not in kept})
    read = [str(node.inputs[0].name) for node in casts(converted)]
    assert sorted(read) == ["a", "h0", "h1", "h2", "x"]


def test_no_cast_undoes_another(tmp_path: Path) -> None:
    """Over drawn assignments of a graph with casts of its own, no Cast reads the output of one that this adds."""
    model = load(type_error.build(tmp_path / "case.onnx").proto, tmp_path)
    own = {node.name for node in casts(model)}
    for seed in range(10):
        converted = convert(model, drawn(model, seed))
        graph.Runner(converted)
        for cast in casts(converted):
            producer = cast.inputs[0].producer()
            assert producer is None or producer.op_type != "Cast" or producer.name in own


def test_a_constant_is_stored_in_each_type_that_is_read(tmp_path: Path) -> None:
    model = load(typed.graph("shared constant"), tmp_path)
    converted = convert(model, {"a": "fp16"})
    stored = {name: value.dtype for name, value in converted.graph.initializers.items()}
    assert stored == {"k": ir.DataType.FLOAT, "four": ir.DataType.FLOAT, "k_float16": ir.DataType.FLOAT16}
    np.testing.assert_array_equal(
        converted.graph.initializers["k_float16"].const_value.numpy(), np.array([1.1], np.float16)
    )


def test_the_definitions_say_what_can_not_be_half(tmp_path: Path) -> None:
    case = type_error.build(tmp_path / "case.onnx")
    model = graph.load(case.path)
    reasons = {kept.node: kept.reason for kept in cannot(model)}
    assert set(reasons) == case.kept
    assert reasons["positions"].startswith("Range takes no float16 by its ONNX definition of opset 11")
    assert "IsInf takes no float16 by its ONNX definition of opset 10, from opset 20" in reasons["is_inf"]
    later = {kept.node: kept.reason for kept in cannot(load(models.conv_net(), tmp_path), "bf16")}
    assert later["conv"] == "Conv takes no bfloat16 by its ONNX definition of opset 11, from opset 22 it does"


def cast_everything(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The converter that one writes first: every float tensor, type and attribute becomes half."""
    naive = onnx.ModelProto.FromString(proto.SerializeToString())
    for tensor in naive.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT:
            tensor.CopyFrom(models.weight(tensor.name, onnx.numpy_helper.to_array(tensor).astype(np.float16)))
    for value in (*naive.graph.input, *naive.graph.output):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = TensorProto.FLOAT16
    for node in naive.graph.node:
        for attribute in node.attribute:
            if attribute.name == "to" and attribute.i == TensorProto.FLOAT:
                attribute.i = TensorProto.FLOAT16
    return naive


def test_built_case_of_a_type_error(tmp_path: Path) -> None:
    """onnxconverter-common 1.16 and onnxruntime.transformers 1.23 fail here as the naive converter does."""
    case = type_error.build(tmp_path / "case.onnx")
    naive = cast_everything(case.proto)
    with pytest.raises(onnx.shape_inference.InferenceError, match="unsupported type: tensor"):
        onnx.checker.check_model(naive, full_check=True)
    with pytest.raises(InputError, match="does not run this graph"):
        graph.Runner(ir.from_proto(naive))

    model = graph.load(case.path)
    converted = convert(model, all_low(model))
    graph.save(converted, tmp_path / "half.onnx")
    graph.Runner(converted)
    names = graph.Runner(model).outputs
    half = ReferenceEvaluator(str(tmp_path / "half.onnx")).run(list(names), case.data)
    for name, got in zip(names, half, strict=True):
        want = graph.Runner(model)(case.data)[name]
        assert np.linalg.norm(got - want) < 2e-3 * np.linalg.norm(want)
    kept = {
        str(node.name)
        for node in converted.graph
        if any(value.dtype == ir.DataType.FLOAT for value in node.outputs) and node.op_type != "Cast"
    }
    assert kept <= case.kept


def test_unknown_nodes_and_opsets_are_said(tmp_path: Path) -> None:
    model = load(models.mlp(), tmp_path)
    with pytest.raises(InputError, match="'nobody'"):
        convert(model, {"nobody": "fp16"})
    old = load(typed.graph("upsample by scales"), tmp_path)
    with pytest.raises(InputError, match="opset is 9, and Cast takes no bfloat16"):
        convert(old, {}, "bf16")


@pytest.mark.parametrize(("low", "lowest"), [("fp16", -65504.0), ("bf16", -(2.0**128 - 2.0**120))])
def test_the_lowest_float_stays_finite(low: Precision, lowest: float, tmp_path: Path) -> None:
    """A mask that no random input sets: a row that is masked as a whole has NaN in its Softmax after -Inf."""
    lowest_float = float(np.finfo(np.float32).min)
    nodes = [
        helper.make_node("Where", ["mask", "x", "low"], ["masked"], "where"),
        helper.make_node("Softmax", ["masked"], ["y"], "softmax", axis=-1),
    ]
    inputs = [models.value("x", [2, 4]), models.value("mask", [2, 1], TensorProto.BOOL)]
    constants = [models.weight("low", np.array(lowest_float, np.float32))]
    model = load(models.model(nodes, inputs, [models.value("y", [2, 4])], constants), tmp_path)
    converted = convert(model, all_low(model, low), low)
    [stored] = [
        value.const_value.numpy() for value in converted.graph.initializers.values() if value.const_value
    ]
    assert float(stored) == lowest
    x = np.array([[1, 2, 3, 4], [1, 2, 3, 4]], np.float32)
    graphs = [emulated(model, all_low(model, low)), *([converted] if low == "fp16" else [])]
    for made in graphs:  # (ONNX Runtime has no Softmax in bf16)
        [y] = graph.Runner(made)({"x": x, "mask": np.array([[True], [False]])}).values()
        np.testing.assert_allclose(y[1], 0.25)
        np.testing.assert_allclose(y[0], np.exp(x[0]) / np.exp(x[0]).sum(), rtol=0.02)
