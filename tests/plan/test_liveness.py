"""Bytes alive at once, against graphs worked out by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from fakes import models
from onnx import TensorProto, helper

from wavefit.model.load import load
from wavefit.model.shapes import bind
from wavefit.plan.liveness import liveness
from wavefit.plan.trace import Trace, narrowed, trace

ROW = 4 * 100  # bytes of one item of the tensors below


def traced(proto: onnx.ModelProto, folder: Path, batch: int = 1) -> Trace:
    model = load(models.save(proto, folder / "net.onnx"))
    return trace(model, bind(model, batch))


def chain() -> onnx.ModelProto:
    """x -> Softmax -> a -> Softmax -> b -> Softmax -> y, of 100 elements each."""
    nodes = [helper.make_node("Softmax", [i], [o], o) for i, o in (("x", "a"), ("a", "b"), ("b", "y"))]
    return models.model(nodes, [models.value("x", ["N", 100])], [models.value("y", ["N", 100])])


def diamond() -> onnx.ModelProto:
    """x -> Softmax -> a; a -> Softmax -> b; a -> Softmax -> c; b + c -> y."""
    nodes = [
        helper.make_node("Softmax", ["x"], ["a"], "a"),
        helper.make_node("Softmax", ["a"], ["b"], "b"),
        helper.make_node("Softmax", ["a"], ["c"], "c"),
        helper.make_node("Add", ["b", "c"], ["y"], "y"),
    ]
    return models.model(nodes, [models.value("x", ["N", 100])], [models.value("y", ["N", 100])])


def test_a_chain_holds_two_tensors(tmp_path: Path) -> None:
    live = liveness(traced(chain(), tmp_path))
    assert live.peak_bytes == 2 * ROW  # what a node reads and what it writes
    assert live.unknown == ()


def test_the_callers_own_input_can_be_left_out(tmp_path: Path) -> None:
    live = liveness(traced(chain(), tmp_path), count_inputs=False)
    assert live.peak_bytes == 2 * ROW  # a and b
    assert dict(live.tensors) == {"a": ROW, "b": ROW}


def test_a_diamond_holds_three(tmp_path: Path) -> None:
    found = traced(diamond(), tmp_path)
    live = liveness(found)
    assert live.peak_bytes == 3 * ROW  # a, b, c while c is made; then b, c, y
    assert found.steps[live.step or 0].outputs == ("c",)
    assert dict(live.tensors) == {"a": ROW, "b": ROW, "c": ROW}


def test_in_place_the_sum_lies_in_one_of_its_terms(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Softmax", ["x"], ["a"], "a"),
        helper.make_node("Relu", ["a"], ["b"], "b"),
        helper.make_node("Add", ["b", "x"], ["y"], "y"),
    ]
    proto = models.model(nodes, [models.value("x", ["N", 100])], [models.value("y", ["N", 100])])
    found = traced(proto, tmp_path)
    assert liveness(found).peak_bytes == 3 * ROW  # x, a and b; then x, b and y
    assert liveness(found, in_place=True).peak_bytes == 2 * ROW  # x, and one buffer for a, b and y


def test_a_tensor_that_is_read_again_is_not_written_over(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Softmax", ["x"], ["a"], "a"),
        helper.make_node("Relu", ["a"], ["b"], "b"),
        helper.make_node("Add", ["a", "b"], ["y"], "y"),
    ]
    proto = models.model(nodes, [models.value("x", ["N", 100])], [models.value("y", ["N", 100])])
    live = liveness(traced(proto, tmp_path), in_place=True, count_inputs=False)
    assert live.peak_bytes == 2 * ROW  # a and b; the sum takes the place of one


def test_an_input_is_never_written_over(tmp_path: Path) -> None:
    proto = models.model(
        [helper.make_node("Relu", ["x"], ["y"], "y")],
        [models.value("x", ["N", 100])],
        [models.value("y", ["N", 100])],
    )
    assert liveness(traced(proto, tmp_path), in_place=True, count_inputs=False).peak_bytes == ROW


def test_a_reshape_takes_nothing(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Softmax", ["x"], ["a"], "a"),
        helper.make_node("Flatten", ["a"], ["f"], "f"),
        helper.make_node("Softmax", ["f"], ["y"], "y"),
    ]
    proto = models.model(nodes, [models.value("x", ["N", 10, 10])], [models.value("y", ["N", 100])])
    assert liveness(traced(proto, tmp_path)).peak_bytes == 2 * ROW


def test_an_output_is_kept_to_the_end(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Softmax", [i], [o], o) for i, o in (("x", "a"), ("a", "b"), ("b", "c"), ("c", "y"))
    ]
    values = [models.value(name, ["N", 100]) for name in ("x", "a", "y")]
    live = liveness(traced(models.model(nodes, values[:1], values[1:]), tmp_path))
    assert live.peak_bytes == 3 * ROW  # a is given to the caller, beside what a node reads and writes


def test_it_grows_with_the_batch(tmp_path: Path) -> None:
    assert liveness(traced(diamond(), tmp_path, 7)).peak_bytes == 7 * 3 * ROW


def test_half_precision_halves_it_and_leaves_indices_alone(tmp_path: Path) -> None:
    nodes = [helper.make_node("Gather", ["table", "x"], ["y"], "y")]
    table = models.weight("table", np.zeros((50, 100), np.float32))
    proto = models.model(
        nodes, [models.value("x", ["N"], TensorProto.INT64)], [models.value("y", ["N", 100])], [table]
    )
    found = traced(proto, tmp_path, 3)
    half = narrowed(found, 2)
    assert found.weights == {"table": 4 * 5000}
    assert half.weights == {"table": 2 * 5000}
    assert half.input_bytes == found.input_bytes == 3 * 8
    assert half.output_bytes == found.output_bytes // 2


def test_a_size_that_depends_on_the_data_is_said_to_be_unknown(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("NonZero", ["x"], ["n"], "n"),
        helper.make_node("Cast", ["n"], ["y"], "y", to=TensorProto.FLOAT),
    ]
    proto = models.model(nodes, [models.value("x", ["N", 100])], [models.value("y", [2, None])])
    live = liveness(traced(proto, tmp_path))
    assert live.unknown == ("n", "y")
    assert live.peak_bytes == ROW


def test_the_bodies_of_an_if_keep_what_they_read_alive(tmp_path: Path) -> None:
    def body(kind: str) -> onnx.GraphProto:
        node = helper.make_node(kind, ["a"], [f"{kind}_out"])
        return helper.make_graph([node], kind, [], [models.value(f"{kind}_out", ["N", 100])])

    nodes = [
        helper.make_node("Softmax", ["x"], ["a"], "a"),
        helper.make_node("Softmax", ["a"], ["b"], "b"),
        helper.make_node("If", ["flag"], ["c"], "if", then_branch=body("Relu"), else_branch=body("Tanh")),
        helper.make_node("Add", ["b", "c"], ["y"], "y"),
    ]
    inputs = [models.value("x", ["N", 100]), models.value("flag", [], TensorProto.BOOL)]
    found = traced(models.model(nodes, inputs, [models.value("y", ["N", 100])]), tmp_path)
    assert "a" in next(step for step in found.steps if step.op == "If").inputs
