"""Scaled stretches: in fp32 the answers keep every digit (ONNX Runtime is asked), and half holds what it did not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from fakes.models import model, value, weight
from onnx import helper

from wavefit.model.samples import Samples
from wavefit.precision import graph
from wavefit.precision.half.emulate import emulated
from wavefit.precision.half.hazards import computes, hazards
from wavefit.precision.half.ranges import observe
from wavefit.precision.half.scaling import Rescaled, rescale

X = np.random.default_rng(0).normal(size=(3, 4, 6, 6)).astype(np.float32)
UP, DOWN = 2.0**18, 2.0**-12


def quiet(_: str) -> None:
    pass


def random(*shape: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


class Net:
    """x [N,4,6,6] through nodes, each called by its output."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "m.onnx"
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def add(self, op: str, inputs: list[str], output: str, **attributes: Any) -> Net:
        self.nodes.append(helper.make_node(op, inputs, [output], output, **attributes))
        return self

    def constant(self, name: str, array: np.ndarray | float | list[int]) -> str:
        made = np.asarray(array)
        self.weights.append(weight(name, made.astype(np.float32) if made.dtype.kind == "f" else made))
        return name

    def large(self, up: float = UP) -> Net:
        """The first node: x times ``up``, called "large"."""
        return self.add("Mul", ["x", self.constant("up", up)], "large")

    def small(self, source: str, down: float = DOWN, again: float = 2.0**-6) -> Net:
        """The last nodes: the source times both constants."""
        self.add("Mul", [source, self.constant("down", down)], "smaller")
        return self.add("Mul", ["smaller", self.constant("again", again)], "y")

    def rescaled(self, x: np.ndarray = X, output: str = "y") -> tuple[ir.Model, Rescaled]:
        """The graph, and the one rescaled; held to the same fp32 answers."""
        inputs = [value("x", ["N", *x.shape[1:]])]
        outputs = [value(name, None) for name in output.split()]
        onnx.save(model(self.nodes, inputs, outputs, self.weights), str(self.path))
        loaded = graph.load(self.path)
        seen = observe(loaded, Samples({"x": x}, None, "test"), quiet)
        found = rescale(loaded, seen, hazards(loaded, seen))
        before, after = (graph.Runner(each)({"x": x}) for each in (loaded, found.model))
        for name, array in before.items():
            np.testing.assert_array_equal(array, after[name])
        return loaded, found


def in_half(found: ir.Model, x: np.ndarray = X) -> np.ndarray:
    names = [str(node.name) for node in found.graph if computes(node)]
    [answer] = graph.Runner(emulated(found, dict.fromkeys(names, "fp16")))({"x": x}).values()
    return answer


def constants(net: Net, op: str) -> list[str]:
    """The operator's inputs after "large", made as constants of that net."""
    arrays: dict[str, list[np.ndarray | float | list[int]]] = {
        "PRelu": [np.array([0.1, 0.2, 0.3, 0.4]).reshape(4, 1, 1)],
        "Add": [random(4, 1, 1) * UP],
        "Sub": [random(4, 1, 1) * UP],
        "Max": [np.array(0.5 * UP)],
        "Clip": [np.array(-0.5 * UP), np.array(1.5 * UP)],
        "Pad": [[0, 0, 1, 1, 0, 0, 1, 1], np.array(0.25 * UP)],
        "Concat": [np.ones((3, 1, 6, 6)) * UP],
        "Reshape": [[0, 36, 4]],
        "Slice": [[0], [2], [1]],
        "Expand": [[3, 4, 6, 6]],
        "Conv": [random(5, 4, 3, 3), random(5) * UP],
        "ConvTranspose": [random(4, 5, 3, 3)],
        "MatMul": [random(6, 3)],
        "Div": [np.array(0.75)],
        "Mul": [random(4, 1, 1)],
        "BatchNormalization": [random(4), random(4), random(4) * UP, np.array([0.1, 1.0, 2.0, 50.0])],
        "InstanceNormalization": [random(4), random(4)],
        "LayerNormalization": [random(6), random(6)],
    }
    return [net.constant(f"c{number}", array) for number, array in enumerate(arrays.get(op, []))]


