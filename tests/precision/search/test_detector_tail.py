"""A detector's scores in one Concat with its boxes: int8 loses them all, and two nodes kept back save them."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("onnx_ir")
pytest.importorskip("onnxruntime")

from precision.cases import detector_tail
from precision.judging import Bench, quiet
from precision.quantised import calibrated, int8, target

from wavefit.precision.graph import Runner
from wavefit.precision.int8 import qdq
from wavefit.precision.search import sensitivity
from wavefit.precision.search.evaluate import Judge
from wavefit.precision.search.islands import smallest


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(detector_tail.build(tmp_path_factory.mktemp("detector") / "model.onnx"))


def test_plain_int8_finds_nothing_and_the_norm_does_not_see_it(bench: Bench) -> None:
    assert bench.judge.heldout is not None
    assert bench.judge.heldout.score.value == 1.0
    lowered = int8(bench.graph, bench.calibration)
    plain = bench.judge(lowered, "int8")
    assert not plain.passed
    assert plain.error is not None
    assert plain.error < 0.05  # int8 may be 0.15
    heldout = bench.judge.heldout.samples
    assert heldout.labels is not None
    assert detector_tail.matched(Runner(lowered)(heldout.inputs), heldout.labels) < 0.4  # of six classes
    [lost] = [reason for reason in plain.reasons if "has lost channels" in reason]
    assert "of 10 on axis 2" in lost


@pytest.mark.parametrize("labels", [True, False])
def test_two_nodes_are_kept_back(bench: Bench, labels: bool) -> None:
    """With the metric, and by the guard's numbers alone where there are no labels."""
    judge: Judge = bench.judge if labels else replace(bench.judge, heldout=None)
    nodes = qdq.quantisable(bench.graph, target())
    ranges = calibrated(bench.graph, bench.calibration)

    def lower(chosen: frozenset[str]) -> object:
        return qdq.quantize(bench.graph, chosen, ranges, target())

    def passes(kept: frozenset[str]) -> bool:
        return judge(lower(frozenset(nodes) - kept), "int8").passed  # type: ignore[arg-type]

    found = sensitivity.measure(bench.graph, nodes, lower, judge, quiet)  # type: ignore[arg-type]
    order = [each.node for each in sorted(found, key=lambda each: each.error or 0.0, reverse=True)]
    kept = smallest(nodes, passes, frozenset(), order, quiet)
    assert kept == bench.case.minimal
    assert len(kept) <= 0.05 * len(list(bench.graph.graph))
    assert not any(passes(kept - {name}) for name in kept)
    ours = bench.judge(lower(frozenset(nodes) - kept), "int8")  # type: ignore[arg-type]
    assert ours.passed
    assert ours.task is not None
    assert ours.task.candidate == 1.0
