"""Old exporters' roundabout ways, put plainly, with the same answers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

pytest.importorskip("onnx_ir")
pytest.importorskip("onnxruntime")

from wavefit.precision import graph


def _write(
    path: Path, nodes: list[onnx.NodeProto], weights: dict[str, np.ndarray], output: list[object]
) -> Path:
    made = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", 1, ["N", 6])],
        [helper.make_tensor_value_info("y", 1, output)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    onnx.save(helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_weights_that_are_moved_become_constants(tmp_path: Path) -> None:
    stored = np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32)
    nodes = [
        helper.make_node("Transpose", ["w"], ["t"], "turn", perm=[1, 0]),
        helper.make_node("Reshape", ["t", "shape"], ["r"], "again"),
        helper.make_node("MatMul", ["x", "r"], ["y"], "product"),
    ]
    path = _write(tmp_path / "m.onnx", nodes, {"w": stored, "shape": np.array([6, 4])}, ["N", 4])
    model = graph.load(path)
    assert list(graph.nodes(model)) == ["product"]
    assert len(model.graph.initializers) == 1
    x = np.random.default_rng(1).normal(size=(3, 6)).astype(np.float32)
    np.testing.assert_allclose(graph.Runner(model)({"x": x})["y"], x @ stored.T, rtol=1e-5, atol=1e-6)
    graph.save(model, tmp_path / "out.onnx")


def test_a_constant_that_is_an_output_stays_a_node(tmp_path: Path) -> None:
    nodes = [helper.make_node("Identity", ["w"], ["y"], "gives")]
    path = _write(tmp_path / "m.onnx", nodes, {"w": np.ones((1, 6), np.float32)}, [1, 6])
    assert list(graph.nodes(graph.load(path))) == ["gives"]


def test_a_constant_that_others_read_too_stays_for_them(tmp_path: Path) -> None:
    weights = {"w": np.arange(6, dtype=np.float32)[None]}
    nodes = [
        helper.make_node("Identity", ["w"], ["same"], "same"),
        helper.make_node("Add", ["x", "same"], ["a"], "add"),
        helper.make_node("Mul", ["a", "w"], ["y"], "mul"),
    ]
    model = graph.load(_write(tmp_path / "m.onnx", nodes, weights, ["N", 6]))
    x = np.ones((2, 6), np.float32)
    np.testing.assert_array_equal(graph.Runner(model)({"x": x})["y"], (x + weights["w"]) * weights["w"])


@pytest.mark.parametrize(("terms", "operator"), [(2, "Add"), (3, "Sum")])
def test_a_sum_of_two_is_an_add(tmp_path: Path, terms: int, operator: str) -> None:
    nodes = [helper.make_node("Sum", ["x"] * terms, ["y"], "sum")]
    model = graph.load(_write(tmp_path / "m.onnx", nodes, {}, ["N", 6]))
    assert graph.nodes(model)["sum"].op_type == operator
    x = np.ones((2, 6), np.float32)
    np.testing.assert_array_equal(graph.Runner(model)({"x": x})["y"], terms * x)
