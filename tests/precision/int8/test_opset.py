"""Graphs at a newer opset: the same answers, the same names, or a refusal that names the operator."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from fakes import models
from onnx import helper

from wavefit.errors import InputError
from wavefit.precision import graph
from wavefit.precision.int8.opset import opset, raised

_node = helper.make_node


def _load(nodes, tmp_path, version: int, weights=(), shape=("N", 4, 6, 6), imports=()):
    proto = models.model(nodes, [models.value("x", shape)], [models.value("y", [None] * 4)], weights, version)
    proto.opset_import.extend(imports)
    path = models.save(proto, tmp_path / "model.onnx")
    return graph.load(path)


def _old(tmp_path):
    """Operators whose attributes became inputs, or whose meaning changed, by opset 13."""
    nodes = [
        _node("Clip", ["x"], ["c"], "clip", min=-0.5, max=0.5),
        _node("Dropout", ["c"], ["d"], "dropout", ratio=0.5),
        _node("Unsqueeze", ["d"], ["u"], "unsqueeze", axes=[0]),
        _node("Squeeze", ["u"], ["q"], "squeeze", axes=[0]),
        _node("Slice", ["q"], ["s"], "slice", starts=[1], ends=[5], axes=[2]),
        _node("Softmax", ["s"], ["m"], "softmax"),  # over all axes from 1 on, before opset 13
        _node("Pad", ["m"], ["p"], "pad", pads=[0, 0, 1, 0, 0, 0, 0, 1], value=0.25),
        _node("ReduceSum", ["p"], ["y"], "sum", axes=[3], keepdims=1),
    ]
    return _load(nodes, tmp_path, 9)


@pytest.mark.parametrize("version", [13, 17, 19, 21])
def test_answers_and_names_stay(version: int, tmp_path) -> None:
    model = _old(tmp_path)
    inputs = {"x": np.random.default_rng(0).normal(size=(3, 4, 6, 6)).astype(np.float32)}
    newer = raised(model, version)
    assert opset(newer) == version
    assert set(graph.nodes(model)) <= set(graph.nodes(newer))
    assert len(graph.nodes(newer)) == len(list(newer.graph))
    for name, node in graph.nodes(model).items():
        assert graph.nodes(newer)[name].op_type == node.op_type
        assert any(node.outputs[0].name == each.name for made in newer.graph for each in made.outputs)
    before, after = graph.Runner(model)(inputs)["y"], graph.Runner(newer)(inputs)["y"]
    np.testing.assert_allclose(after, before, rtol=1e-6)
    graph.save(newer, tmp_path / "newer.onnx")


def test_a_newer_opset_stays(tmp_path) -> None:
    model = graph.load(models.save(models.conv_net(), tmp_path / "model.onnx"))
    same = raised(model, 13)
    assert opset(same) == models.OPSET
    assert same is not model


def test_names_that_the_conversion_drops_are_restored(tmp_path) -> None:
    nodes = [_node("Upsample", ["x"], ["y"], "up", mode="nearest", scales=[1.0, 1.0, 2.0, 2.0])]
    newer = raised(_load(nodes, tmp_path, 7), 13)
    assert graph.nodes(newer)["up"].op_type == "Resize"


def test_an_operator_that_cannot_be_converted_is_named(tmp_path) -> None:
    size = 6
    norm = _node("BatchNormalization", ["x", *"abcd"], ["n"], "norm of old", spatial=0)
    weights = [models.weight(name, np.ones((4, size, size), np.float32)) for name in "abcd"]
    model = _load(
        [_node("Relu", ["x"], ["r"], "relu"), norm, _node("Add", ["n", "r"], ["y"], "add")],
        tmp_path,
        8,
        weights,
    )
    with pytest.raises(InputError, match=r"BatchNormalization 'norm of old'.*opset 8 to 13"):
        raised(model, 13)


def test_bodies_are_raised_too(tmp_path) -> None:
    body = [
        _node("Unsqueeze", ["x"], ["u"], "body unsqueeze", axes=[0]),
        _node("Squeeze", ["u"], ["z"], "body squeeze", axes=[0]),
    ]
    branch = helper.make_graph(body, "branch", [], [models.value("z", ["N", 4, 6, 6])])
    nodes = [
        _node("ReduceMax", ["x"], ["top"], "top", keepdims=0),
        _node("Cast", ["top"], ["flag"], "cast", to=onnx.TensorProto.BOOL),
        _node("If", ["flag"], ["y"], "choice", then_branch=branch, else_branch=branch),
    ]
    model = _load(nodes, tmp_path, 11)
    inputs = {"x": np.random.default_rng(0).normal(size=(3, 4, 6, 6)).astype(np.float32)}
    before, after = graph.Runner(model)(inputs)["y"], graph.Runner(raised(model, 13))(inputs)["y"]
    assert (after == before).all()


def test_other_domains_are_left_alone(tmp_path) -> None:
    gelu = _node("Gelu", ["x"], ["y"], "gelu", domain="com.microsoft")
    model = _load([gelu], tmp_path, 11, imports=[helper.make_opsetid("com.microsoft", 1)])
    newer = raised(model, 13)
    assert newer.graph.opset_imports == {"": 13, "com.microsoft": 1}
    assert graph.nodes(newer)["gelu"].domain == "com.microsoft"
