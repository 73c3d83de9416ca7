"""The built cases for half: naive fails, and what is found passes with exactly the nodes that are known to matter."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from precision.cases import attention_overflow, layernorm_65536, scaled_chain, subnormals
from precision.cases.blocks import Case
from precision.judging import Bench, quiet

from wavefit.precision import graph
from wavefit.precision.half.hazards import hazards
from wavefit.precision.half.ranges import observe
from wavefit.precision.half.scaling import rescale
from wavefit.precision.half.value_range import Range
from wavefit.precision.search.islands import smallest

Build = Callable[[Path], Case]

CASES: dict[str, Build] = {
    "attention": attention_overflow.build,
    "layernorm as an operator": lambda path: layernorm_65536.build(path, "operator"),
    "layernorm by ReduceMean": lambda path: layernorm_65536.build(path, "mean"),
    "layernorm by ReduceSum": lambda path: layernorm_65536.build(path, "sum"),
    "subnormal squares": lambda path: subnormals.build(path, "squares"),
    "subnormal units": lambda path: subnormals.build(path, "units"),
    "chain of large numbers": scaled_chain.build,
    "chain of small numbers": lambda path: scaled_chain.build(path, 2.0**-24),
}


class Studied(Bench):
    """A case with its ranges."""

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.ranges: dict[str, Range] = observe(self.graph, self.calibration, quiet)
        self.found = hazards(self.graph, self.ranges)


@pytest.fixture(name="case", scope="module", params=CASES, ids=lambda name: str(name).replace(" ", "-"))
def case_(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Studied:
    return Studied(CASES[request.param](tmp_path_factory.mktemp("case") / "m.onnx"))


def test_naive_half_fails_the_guard(case: Studied) -> None:
    assert not case.half().passed


def test_hazards_are_the_minimal_set(case: Studied) -> None:
    assert {kept.node for kept in case.found} == case.case.minimal
    assert len(case.case.minimal) <= 0.05 * len(case.nodes)
    for kept in case.found:
        assert kept.precision == "fp32"
        assert kept.reason
        assert kept.figures


def test_kept_back_they_pass(case: Studied) -> None:
    judgement = case.half(kept.node for kept in case.found)
    assert judgement.passed, judgement.reasons


def test_no_smaller_island_passes(case: Studied) -> None:
    start = frozenset(kept.node for kept in case.found)
    found = smallest(case.nodes, lambda kept: case.half(kept).passed, start, [], quiet)
    assert found == case.case.minimal


def test_scaling_keeps_nothing_back(case: Studied) -> None:
    rescaled = rescale(case.graph, case.ranges, case.found)
    assert rescaled.left == ()
    assert rescaled.scaled
    assert len(rescaled.model.graph) <= len(case.graph.graph) + 2
    judgement = case.half((), rescaled.model)
    assert judgement.passed, judgement.reasons


def test_scaling_changes_no_digit_in_fp32(case: Studied) -> None:
    rescaled = rescale(case.graph, case.ranges, case.found)
    inputs = case.calibration.batch(0, 2)
    [before] = graph.Runner(case.graph)(inputs).values()
    [after] = graph.Runner(rescaled.model)(inputs).values()
    np.testing.assert_array_equal(before, after)


def test_a_rescaled_graph_is_a_right_file(case: Studied, tmp_path: Path) -> None:
    rescaled = rescale(case.graph, case.ranges, case.found)
    graph.save(rescaled.model, tmp_path / "rescaled.onnx")
    assert set(graph.nodes(case.graph)) <= set(graph.nodes(graph.load(tmp_path / "rescaled.onnx")))


def test_the_callers_graph_is_left_alone(case: Studied) -> None:
    before = {str(node.name): [value.name for value in node.inputs if value] for node in case.graph.graph}
    rescale(case.graph, case.ranges, case.found)
    after = {str(node.name): [value.name for value in node.inputs if value] for node in case.graph.graph}
    assert after == before
