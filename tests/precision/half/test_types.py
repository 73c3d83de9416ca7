"""What the operators' definitions let be half, and the inputs that are never rounded."""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir
import pytest
from fakes import models
from onnx import TensorProto, defs, helper
from precision import typed

from wavefit.precision import graph
from wavefit.precision.half.convert import convert
from wavefit.precision.half.emulate import emulated
from wavefit.precision.half.types import slots


def node(tmp_path: Path, name: str, output: str) -> tuple[ir.Node, ir.Model]:
    model = graph.load(models.save(typed.graph(name), tmp_path / "model.onnx"))
    return graph.nodes(model)[output], model


def test_positions_and_scales_are_not_rounded(tmp_path: Path) -> None:
    """ONNX lets Resize's roi be half and not its scales; both say where."""
    resize, model = node(tmp_path, "resize by scales", "b")
    found = slots(resize, model, "fp16")
    assert (found.inputs, found.outputs) == ({0}, {0})


def test_a_depth_and_indices_are_not_rounded(tmp_path: Path) -> None:
    """OneHot takes its indices and depth as floats too, and half counts to 2048."""
    proto = models.model(
        [helper.make_node("OneHot", ["i", "d", "v"], ["y"], "one_hot")],
        [models.value("i", ["N"]), models.value("d", []), models.value("v", [2])],
        [models.value("y", None)],
    )
    model = graph.load(models.save(proto, tmp_path / "model.onnx"))
    found = slots(graph.nodes(model)["one_hot"], model, "fp16")
    assert (found.inputs, found.outputs) == ({2}, {0})


@pytest.mark.parametrize(("operator", "free"), [("Shape", {0}), ("Size", {0}), ("ArgMax", set())])
def test_a_shape_is_read_in_any_type(operator: str, free: set[int], tmp_path: Path) -> None:
    """Shape gets no cast of its own: it reads what Exp makes. ArgMax, kept in fp32, does."""
    proto = models.model(
        [helper.make_node("Exp", ["x"], ["e"], "exp"), helper.make_node(operator, ["e"], ["s"], "read")],
        [models.value("x", ["N", 4])],
        [models.value("s", None, TensorProto.INT64), models.value("e", ["N", 4])],
    )
    model = graph.load(models.save(proto, tmp_path / "model.onnx"))
    assert slots(graph.nodes(model)["read"], model, "fp16").free == free
    read = graph.nodes(convert(model, {"exp": "fp16"}))["read"]
    assert read.inputs[0].dtype == (ir.DataType.FLOAT16 if free else ir.DataType.FLOAT)


def test_a_value_made_by_an_attribute_is_made_in_half(tmp_path: Path) -> None:
    made, model = node(tmp_path, "constant of shape", "one")
    assert slots(made, model, "fp16").attribute == "value"
    converted = convert(model, {"one": "fp16", "a": "fp16"})
    assert graph.nodes(converted)["one"].outputs[0].dtype == ir.DataType.FLOAT16
    assert [each.inputs[0].name for each in converted.graph if each.op_type == "Cast"] == ["x", "a"]


def test_statistics_of_layer_normalization_stay_float(tmp_path: Path) -> None:
    """Their type is the attribute stash_type's, which is float unless it says otherwise."""
    norm, model = node(tmp_path, "norms", "a")
    found = slots(norm, model, "fp16")
    assert (found.inputs, found.outputs) == ({0, 1}, {0})


def test_a_value_is_rounded_once(tmp_path: Path) -> None:
    model = graph.load(models.save(models.mlp(), tmp_path / "model.onnx"))
    rounded = emulated(model, dict.fromkeys(graph.nodes(model), "fp16"))
    casts = sum(each.op_type == "Cast" for each in rounded.graph)
    assert casts == 2 * (1 + len(graph.nodes(model)))  # down and up: of the input, and of each result


@pytest.mark.skipif(defs.onnx_opset_version() < 26, reason="this onnx has no BitCast")
def test_bits_are_those_of_one_type(tmp_path: Path) -> None:
    cast = helper.make_node("BitCast", ["x"], ["y"], "bits", to=TensorProto.INT32)
    outputs = [models.value("y", ["N"], TensorProto.INT32)]
    model = graph.load(
        models.save(models.model([cast], [models.value("x", ["N"])], outputs, opset=26), tmp_path / "m.onnx")
    )
    assert "not to be rounded" in slots(graph.nodes(model)["bits"], model, "fp16").refusal
