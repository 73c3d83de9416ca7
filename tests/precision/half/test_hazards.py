"""What half cannot hold, by graphs of a few nodes whose numbers are chosen; the verdicts follow from IEEE 754."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from fakes.models import model, value, weight
from onnx import helper

from wavefit.model.samples import Samples
from wavefit.precision import graph
from wavefit.precision.half.emulate import emulated
from wavefit.precision.half.hazards import MARGIN, hazards
from wavefit.precision.half.ranges import observe
from wavefit.schema import KeptNode

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(4, 64)).astype(np.float32)


def quiet(_: str) -> None:
    pass


class Build:
    """Chains of nodes, each called by its output."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def add(self, op: str, inputs: str, output: str, **attributes: object) -> Build:
        self.nodes.append(helper.make_node(op, inputs.split(), [output], output, **attributes))
        return self

    def constant(self, name: str, number: float | np.ndarray) -> Build:
        array = np.asarray(number)
        self.weights.append(weight(name, array if array.dtype.kind == "i" else array.astype(np.float32)))
        return self

    def load(self, *outputs: str) -> ir.Model:
        proto = model(self.nodes, [value("x", ["N", 64])], [_output(name) for name in outputs], self.weights)
        return graph.load(_saved(proto))

    def found(self, *outputs: str, x: np.ndarray = X) -> dict[str, KeptNode]:
        loaded = self.load(*outputs)
        seen = observe(loaded, Samples({"x": x}, None, "test"), quiet)
        return {kept.node: kept for kept in hazards(loaded, seen)}


def _output(name: str) -> onnx.ValueInfoProto:
    integers = name in ("shape", "best")
    return value(name, None, onnx.TensorProto.INT64 if integers else onnx.TensorProto.FLOAT)


_FOLDER: list[Path] = []


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path) -> None:
    _FOLDER[:] = [tmp_path]


def _saved(proto: onnx.ModelProto) -> Path:
    path = _FOLDER[0] / "m.onnx"
    onnx.save(proto, str(path))
    return path


def test_ordinary_numbers_are_no_hazard() -> None:
    net = Build().constant("c", 3.0).add("Mul", "x c", "a").add("Exp", "a", "b").add("Softmax", "b", "y")
    assert net.found("y", x=np.clip(X, -1, 1)) == {}


def test_a_large_value_is_kept_from_its_producer_to_its_readers_and_no_further() -> None:
    net = (
        Build()
        .constant("up", 3e4)
        .constant("down", 1e-3)
        .add("Relu", "x", "before")
        .add("Mul", "before up", "a")
    )
    net.add("Relu", "a", "b").add("Mul", "b down", "c").add("Relu", "c", "after")
    found = net.found("after", x=X * 10)
    assert set(found) == {"a", "b", "c"}
    largest = float(X.max() * 10 * np.float32(3e4))
    assert found["a"].figures["max_abs"] == pytest.approx(largest, rel=1e-6)
    assert f"its output 'a' reaches {largest:.3g}, past 65504" in found["a"].reason
    assert "its input 'b' reaches" in found["c"].reason
    assert found["b"].op == "Relu"


@pytest.mark.parametrize(("largest", "kept"), [(32e3, False), (33e3, True), (65504.0, True), (70e3, True)])
def test_the_margin(largest: float, kept: bool) -> None:
    x = X / np.abs(X).max()
    net = Build().constant("c", largest).constant("d", 1e-3).add("Mul", "x c", "a").add("Mul", "a d", "y")
    found = net.found("y", x=x)
    assert MARGIN == 2
    assert ("a" in found) == kept
    if kept:
        assert ("within a factor of 2" in found["a"].reason) == (largest <= 65504)


def test_a_large_weight_and_a_large_input() -> None:
    net = Build().constant("c", 1e5).constant("d", 1e-6).add("Mul", "x c", "a").add("Mul", "x d", "y")
    found = net.found("a", "y", x=X * 1e-3)
    assert "its weight 'c' reaches 1e+05" in found["a"].reason
    given = Build().constant("d", 1e-6).add("Mul", "x d", "y").add("Relu", "y", "z").found("z", x=X * 1e6)
    assert set(given) == {"y"}
    assert "its input 'x'" in given["y"].reason


def test_readers_of_shape_alone_are_let_off() -> None:
    net = (
        Build()
        .constant("c", 1e5)
        .add("Mul", "x c", "a")
        .add("Shape", "a", "shape")
        .add("ArgMax", "a", "best")
    )
    assert set(net.found("shape", "best")) == {"a", "best"}


@pytest.mark.parametrize(("size", "kept"), [(1e-4, False), (1e-5, False), (3e-6, True), (1e-8, True)])
def test_a_small_value_that_carries_everything(size: float, kept: bool) -> None:
    """numpy's own rounding of it loses under 0.4 % down to about 5e-6, and more below."""
    apart = np.linalg.norm((X * size).astype(np.float16).astype(np.float64) - X * size) / np.linalg.norm(
        X * size
    )
    assert (apart > 8 * 2**-11) == kept
    net = Build().constant("up", 1e4).add("Relu", "x", "a").add("Mul", "a up", "b").add("Mul", "b up", "y")
    assert set(net.found("y", x=X * np.float32(size))) == ({"a", "b"} if kept else set())