ATTRIBUTES: dict[str, dict[str, Any]] = {
    "MaxPool": {"kernel_shape": [2, 2]},
    "AveragePool": {"kernel_shape": [3, 3], "strides": [2, 2]},
    "LeakyRelu": {"alpha": 0.1},
    "ReduceMean": {"axes": [2, 3]},
    "ReduceL2": {"axes": [1]},
    "ReduceMax": {"axes": [2]},
    "Transpose": {"perm": [0, 2, 3, 1]},
    "Concat": {"axis": 1},
    "Conv": {"pads": [1, 1, 1, 1]},
    "LayerNormalization": {"axis": -1, "epsilon": 1e-3},
    "InstanceNormalization": {"epsilon": 1e-2},
    "DepthToSpace": {"blocksize": 2},
    "CumSum": {},
}
NORMS = (
    "LayerNormalization",
    "InstanceNormalization",
)  # what they make is of ordinary size whatever they read
PLAIN = ["Relu", "Abs", "Neg", "Identity", "GlobalAveragePool", "GlobalMaxPool", "Flatten"]
OPERATORS = sorted({*PLAIN, *ATTRIBUTES, "PRelu", "Add", "Sub", "Max", "Clip", "Pad", "Reshape", "Slice", "Expand",
                    "ConvTranspose", "MatMul", "Div", "Mul", "BatchNormalization"} - {"CumSum"})  # fmt: skip


@pytest.mark.parametrize("op", OPERATORS)
def test_a_factor_passes_through(tmp_path: Path, op: str) -> None:
    """x * 2^18 -> operator -> * 2^-12 * 2^-6: nothing but constants and epsilons change, and half holds all of it."""
    net = Net(tmp_path).large()
    net.add(op, ["large", *constants(net, op)], "through", **ATTRIBUTES.get(op, {}))
    net.small("through", 1.0 if op in NORMS else DOWN, 1.0 if op in NORMS else 2.0**-6)
    loaded, found = net.rescaled()
    assert found.left == ()
    assert len(found.model.graph) == len(loaded.graph)
    assert found.scaled
    assert all(scaled.factor == 2.0 ** round(np.log2(scaled.factor)) < 1 for scaled in found.scaled)
    [exact] = graph.Runner(loaded)({"x": X}).values()
    assert not np.isfinite(in_half(loaded)).all() or np.abs(in_half(loaded) - exact).max() > 0.1
    assert np.linalg.norm(in_half(found.model) - exact) < 4e-3 * np.linalg.norm(exact)


@pytest.mark.parametrize("op", ["Relu", "Add", "Conv", "MatMul", "InstanceNormalization"])
def test_small_numbers_are_raised(tmp_path: Path, op: str) -> None:
    net = Net(tmp_path).large(2.0**-24)
    inputs = constants(net, op)
    if op == "Add":  # as small as what it is added to
        net.weights[-1].CopyFrom(weight("c0", random(4, 1, 1) * np.float32(2.0**-24)))
    if op == "Conv":
        net.weights[-1].CopyFrom(weight("c1", random(5) * np.float32(2.0**-24)))
    epsilon = {"epsilon": 2.0**-50} if op == "InstanceNormalization" else {}
    net.add(op, ["large", *inputs], "through", **(ATTRIBUTES.get(op, {}) | epsilon))
    net.small("through", *((1.0, 1.0) if op in NORMS else (2.0**12, 2.0**12)))
    _, found = net.rescaled()
    assert found.left == ()
    assert found.scaled[0].factor > 1
    assert "in half" in found.scaled[0].reason


def test_an_explicit_mul_stands_where_nothing_takes_the_factor_up(tmp_path: Path) -> None:
    """exp is not linear: the factor goes in at the constant before, and comes out by a Mul before the exponential."""
    net = (
        Net(tmp_path)
        .large()
        .add("Relu", ["large"], "relu")
        .add("ReduceMean", ["relu"], "mean", axes=[1, 2, 3])
    )
    net.add("Sqrt", ["mean"], "root").add("Sin", ["root"], "y")
    loaded, found = net.rescaled()
    assert found.left == ()
    assert len(found.model.graph) == len(loaded.graph) + 1
    [mul] = [node for node in found.model.graph if node.name not in graph.nodes(loaded)]
    assert mul.op_type == "Mul"
    assert [user.name for user, _ in mul.outputs[0].uses()] == ["y"]


def test_what_an_exponential_makes_cannot_be_scaled(tmp_path: Path) -> None:
    net = Net(tmp_path).add("Exp", ["x"], "large").add("Relu", ["large"], "relu").small("relu")
    loaded, found = net.rescaled(X * 5)
    assert {kept.node for kept in found.left} == {"large", "relu", "smaller"}
    assert found.scaled == ()
    assert [node.name for node in found.model.graph] == [node.name for node in loaded.graph]


def test_what_the_caller_gets_is_not_scaled(tmp_path: Path) -> None:
    _, found = Net(tmp_path).large().rescaled(output="large")
    assert [kept.node for kept in found.left] == ["large"]


