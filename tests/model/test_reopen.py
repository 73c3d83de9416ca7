"""Reopening frozen batches: graphs made by hand, their right answers by numpy; what cannot be is refused by name."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from wavefit.errors import InputError
from wavefit.model.export_plan import Options
from wavefit.model.load import load
from wavefit.model.reopen import reopen

ort = pytest.importorskip("onnxruntime")

RNG = np.random.default_rng(0)
W = RNG.standard_normal((12, 3)).astype(np.float32)


def model(path, nodes, constants, x=(2, 3, 4), y=(2, 3), opset=17):
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, y)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    onnx.save(made, str(path))
    return path


def node(op, inputs, output="y", **attributes):
    return helper.make_node(op, inputs, [output], name=f"{op}_{output}", **attributes)


def reopened(path):
    said = []
    result = reopen(path, Options(), path.with_name("out.onnx"), said.append)
    assert all(proof.passed for proof in result.proofs)
    assert [proof.batch for proof in result.proofs] == [1, 2, 3, 5]
    session = ort.InferenceSession(result.path, providers=["CPUExecutionProvider"])
    return result, lambda x: session.run(None, {"x": x})[0]


def flat(shape):
    return {"shape": np.array(shape, np.int64), "w": W}


FLATTEN = [node("Reshape", ["x", "shape"], "flat"), node("MatMul", ["flat", "w"])]


@pytest.mark.parametrize("shape", [[2, -1], [2, 12], [0, 12], [-1, 12]])
def test_a_frozen_flatten_answers_as_numpy_at_every_batch(tmp_path, shape):
    result, run = reopened(model(tmp_path / "m.onnx", FLATTEN, flat(shape)))
    for batch in (1, 2, 7):
        x = RNG.standard_normal((batch, 3, 4)).astype(np.float32)
        np.testing.assert_allclose(run(x), x.reshape(batch, 12) @ W, rtol=1e-5, atol=1e-5)
    found = load(tmp_path / "out.onnx")
    assert found.batch == "batch"
    assert found.inputs[0].shape == ("batch", 3, 4)
    assert found.outputs[0].shape == ("batch", 3)
    assert result.notes[0] == "the batch was frozen at 2"


def test_a_batch_of_one(tmp_path):
    path = model(tmp_path / "m.onnx", FLATTEN, flat([1, 12]), x=(1, 3, 4), y=(1, 3))
    result, run = reopened(path)
    x = RNG.standard_normal((4, 3, 4)).astype(np.float32)
    np.testing.assert_allclose(run(x), x.reshape(4, 12) @ W, rtol=1e-5, atol=1e-5)
    assert result.notes[1] == 'Reshape "Reshape_flat": shape [1, 12] became [0, 12]'


@pytest.mark.parametrize("batch", [1, 2])
def test_a_batch_merged_with_heads_behind_a_transpose(tmp_path, batch):
    """Sequence first: [B, T, C] -> [T, B, C] -> [T, B*2, C/2] and back, as attention does."""
    nodes = [
        node("Transpose", ["x"], "tbc", perm=[1, 0, 2]),
        node("Reshape", ["tbc", "split"], "heads"),
        node("Softmax", ["heads"], "soft", axis=2),
        node("Reshape", ["soft", "join"], "joined"),
        node("Transpose", ["joined"], perm=[1, 0, 2]),
    ]
    constants = {"split": np.array([3, batch * 2, 2]), "join": np.array([3, batch, 4])}
    _, run = reopened(model(tmp_path / "m.onnx", nodes, constants, x=(batch, 3, 4), y=(batch, 3, 4)))
    x = RNG.standard_normal((5, 3, 4)).astype(np.float32)
    parts = np.exp(x.reshape(5, 3, 2, 2))
    np.testing.assert_allclose(
        run(x), (parts / parts.sum(-1, keepdims=True)).reshape(5, 3, 4), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("batch", [1, 2])
def test_a_class_token_expanded_to_the_old_batch(tmp_path, batch):
    token = RNG.standard_normal((1, 1, 4)).astype(np.float32)
    nodes = [node("Expand", ["token", "shape"], "tokens"), node("Concat", ["tokens", "x"], axis=1)]
    constants = {"token": token, "shape": np.array([batch, 1, 4])}
    _, run = reopened(model(tmp_path / "m.onnx", nodes, constants, x=(batch, 3, 4), y=(batch, 4, 4)))
    x = RNG.standard_normal((3, 3, 4)).astype(np.float32)
    np.testing.assert_array_equal(run(x), np.concatenate([np.repeat(token, 3, 0), x], 1))


def test_an_expanded_input_keeps_its_batch(tmp_path):
    nodes = [node("Expand", ["x", "shape"])]
    _, run = reopened(
        model(tmp_path / "m.onnx", nodes, {"shape": np.array([2, 3, 4])}, x=(2, 1, 4), y=(2, 3, 4))
    )
    x = RNG.standard_normal((3, 1, 4)).astype(np.float32)
    np.testing.assert_array_equal(run(x), np.repeat(x, 3, 1))


def test_equal_rows_added_to_each_item(tmp_path):
    row = RNG.standard_normal((1, 3, 4)).astype(np.float32)
    _, run = reopened(
        model(tmp_path / "m.onnx", [node("Add", ["x", "c"])], {"c": np.repeat(row, 2, 0)}, y=(2, 3, 4))
    )
    x = RNG.standard_normal((5, 3, 4)).astype(np.float32)
    np.testing.assert_array_equal(run(x), x + row)


def test_sizes_of_a_resize(tmp_path):
    nodes = [node("Resize", ["x", "", "", "sizes"], mode="nearest", nearest_mode="floor",
                  coordinate_transformation_mode="asymmetric")]  # fmt: skip
    constants = {"sizes": np.array([2, 1, 4, 4])}
    _, run = reopened(model(tmp_path / "m.onnx", nodes, constants, x=(2, 1, 2, 2), y=(2, 1, 4, 4)))
    x = RNG.standard_normal((3, 1, 2, 2)).astype(np.float32)
    np.testing.assert_array_equal(run(x), x.repeat(2, 2).repeat(2, 3))


def test_an_initial_state_of_zeros(tmp_path):
    weights = {
        "w": RNG.standard_normal((1, 8, 4)).astype(np.float32),
        "r": RNG.standard_normal((1, 8, 2)).astype(np.float32),
        "h": np.zeros((1, 2, 2), np.float32),
    }
    nodes = [
        node("Transpose", ["x"], "tbc", perm=[1, 0, 2]),
        helper.make_node("LSTM", ["tbc", "w", "r", "", "", "h", "h"], ["", "last"], name="l", hidden_size=2),
        node("Squeeze", ["last", "zero"]),
    ]
    path = model(tmp_path / "m.onnx", nodes, {**weights, "zero": np.array([0])}, y=(2, 2))
    _, run = reopened(path)
    x = RNG.standard_normal((3, 3, 4)).astype(np.float32)
    original = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    pairs = [original.run(None, {"x": x[[i, i]]})[0][0] for i in range(3)]
    np.testing.assert_allclose(run(x), pairs, rtol=1e-5, atol=1e-6)


def test_a_shape_computed_by_a_chain_of_constants(tmp_path):
    nodes = [
        node("Mul", ["half", "two"], "first"),
        node("Concat", ["first", "rest"], "shape", axis=0),
        *FLATTEN,
    ]
    constants = {"half": np.array([1]), "two": np.array([2]), "rest": np.array([12]), "w": W}
    _, run = reopened(model(tmp_path / "m.onnx", nodes, constants))
    x = RNG.standard_normal((3, 3, 4)).astype(np.float32)
    np.testing.assert_allclose(run(x), x.reshape(3, 12) @ W, rtol=1e-5, atol=1e-5)


# ---- What cannot be reopened ----------------------------------------------------------------------------------------


def refused(path, says, out=None, options=None):
    before = sorted(path.parent.iterdir())
    with pytest.raises(InputError, match=says) as caught:
        reopen(path, options or Options(), out or path.with_name("out.onnx"), lambda text: None)
    assert sorted(path.parent.iterdir()) == before, "something was written"
    assert "\n" not in str(caught.value)


def test_rows_that_differ_name_their_node(tmp_path):
    rows = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    path = model(tmp_path / "m.onnx", [node("Add", ["x", "rows"])], {"rows": rows}, y=(2, 3, 4))
    refused(path, 'node Add "Add_y"')


def test_items_that_look_at_each_other(tmp_path):
    nodes = [node("ReduceMean", ["x"], "mean", axes=[0], keepdims=1), node("Sub", ["x", "mean"])]
    refused(model(tmp_path / "m.onnx", nodes, {}, y=(2, 3, 4)), "output 'y' is off")


def test_an_output_without_a_batch(tmp_path):
    nodes = [node("ReduceSum", ["x"], keepdims=0)]
    refused(model(tmp_path / "m.onnx", nodes, {}, y=()), "output 'y' of shape \\[\\] has no batch")


def test_a_squeezed_batch_of_one(tmp_path):
    path = model(tmp_path / "m.onnx", [node("Squeeze", ["x"])], {}, x=(1, 3, 4), y=(3, 4))
    refused(path, "cannot be reopened")


def test_what_onnx_runtime_cannot_run(tmp_path):
    """Index 7 of a table of three: the checker does not see it, the run does."""
    nodes = [node("Gather", ["table", "seven"], "row"), node("Add", ["x", "row"])]
    constants = {"table": np.ones((3, 4), np.float32), "seven": np.array(7)}
    path = model(tmp_path / "m.onnx", nodes, constants, y=(2, 3, 4))
    refused(path, "ONNX Runtime cannot (open|run) it")


def test_a_dynamic_batch_is_left_alone(tmp_path):
    path = model(tmp_path / "m.onnx", [node("Relu", ["x"])], {}, x=("N", 4), y=("N", 4))
    refused(path, "has a dynamic batch already")


def test_a_scalar_input(tmp_path):
    path = model(tmp_path / "m.onnx", [node("Relu", ["x"])], {}, x=(), y=())
    refused(path, "no input with a batch")


@pytest.mark.parametrize(
    ("out", "says"),
    [
        ("out.pt", "not named .onnx"),
        ("missing/out.onnx", "does not exist"),
        ("folder.onnx", "is a directory"),
    ],
)
def test_bad_outputs(tmp_path, out, says):
    (tmp_path / "folder.onnx").mkdir()
    path = model(tmp_path / "m.onnx", FLATTEN, flat([2, 12]))
    refused(path, says, out=tmp_path / out)


def test_options_of_pytorch_models(tmp_path):
    path = model(tmp_path / "m.onnx", FLATTEN, flat([2, 12]))
    refused(path, "for PyTorch models", options=Options(opset=17))
    refused(path, "for PyTorch models", options=Options(outputs=("z",)))


def test_no_onnx_file(tmp_path):
    path = tmp_path / "m.onnx"
    path.write_bytes(b"\x08\x01nonsense")
    refused(path, "m.onnx")


def test_a_refusal_leaves_an_older_output_alone(tmp_path):
    rows = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    path = model(tmp_path / "m.onnx", [node("Add", ["x", "rows"])], {"rows": rows}, y=(2, 3, 4))
    (tmp_path / "out.onnx").write_bytes(b"older")
    refused(path, 'node Add "Add_y"')
    assert (tmp_path / "out.onnx").read_bytes() == b"older"
