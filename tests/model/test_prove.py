"""The proof finds what is wrong with a file, and passes what is right."""

from __future__ import annotations

import math

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save

from wavefit.model import prove
from wavefit.model.prove import Case, difference

pytest.importorskip("onnxruntime")

WEIGHT = np.arange(12, dtype=np.float32).reshape(4, 3) / 10


def write(path, weight=WEIGHT, first="N", out="N"):
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [first, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [out, 3])],
        [numpy_helper.from_array(weight, "w")],
    )
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    return path


def cases(batches=(1, 2, 3), weight=WEIGHT):
    rng = np.random.default_rng(0)
    made = []
    for batch in batches:
        x = rng.standard_normal((batch, 4)).astype(np.float32)
        made.append(Case(batch=batch, inputs={"x": x}, expected=[x @ weight]))
    return made


def test_a_right_file_passes_at_all_batches(tmp_path):
    proofs = prove.prove(write(tmp_path / "m.onnx"), cases())
    assert [proof.batch for proof in proofs] == [1, 2, 3]
    assert all(proof.passed and not proof.reason for proof in proofs)
    assert [proof.outputs[0].shape for proof in proofs] == [(1, 3), (2, 3), (3, 3)]
    assert all(proof.outputs[0].rel_l2 < 1e-6 for proof in proofs)


def test_another_weight_fails_with_its_size(tmp_path):
    wrong = WEIGHT.copy()
    wrong[2, 1] += 0.01
    (proof,) = prove.prove(write(tmp_path / "m.onnx", weight=wrong), cases((2,)))
    x = cases((2,))[0].inputs["x"].astype(np.float64)
    right = x @ WEIGHT.astype(np.float64)
    expected = np.linalg.norm(x @ wrong.astype(np.float64) - right) / np.linalg.norm(right)
    assert not proof.passed
    assert proof.outputs[0].rel_l2 == pytest.approx(expected, rel=1e-3)
    assert "output 'y' is off" in proof.reason


def test_a_frozen_batch_fails_where_it_differs(tmp_path):
    proofs = prove.prove(write(tmp_path / "m.onnx", first=2, out=2), cases())
    assert [proof.passed for proof in proofs] == [False, True, False]
    assert proofs[2].reason.startswith("at batch 3 ONNX Runtime says")


def test_another_shape_fails(tmp_path):
    (case,) = cases((2,))
    flat = Case(batch=2, inputs=case.inputs, expected=[case.expected[0].reshape(3, 2)])
    (proof,) = prove.prove(write(tmp_path / "m.onnx"), [flat])
    assert "has shape 2x3, it should have 3x2" in proof.reason


def test_another_number_of_outputs_fails(tmp_path):
    (case,) = cases((2,))
    (proof,) = prove.prove(write(tmp_path / "m.onnx"), [Case(batch=2, inputs=case.inputs, expected=[])])
    assert proof.reason.endswith("it has 1 outputs, its source 0")


def test_answers_that_are_all_equal_are_said_to_prove_little(tmp_path):
    zeros = np.zeros_like(WEIGHT)
    path = write(tmp_path / "m.onnx", weight=zeros)
    assert prove.doubts(prove.prove(path, cases(weight=zeros))) == (
        "output 'y' is almost the same for every item: comparing it proves little",
    )


def test_answers_that_differ_by_less_than_the_bound_prove_little(tmp_path):
    """A softmax over near-equal scores: one item's answer in another's place would pass."""
    offset = 1e6 * np.ones((1, 3), np.float32)
    path, made = tmp_path / "m.onnx", cases()
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 3])],
    )
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    shifted = [case.expected[0] + offset for case in made]
    swapped = [Case(case.batch, {"x": y[::-1].copy()}, [y]) for case, y in zip(made, shifted, strict=True)]
    proofs = prove.prove(path, swapped)
    assert all(proof.passed for proof in proofs)
    assert len(prove.doubts(proofs)) == 1
    assert prove.doubts(prove.prove(write(path), cases())) == ()


def test_a_damaged_file_fails_at_every_batch(tmp_path):
    path = tmp_path / "m.onnx"
    path.write_bytes(write(path).read_bytes()[:40])
    assert all("ONNX Runtime says" in proof.reason for proof in prove.prove(path, cases()))


@pytest.mark.parametrize(
    ("have", "want", "rel_l2", "max_abs"),
    [
        ([3.0, 4.0], [3.0, 4.0], 0.0, 0.0),
        ([3.0, 4.5], [3.0, 4.0], 0.1, 0.5),  # |0.5| / |(3, 4)| = 0.5 / 5
        ([0.0, 2.0], [0.0, 0.0], 2.0, 2.0),  # nothing to be relative to: absolute
        ([math.nan, 1.0], [math.nan, 1.0], 0.0, 0.0),
        ([math.inf, 1.0], [math.inf, 2.0], 0.5, 1.0),
        ([math.nan, 1.0], [0.0, 1.0], None, None),
        ([math.inf, 1.0], [-math.inf, 1.0], None, None),
    ],
)
def test_difference(have, want, rel_l2, max_abs):
    assert difference(np.array(have), np.array(want)) == (
        (None, None) if rel_l2 is None else (pytest.approx(rel_l2), pytest.approx(max_abs))
    )


def test_difference_of_large_halves_does_not_overflow():
    have, want = np.full(1000, 60000, np.float16), np.full(1000, 30000, np.float16)
    assert difference(have, want) == (pytest.approx(1.0), pytest.approx(30000.0))