def test_moments_past_the_end_of_half(tmp_path: Path) -> None:
    """A variance of 1e8 (as PP-OCR's detector has one) is scaled with what it is the variance of."""
    net = Net(tmp_path).add("Mul", ["x", net_constant := "wide"], "wide_x")
    net.constant(net_constant, 2.0**12)
    moments = [np.ones(4), np.zeros(4), np.full(4, 50.0), np.array([1.0, 1e3, 1e6, 1e8])]
    inputs = [net.constant(f"m{number}", array) for number, array in enumerate(moments)]
    net.add("BatchNormalization", ["wide_x", *inputs], "y", epsilon=1e-5)
    loaded, found = net.rescaled()
    assert [kept.node for kept in hazards(loaded, observe(loaded, Samples({"x": X}, None, "t"), quiet))] == [
        "y"
    ]
    assert found.left == ()
    assert len(found.model.graph) == len(loaded.graph)
    [exact] = graph.Runner(loaded)({"x": X}).values()
    assert np.linalg.norm(in_half(found.model) - exact) < 4e-3 * np.linalg.norm(exact)


def test_parts_of_a_split_are_scaled_together_or_not_at_all(tmp_path: Path) -> None:
    """One part is small enough to be an output of the graph as it is; the other makes the whole overflow."""
    kernel = np.zeros((4, 4, 1, 1), np.float32)
    kernel[range(4), range(4)] = np.array([UP, UP, 1, 1])[:, None, None]
    net = Net(tmp_path)
    net.add("Conv", ["x", net.constant("kernel", kernel)], "large")
    net.nodes.append(helper.make_node("Split", ["large"], ["rest", "part"], "split", axis=1))
    net.small("rest")
    _, found = net.rescaled(output="y part")
    assert {kept.node for kept in found.left} <= {"large", "split", "smaller"}
    both = Net(tmp_path)
    both.add("Conv", ["x", both.constant("kernel", kernel)], "large")
    both.nodes.append(helper.make_node("Split", ["large"], ["rest", "part"], "split", axis=1))
    both.add("Add", ["part", "rest"], "sum").small("sum")
    assert both.rescaled()[1].left == ()


def test_inputs_of_a_sum_are_all_scaled(tmp_path: Path) -> None:
    net = Net(tmp_path).large().add("Mul", ["x", net_constant := "other"], "side")
    net.constant(net_constant, 3 * UP)
    net.add("Add", ["large", "side"], "sum").add("Concat", ["sum", "side"], "both", axis=1).small("both")
    loaded, found = net.rescaled()
    assert found.left == ()
    assert len(found.model.graph) == len(loaded.graph)


def test_a_sum_with_the_input_gets_a_mul(tmp_path: Path) -> None:
    net = Net(tmp_path).large().add("Add", ["large", "x"], "sum").small("sum")
    loaded, found = net.rescaled()
    assert found.left == ()
    assert len(found.model.graph) == len(loaded.graph) + 1


def test_a_constant_that_others_read_too_is_not_changed_for_them(tmp_path: Path) -> None:
    net = Net(tmp_path).large()
    net.add("Mul", ["x", "down"], "elsewhere").add("Relu", ["large"], "relu").small("relu")
    net.add("Add", ["y", "elsewhere"], "total")
    _, found = net.rescaled(output="total")
    assert found.left == ()


def test_a_square_takes_the_factor_twice(tmp_path: Path) -> None:
    net = Net(tmp_path).large(2.0**10)
    net.add("Mul", ["large", "large"], "square").add("Sqrt", ["square"], "root").small("root", 2.0**-4)
    _, found = net.rescaled()
    assert found.left == ()


def test_a_body_that_captures_the_value_hinders_it(tmp_path: Path) -> None:
    body = helper.make_graph(
        [helper.make_node("Neg", ["large"], ["inside"], "inside")], "body", [], [value("inside", None)]
    )
    net = Net(tmp_path).large()
    net.constant("yes", np.array(True))
    net.add("If", ["yes"], "branch", then_branch=body, else_branch=body).small("branch")
    _, found = net.rescaled()
    assert "large" in {kept.node for kept in found.left}


def test_bfloat16_needs_none_of_it(tmp_path: Path) -> None:
    net = Net(tmp_path).large().small("large")
    loaded, _ = net.rescaled()
    seen = observe(loaded, Samples({"x": X}, None, "test"), quiet)
    assert rescale(loaded, seen, hazards(loaded, seen, "bf16"), "bf16").scaled == ()