def test_a_small_value_that_vanishes_in_a_sum_does_not_matter() -> None:
    net = Build().constant("c", 1e-6).add("Mul", "x c", "a").add("Add", "x a", "y")
    assert "a" not in net.found("y")
    assert "y" not in net.found("y")


def test_a_small_value_in_an_exponential_does_not_matter() -> None:
    assert (
        Build().constant("c", 0.01).constant("d", 1e-6).add("Mul", "x d", "a").add("Exp", "a", "y").found("y")
        == {}
    )


def test_a_lost_epsilon_matters_where_the_variance_is_0() -> None:
    net = Build().constant("epsilon", 1e-12).constant("axes", np.array([1]))
    net.add("Mul", "x x", "squares").add("ReduceSum", "squares axes", "sum", keepdims=1)
    net.add("Add", "sum epsilon", "with_epsilon").add("Sqrt", "with_epsilon", "root").add(
        "Div", "x root", "y"
    )
    assert net.found("y") == {}
    padded = X.copy()
    padded[2] = 0
    found = net.found("y", x=padded)
    assert {"with_epsilon", "root"} <= set(found) <= {"with_epsilon", "root", "y"}
    assert "half rounds to 0" in found["with_epsilon"].reason
    assert found["with_epsilon"].figures["smallest"] == pytest.approx(1e-12)


@pytest.mark.parametrize("op", ["Reciprocal", "Log"])
def test_what_divides_or_is_logged_must_not_become_0(op: str) -> None:
    x = np.abs(X) + 0.1
    x[0, 0] = 1e-9
    net = Build().add("Identity", "x", "a").add(op, "a", "b").add("Relu", "b", "y")
    assert {"a", "b"} <= set(net.found("y", x=x))


def test_a_norm_whose_variance_and_epsilon_round_to_0() -> None:
    net = Build().constant("scale", np.ones(64))
    net.add("LayerNormalization", "x scale", "y", axis=-1, epsilon=1e-12)
    assert net.found("y") == {}
    padded = X.copy()
    padded[1] = 0.5
    found = net.found("y", x=padded)
    assert "divides by the root of 1e-12" in found["y"].reason
    assert (
        Build()
        .constant("scale", np.ones(64))
        .add("LayerNormalization", "x scale", "y", axis=-1, epsilon=1e-5)
        .found("y", x=padded)
        == {}
    )


def test_a_batch_norm_with_a_tiny_variance() -> None:
    def net(variance: float) -> Build:
        made = Build().constant("s", np.ones(64)).constant("b", np.zeros(64)).constant("m", np.zeros(64))
        made.constant("v", np.full(64, variance))
        return made.add("BatchNormalization", "x s b m v", "y", epsilon=1e-10)

    assert net(1.0).found("y") == {}
    assert "y" in net(1e-8).found("y", x=X * np.float32(1e-3))


def test_a_sum_that_overflows_inside_although_all_around_it_is_small() -> None:
    x = np.abs(RANDOM.normal(1000, 1, (2, 64))).astype(np.float32)
    wide = Build().constant("n", np.array([0, 64 * 3])).constant("axes", np.array([1]))
    wide.add("Concat", "x x x", "a", axis=1).add("ReduceMean", "a", "mean", axes=[1]).add("Relu", "mean", "y")
    found = wide.found("y", x=x)
    assert set(found) == {"mean"}
    assert found["mean"].figures["sum"] == pytest.approx(3 * x.astype(np.float64).sum(1).max(), rel=1e-6)


def test_terms_that_cancel_do_not_overflow() -> None:
    x = np.tile(np.array([2000, -2000], np.float32), (2, 32))
    assert Build().add("ReduceMean", "x", "mean", axes=[1]).found("mean", x=x) == {}


def test_bfloat16_has_the_range_of_fp32() -> None:
    loaded = Build().constant("c", 1e30).add("Mul", "x c", "y").load("y")
    seen = observe(loaded, Samples({"x": X}, None, "test"), quiet)
    assert hazards(loaded, seen, "bf16") == ()
    assert {kept.node for kept in hazards(loaded, seen, "fp16")} == {"y"}


@pytest.mark.parametrize("masked", ["some", "all"])
def test_a_mask_of_the_lowest_float_is_harmless_where_a_softmax_reads_it(masked: str) -> None:
    """exp(-3.4e38) and exp(-Inf) are both 0; where a whole row is masked, the constant is to stay finite."""
    mask = np.where(np.arange(64) < (32 if masked == "some" else 64), np.finfo(np.float32).min, 0)
    net = Build().constant("mask", mask).add("Add", "x mask", "masked").add("Softmax", "masked", "y", axis=-1)
    assert set(net.found("y")) == (set() if masked == "some" else {"masked", "y"})
    lowered = emulated(net.load("y"), {"masked": "fp16", "y": "fp16"})
    [found] = graph.Runner(lowered)({"x": X}).values()
    scores = X.astype(np.float64) + mask
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    np.testing.assert_allclose(found, powers / powers.sum(-1, keepdims=True), rtol=2e-3, atol=1e-6)
