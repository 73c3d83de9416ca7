"""The layer that was made coarse is the one found, with as few evaluations as were allowed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx_ir")
pytest.importorskip("onnxruntime")

import onnx_ir as ir
from fakes.models import mlp, save

from wavefit.guard.reference import make_reference
from wavefit.model.load import load
from wavefit.model.samples import random_samples
from wavefit.precision import graph
from wavefit.precision.linear import linears
from wavefit.precision.search import sensitivity
from wavefit.precision.search.evaluate import Judge


def quiet(_: str) -> None:
    pass


class Bench:
    """A chain of layers; lowering a node adds to its weights, 100 times as much to one of them."""

    def __init__(self, path: Path, layers: int, worst: str, harm: float = 1e-4) -> None:
        save(mlp(widths=(16,) * (layers + 1)), path)
        self.graph, self.model = graph.load(path), load(path)
        reference = make_reference(self.model, random_samples(self.model, {}, 8, 0), quiet)
        self.judge = Judge(self.model, reference)
        self.nodes = [layer.name for layer in linears(self.graph)]
        self.worst, self.harm = worst, harm
        self.asked: list[frozenset[str]] = []

    def lower(self, nodes: frozenset[str]) -> ir.Model:
        self.asked.append(nodes)
        model = graph.copy(self.graph)
        for layer in linears(model):
            if layer.name in nodes:
                harm = self.harm * (100 if layer.name == self.worst else 1)
                layer.set_matrix((layer.matrix() * (1 + np.float32(harm))).astype(np.float32))
        return model


def test_each_node_by_itself(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "m.onnx", 5, "matmul3")
    found = sensitivity.measure(bench.graph, bench.nodes, bench.lower, bench.judge, quiet)
    assert [each.node for each in found] == bench.nodes
    assert {each.op for each in found} == {"MatMul"}
    assert bench.asked == [frozenset({name}) for name in bench.nodes]
    errors = {each.node: each.error for each in found}
    assert max(errors, key=lambda name: errors[name] or 0) == "matmul3"
    # the last layer's weights times 1 + h: its output moves by h but for the bias
    assert errors["matmul4"] == pytest.approx(1e-4, rel=0.3)


def test_more_nodes_than_evaluations_are_taken_apart_where_it_hurts(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "m.onnx", 24, "matmul17")
    found = sensitivity.measure(bench.graph, bench.nodes, bench.lower, bench.judge, quiet, budget=12)
    assert len(bench.asked) <= 12
    errors = {each.node: each.error or 0.0 for each in found}
    assert list(errors) == bench.nodes
    assert max(errors, key=errors.__getitem__) == "matmul17"
    assert sorted(errors.values())[-2] < 0.2 * errors["matmul17"]  # it stands alone


def test_an_error_without_a_number_is_unknown(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "m.onnx", 3, "matmul1", harm=float("inf"))
    found = sensitivity.measure(bench.graph, bench.nodes, bench.lower, bench.judge, quiet)
    assert [each.error for each in found] == [None, None, None]


def test_no_nodes(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "m.onnx", 2, "matmul1")
    assert sensitivity.measure(bench.graph, [], bench.lower, bench.judge, quiet) == ()
