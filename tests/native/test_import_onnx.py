"""ONNX files through the importer, run by the interpreter, against onnx's own cases and ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from native import interpret, onnx_cases
from onnx import TensorProto, helper, numpy_helper

from wavefit.errors import InputError
from wavefit.native.graph import Graph
from wavefit.native.import_onnx import load
from wavefit.native.operation import UnsupportedNode

pytest.importorskip("onnx_ir")
FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64
LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"

_TENTH = 0.1
_REFUSED = {  # reasons for which a claimed operator's case may be refused, and none beside
    "Attention": ("present keys", "past keys", "softcap", "a window", "its inputs are"),
    "BatchNormalization": ("training mode",),
    "BitShift": ("shifts of signed integers",),
    "Dropout": ("training mode", "mask is read"),
    "Einsum": ("diagonals", "ellipsis"),
    "MaxPool": ("Indices is read",),
    "Mod": ("fmod=1 only",),
    "OneHot": ("integers are compared",),
    "Pow": ("powers of integers",),
    "Resize": ("antialias", "tf_crop_and_resize"),
}


_TIES = (
    "test_dynamicquantizelinear",
)  # a quotient half between integers in float32, which float64 sees beside it


def _model(nodes, inputs, outputs, constants=None, opset=17) -> onnx.ModelProto:
    """A model of float inputs; ``constants`` by name."""
    entry = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "test",
        [entry(name, FLOAT, shape) for name, shape in inputs.items()],
        [entry(name, kind, None) for name, kind in outputs.items()],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in (constants or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def _saved(tmp_path: Path, model: onnx.ModelProto) -> Path:
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    return path


def _imported(tmp_path: Path, model: onnx.ModelProto, **shapes: tuple[int, ...]) -> Graph:
    graph = load(_saved(tmp_path, model), shapes)
    assert isinstance(graph, Graph), graph
    return graph


def test_onnx_cases_of_all_claimed_operators(tmp_path):
    """Each case is right, or refused for one of the reasons listed above."""
    wrong, right = [], 0
    for case in onnx_cases.cases():
        shapes = {name: array.shape for name, array in case.inputs.items()}
        graph = load(_saved(tmp_path, case.model), shapes)
        if not isinstance(graph, Graph):
            wrong += [case.name for node in graph if not _expected(node)]
            continue
        right += 1
        made = interpret.run(graph, case.inputs)
        wrong += [
            f"{case.name}: {name}"
            for name, want in case.outputs.items()
            if made[name].shape != want.shape or not _close(made[name], want, case.name in _TIES)
        ]
    assert not wrong
    assert right > 700  # of 735 with onnx 1.23


def _expected(node: UnsupportedNode) -> bool:
    return any(why in node.reason for why in (*_REFUSED.get(node.op, ()), "the engine holds no"))


def _close(made: np.ndarray, want: np.ndarray, ties: bool = False) -> bool:
    if want.dtype.kind in "biu":
        return np.allclose(made, want, rtol=0, atol=1) if ties else np.array_equal(made, want)
    tolerance = 2e-3 if want.dtype == np.float16 else 1e-4
    return np.allclose(made, want.astype(np.float64), rtol=tolerance, atol=tolerance, equal_nan=True)


@pytest.mark.parametrize("name", sorted(path.stem for path in LIGHT.glob("*.onnx")))
def test_light_models_import_without_an_unsupported_node(name):
    model = onnx.load(LIGHT / f"{name}.onnx")
    stored = {tensor.name for tensor in model.graph.initializer}
    (entry,) = [entry for entry in model.graph.input if entry.name not in stored]
    graph = load(LIGHT / f"{name}.onnx", {entry.name: (1, 3, 224, 224)})
    assert isinstance(graph, Graph), graph
    assert [value.shape[:2] for value in graph.outputs] == [(1, 1000)]


def _old_operators():
    """What has changed its form since opset 7: Softmax, Upsample, Pad, Clip, Slice, Squeeze, ReduceSum."""
    node = helper.make_node
    return _model(
        [
            node("Pad", ["x"], ["a"], pads=[0, 0, 1, 0, 0, 0, 0, 1], value=_TENTH),
            node("Clip", ["a"], ["b"], min=-0.5, max=0.5),
            node("Upsample", ["b"], ["c"], scales=[1.0, 1.0, 2.0, 3.0], mode="nearest"),
            node("Slice", ["c"], ["d"], axes=[2, 3], starts=[1, -7], ends=[100, -1]),
            node("Softmax", ["d"], ["e"], axis=2),
            node("ReduceSum", ["e"], ["f"], axes=[1], keepdims=1),
            node("Squeeze", ["f"], ["y"], axes=[1]),
        ],
        {"x": ["N", 3, 4, 5]},
        {"y": FLOAT},
        opset=7,
    )


def test_old_operator_sets_agree_with_onnx_runtime(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    model = _old_operators()
    x = np.random.default_rng(0).standard_normal((2, 3, 4, 5)).astype(np.float32)
    graph = _imported(tmp_path, model, x=x.shape)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (want,) = session.run(None, {"x": x})
    np.testing.assert_allclose(interpret.run(graph, {"x": x})["y"], want, atol=1e-6)


def test_shape_arithmetic_is_gone(tmp_path):
    """view(N, -1) as exporters write it, at a batch of 3."""
    node = helper.make_node
    model = _model(
        [
            node("Shape", ["x"], ["s"]),
            node("Gather", ["s", "zero"], ["n"]),
            node("Unsqueeze", ["n", "axes"], ["n1"]),
            node("Concat", ["n1", "rest"], ["t"], axis=0),
            node("Reshape", ["x", "t"], ["y"]),
        ],
        {"x": ["N", 2, 4]},
        {"y": FLOAT},
        {"zero": np.int64(0), "axes": [0], "rest": np.array([-1])},
    )
    graph = _imported(tmp_path, model, x=(3, 2, 4))
    assert [(each.op, each.output.shape) for each in graph.nodes] == [("Reshape", (3, 8))]


def test_if_with_a_known_condition_is_its_branch(tmp_path):
    node, entry = helper.make_node, helper.make_tensor_value_info
    then = helper.make_graph([node("Neg", ["x"], ["a"])], "then", [], [entry("a", FLOAT, None)])
    other = helper.make_graph([node("Abs", ["x"], ["b"])], "else", [], [entry("b", FLOAT, None)])
    model = _model(
        [
            node("Size", ["x"], ["count"]),
            node("Equal", ["count", "six"], ["same"]),
            node("If", ["same"], ["y"], then_branch=then, else_branch=other),
        ],
        {"x": ["N", 3]},
        {"y": FLOAT},
        {"six": np.int64(6)},
    )
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(interpret.run(_imported(tmp_path, model, x=(2, 3)), {"x": x})["y"], -x)
    x = np.arange(-3, 0, dtype=np.float32).reshape(1, 3)
    np.testing.assert_array_equal(interpret.run(_imported(tmp_path, model, x=(1, 3)), {"x": x})["y"], -x)


def test_outputs_keep_their_names_where_nodes_vanish(tmp_path):
    node = helper.make_node
    nodes = [node("Relu", ["x"], ["r"]), node("Identity", ["r"], ["y"]), node("Dropout", ["r"], ["z"])]
    nodes += [node("Identity", ["x"], ["same"]), node("Identity", ["one"], ["known"])]
    outputs = dict.fromkeys(("y", "z", "same", "known"), FLOAT)
    graph = _imported(tmp_path, _model(nodes, {"x": [2]}, outputs, {"one": np.float32([1])}), x=(2,))
    made = interpret.run(graph, {"x": np.float32([-1, 2])})
    assert {name: list(array) for name, array in made.items()} == {
        "y": [0, 2],
        "z": [0, 2],
        "same": [-1, 2],
        "known": [1],
    }


def test_a_small_constant_does_not_grow_large_in_memory(tmp_path):
    """256 MiB out of one number: a broadcast view takes four bytes."""
    nodes = [
        helper.make_node("Expand", ["one", "shape"], ["big"]),
        helper.make_node("Mul", ["x", "big"], ["y"]),
    ]
    constants = {"one": np.float32([1]), "shape": np.array([1 << 26])}
    graph = _imported(tmp_path, _model(nodes, {"x": [1]}, {"y": FLOAT}, constants), x=(1,))
    held = [value.constant for value in graph.nodes[0].inputs if value.constant is not None]
    assert all(array.strides == (0,) for array in held)


def test_all_unsupported_nodes_are_named(tmp_path):
    node = helper.make_node
    nodes = [
        node("TopK", ["x", "k"], ["v", "i"], name="best"),
        node("Relu", ["v"], ["y"], name="fine"),
        node("NonZero", ["x"], ["n"], name="where"),
        node("Det", ["x"], ["d"], name="det"),
    ]
    outputs = {"y": FLOAT, "n": INT, "d": FLOAT}
    found = load(_saved(tmp_path, _model(nodes, {"x": [3, 3]}, outputs, {"k": [1]})), {"x": (3, 3)})
    assert isinstance(found, tuple)
    assert all(isinstance(each, UnsupportedNode) and each.reason and each.fix for each in found)
    assert [(each.node, each.op) for each in found] == [
        ("best", "TopK"),
        ("where", "NonZero"),
        ("det", "Det"),
    ]


def _reshaped():
    nodes = [helper.make_node("Reshape", ["x", "s"], ["y"], name="flatten")]
    return _model(nodes, {"x": ["N", 4]}, {"y": FLOAT}, {"s": np.array([1, 4])})


@pytest.mark.parametrize(
    ("shapes", "said"),
    [
        ({}, "input 'x' has no shape"),
        ({"x": (1, 4), "z": (1,)}, "no input 'z'"),
        ({"x": (1, 4, 1)}, "has 2 dimensions, and is given 3"),
        ({"x": (1, 5)}, "has size 4 in dimension 1, and is given 5"),
        ({"x": (0, 4)}, "every size must be 1 or more"),
        ({"x": (2, 4)}, "Reshape node 'flatten' cannot make [1, 4] of a tensor of [2, 4]"),
    ],
)
def test_shapes_that_do_not_fit_are_one_sentence(tmp_path, shapes, said):
    with pytest.raises(InputError) as caught:
        load(_saved(tmp_path, _reshaped()), shapes)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_one_symbol_is_one_size(tmp_path):
    model = _model([helper.make_node("Add", ["a", "b"], ["y"])], {"a": ["N", 2], "b": ["N", 2]}, {"y": FLOAT})
    with pytest.raises(InputError, match="N = 2"):
        load(_saved(tmp_path, model), {"a": (2, 2), "b": (3, 2)})


def test_broken_graphs_are_one_sentence(tmp_path):
    node = helper.make_node
    cyclic = [node("Relu", ["b"], ["a"]), node("Relu", ["a"], ["b"]), node("Add", ["a", "x"], ["y"])]
    for nodes, said in (
        ([], "no nodes"),
        (cyclic, "cycle"),
        ([node("Add", ["x", "nothing"], ["y"], name="sum")], "'nothing', which nobody makes"),
        ([node("Conv", ["x", "x"], ["y"], name="c")], "Conv node 'c' does not take these input shapes"),
    ):
        with pytest.raises(InputError, match=said):
            load(_saved(tmp_path, _model(nodes, {"x": [2]}, {"y": FLOAT})), {"x": (2,)})


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "pad"), [(4, 1, 2, 0), (5, 1, 3, 0), (5, 2, 2, 1), (7, 3, 2, 0)]
)
def test_a_window_that_would_begin_behind_the_image_is_none(tmp_path, size, kernel, stride, pad):
    """With ceil_mode, as ONNX Runtime has it."""
    ort = pytest.importorskip("onnxruntime")
    attributes = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [pad] * 4, "ceil_mode": 1}
    nodes = [helper.make_node("MaxPool", ["x"], ["p"], **attributes), helper.make_node("Relu", ["p"], ["y"])]
    model = _model(nodes, {"x": [1, 2, size, size]}, {"y": FLOAT})
    x = np.random.default_rng(0).standard_normal((1, 2, size, size)).astype(np.float32)
    (want,) = ort.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    graph = _imported(tmp_path, model, x=(1, 2, size, size))
    made = interpret.run(graph, {"x": x})["y"]
    np.testing.assert_allclose(made, want, rtol=1e-6)
