"""Random graphs of operators that scaling knows, and some that it does not: fp32 keeps every digit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from fakes.models import model, value, weight
from onnx import helper

from wavefit.model.samples import Samples
from wavefit.precision import graph
from wavefit.precision.half.hazards import hazards
from wavefit.precision.half.ranges import observe
from wavefit.precision.half.scaling import rescale

NODES, GRAPHS = 12, 80
ONE = ["Relu", "Abs", "Neg", "Tanh", "Softmax"]
TWO = ["Add", "Sub", "Max", "Mul"]
CONSTANT = ["Mul", "Div", "Add", "Clip", "Conv", "LayerNormalization", "BatchNormalization"]


class Draw:
    """One random graph x [N,4,6,6] -> its last value, with constants between 2^-14 and 2^14."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.values = ["x"]
        for _ in range(NODES):
            self._node()

    def _node(self) -> None:
        kinds = [(op, 1) for op in ONE] + [(op, 2) for op in TWO] + [(op, 0) for op in CONSTANT]
        op, arity = kinds[self.random.integers(len(kinds))]
        sources = [str(name) for name in self.random.choice(self.values[-4:], max(1, arity))]
        name = f"v{len(self.nodes)}"
        inputs = sources if arity else [*sources, *self._constants(op)]
        self.nodes.append(helper.make_node(op, inputs, [name], name))
        self.values.append(name)

    def _constants(self, op: str) -> list[str]:
        draw, size = self.random.normal, 2.0 ** int(self.random.integers(-14, 15))
        arrays = {
            "Mul": [1.3 * size],
            "Div": [1.3 * size],
            "Add": [draw(size=(4, 1, 1)) * size],
            "Clip": [-size, size],
            "Conv": [draw(size=(4, 4, 1, 1)), draw(size=4) * size],
            "LayerNormalization": [np.ones(6), np.zeros(6)],
            "BatchNormalization": [
                draw(size=4), draw(size=4), draw(size=4) * size, np.abs(draw(size=4)) * size + 1e-3
            ],
        }  # fmt: skip
        made = [
            weight(f"w{len(self.weights) + number}", np.asarray(array, np.float32))
            for number, array in enumerate(arrays[op])
        ]
        self.weights += made
        return [str(each.name) for each in made]

    def save(self, path: Path) -> Path:
        outputs = [value(self.values[-1], None)]
        onnx.save(model(self.nodes, [value("x", ["N", 4, 6, 6])], outputs, self.weights), str(path))
        return path


def test_no_digit_of_fp32_changes_and_nothing_new_is_left_behind(tmp_path: Path) -> None:
    scaled = 0
    for seed in range(GRAPHS):
        loaded = graph.load(Draw(seed).save(tmp_path / "m.onnx"))
        x = np.random.default_rng(seed).normal(size=(2, 4, 6, 6)).astype(np.float32)
        seen = observe(loaded, Samples({"x": x}, None, "test"), lambda _: None)
        if any(each.unbounded or each.max_abs > 1e25 for each in seen.values()):
            continue  # no room in fp32 itself
        before = hazards(loaded, seen)
        found = rescale(loaded, seen, before)
        scaled += bool(found.scaled)
        assert {kept.node for kept in found.left} <= {kept.node for kept in before}, seed
        [was], [now] = (graph.Runner(each)({"x": x}).values() for each in (loaded, found.model))
        np.testing.assert_array_equal(was, now, err_msg=f"seed {seed}")
    assert scaled > GRAPHS / 16
