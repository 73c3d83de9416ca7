"""Corrected biases make each layer right in the mean, and the outputs better on data that was not looked at."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

pytest.importorskip("onnx_ir")
pytest.importorskip("onnxruntime")

import onnx_ir as ir
from fakes.models import conv_net, mlp, save
from precision.quantised import int8, target

from wavefit.model.samples import Samples
from wavefit.precision import graph
from wavefit.precision.compensation import bias
from wavefit.precision.int8 import qdq
from wavefit.precision.linear import linear, linears


def quiet(_: str) -> None:
    pass


def coarse(model: ir.Model) -> ir.Model:
    """Weights cut to steps of a quarter of their largest, towards zero: a rounding that shifts every mean."""
    model = graph.copy(model)
    for layer in linears(model):
        matrix = layer.matrix()
        step = np.abs(matrix).max() / 4
        layer.set_matrix((np.trunc(matrix / step) * step).astype(np.float32))
    return model


def positive(shape: tuple[int, ...], name: str, seed: int = 0) -> Samples:
    """Inputs of a mean that is not zero, as after a Relu."""
    data = np.random.default_rng(seed).uniform(0, 1, shape).astype(np.float32)
    return Samples({name: data}, None, "test")


def means(model: ir.Model, value: str, samples: Samples, axes: tuple[int, ...]) -> np.ndarray:
    return graph.Runner(model, (value,))(samples.inputs)[value].mean(axes, dtype=np.float64)


def distance(model: ir.Model, other: ir.Model, samples: Samples) -> float:
    one, two = (next(iter(graph.Runner(each)(samples.inputs).values())) for each in (model, other))
    return float(np.linalg.norm(one - two) / np.linalg.norm(one))


def test_every_layer_is_right_in_the_mean(tmp_path: Path) -> None:
    model = graph.load(save(conv_net(size=8), tmp_path / "m.onnx"))
    samples = positive((24, 3, 8, 8), "image")
    fixed = bias.compensate(model, ["conv", "fc"], coarse, samples, quiet)
    for value, axes in (("c", (0, 2, 3)), ("logits", (0,))):
        right = means(model, value, samples, axes)
        shifted, corrected = (means(coarse(each), value, samples, axes) for each in (model, fixed))
        assert np.abs(shifted - right).max() > 0.01
        np.testing.assert_allclose(corrected, right, atol=1e-5)
    unseen = positive((24, 3, 8, 8), "image", seed=1)
    assert distance(model, coarse(fixed), unseen) < 0.5 * distance(model, coarse(model), unseen)


def test_only_the_layers_named_are_corrected(tmp_path: Path) -> None:
    model = graph.load(save(conv_net(), tmp_path / "m.onnx"))
    fixed = bias.compensate(model, ["fc"], coarse, positive((8, 3, 8, 8), "image"), quiet)
    before, after = ({layer.name: layer.bias() for layer in linears(each)} for each in (model, fixed))
    np.testing.assert_array_equal(before["conv"], after["conv"])
    assert not np.array_equal(before["fc"], after["fc"])


def test_it_ends_where_no_time_is_left(tmp_path: Path) -> None:
    model = graph.load(save(conv_net(), tmp_path / "m.onnx"))
    left = iter([1.0, 0.0])
    samples = positive((8, 3, 8, 8), "image")
    fixed = bias.compensate(model, ["conv", "fc"], coarse, samples, quiet, lambda: next(left))
    before, after = ({layer.name: layer.bias() for layer in linears(each)} for each in (model, fixed))
    assert not np.array_equal(before["conv"], after["conv"])
    np.testing.assert_array_equal(before["fc"], after["fc"])


def test_a_layer_without_a_bias_gets_one(tmp_path: Path) -> None:
    proto = conv_net()
    del proto.graph.node[0].input[2]
    model = graph.load(save(proto, tmp_path / "m.onnx"))
    samples = positive((8, 3, 8, 8), "image")
    fixed = bias.compensate(model, ["conv"], coarse, samples, quiet)
    right = means(model, "c", samples, (0, 2, 3))
    np.testing.assert_allclose(means(coarse(fixed), "c", samples, (0, 2, 3)), right, atol=1e-5)
    before = graph.nodes(model)["conv"]
    assert len(before.inputs) == 2 or before.inputs[2] is None


@pytest.mark.parametrize("tokens", [None, 5])
def test_int8_graphs_whose_biases_are_integers(tmp_path: Path, tokens: int | None) -> None:
    """A MatMul with an Add is a Gemm in int8 where its input is a matrix, and stays one MatMul where it is not."""
    proto = mlp(widths=(16, 48, 48, 4))
    if tokens:
        for spec, width in ((proto.graph.input[0], 16), (proto.graph.output[0], 4)):
            del spec.type.tensor_type.shape.dim[:]
            for size in ("N", tokens, width):
                dim = spec.type.tensor_type.shape.dim.add()
                setattr(dim, "dim_param" if isinstance(size, str) else "dim_value", size)
    model = graph.load(save(proto, tmp_path / "m.onnx"))
    samples = positive((32, *([tokens] if tokens else []), 16), "x")
    layers = qdq.quantisable(model, target())
    lowered = 0

    def lower(given: ir.Model) -> ir.Model:
        nonlocal lowered
        lowered += 1
        return int8(given, samples, layers, per_channel=False)

    fixed = bias.compensate(model, layers, lower, samples, quiet)
    assert lowered == 1  # the lowered graph's own biases are moved; it is not made anew for every layer
    axes = tuple(range(2 if tokens else 1))
    right = means(model, "y", samples, axes)
    plain, better = (
        means(int8(each, samples, layers, per_channel=False), "y", samples, axes) for each in (model, fixed)
    )
    assert np.abs(better - right).max() < 0.5 * np.abs(plain - right).max()


def test_a_layers_own_bias_with_beta(tmp_path: Path) -> None:
    proto = conv_net()
    gemm = proto.graph.node[-1]
    gemm.attribute.append(onnx.helper.make_attribute("beta", 2.0))
    model = graph.load(save(proto, tmp_path / "m.onnx"))
    layer = linear(graph.nodes(model)["fc"])
    assert layer is not None
    stored = graph.constant(layer.node.inputs[2])
    np.testing.assert_allclose(layer.bias(), 2 * stored)
    layer.set_bias(np.arange(10.0))
    np.testing.assert_allclose(graph.constant(layer.node.inputs[2]), np.arange(10) / 2)
