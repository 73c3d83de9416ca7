"""Task metrics against counts by hand and published intervals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from fakes import models
from guard.helpers import plan, quiet, scale_weight, session, write

from wavefit.errors import InputError
from wavefit.guard.reference import make_reference
from wavefit.guard.task import (
    Metric,
    Score,
    drop_interval,
    evaluate,
    find_metric,
    in_top,
    judge,
    reference_score,
)
from wavefit.model.samples import Samples, random_samples
from wavefit.schema import decode, encode


def labelled(tmp_path: Path, count: int = 21) -> tuple:
    """A model with samples of which it gets two thirds right."""
    model = write(models.mlp(widths=(16, 32, 10)), tmp_path / "m.onnx")
    random = random_samples(model, {}, count, 0)
    scores = session(model).run(random.inputs)["y"]
    labels = scores.argmax(1)
    labels[::3] = scores.argmin(1)[::3]
    return model, Samples(random.inputs, labels, "test")


@pytest.mark.parametrize("batch", [1, 4, 21, 64])
def test_the_last_batch_is_filled_and_cut(tmp_path: Path, batch: int) -> None:
    model, samples = labelled(tmp_path)
    score = evaluate(session(model), plan(model, batch), samples, find_metric("top1"))
    assert score.value == 14 / 21
    assert score.correct == tuple(index % 3 != 0 for index in range(21))
    assert reference_score(model, samples, find_metric("top1")) == score
    assert decode(encode(score), Score) == score


def test_a_frozen_batch_larger_than_the_data_is_filled_up(tmp_path: Path) -> None:
    proto = models.mlp(widths=(16, 32, 10))
    for value in (*proto.graph.input, *proto.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = 8
    model = write(proto, tmp_path / "m.onnx")
    inputs = random_samples(model, {}, 8, 0).inputs
    labels = session(model).run(inputs)["y"].argmax(1)[:5]
    samples = Samples({name: array[:5] for name, array in inputs.items()}, labels, "test")
    assert reference_score(model, samples, find_metric("top1")).correct == (True,) * 5


def test_a_label_beyond_the_models_classes_is_refused(tmp_path: Path) -> None:
    model, samples = labelled(tmp_path)
    assert samples.labels is not None
    beyond = Samples(samples.inputs, np.where(np.arange(21) == 20, 10, samples.labels), "test")
    with pytest.raises(InputError, match="label 10 is out of range, the model has 10 classes"):
        evaluate(session(model), plan(model, 8), beyond, find_metric("top1"))


def test_top_k_ranks_like_argmax() -> None:
    scores = np.array([[0.1, 0.9, 0.5], [0.2, 0.2, 0.2], [np.nan, 0.1, 0.0], [np.nan] * 3])
    labels = np.array([2, 1, 0, 0])
    assert in_top(scores, labels, 1).tolist() == [False, False, False, False]
    assert in_top(scores, labels, 2).tolist() == [True, True, False, False]
    assert in_top(scores, np.array([1, 0, 1, 0]), 1).tolist() == [True, True, True, False]


def test_a_drop_beyond_the_limit_fails_and_says_the_numbers(tmp_path: Path) -> None:
    model, samples = labelled(tmp_path, 60)
    metric = find_metric("top1")
    reference = reference_score(model, samples, metric)
    broken = evaluate(session(model, scale_weight("w1", -1)), plan(model, 8), samples, metric)
    verdict = judge(broken, reference, metric, 0.01)
    assert verdict.metric.drop == pytest.approx(reference.value - broken.value)
    assert "0.6667" in verdict.reasons[0]
    assert "0.0100 is allowed" in verdict.reasons[0]
    assert judge(broken, reference, metric, 1.0).reasons == ()
    same = judge(reference, reference, metric, 0.0)
    assert same.reasons == ()
    assert "too few samples" in same.warnings[0]


def test_paired_interval_is_agresti_and_min() -> None:
    # n=100, 10 lost and 2 won: with half an item in each cell (10.5 - 2.5)/102, se = sqrt(13 - 64/102)/102
    reference = Score(value=0.5, samples=100, correct=(True,) * 10 + (False,) * 2 + (True,) * 88)
    candidate = Score(value=0.5, samples=100, correct=(False,) * 10 + (True,) * 2 + (True,) * 88)
    interval = drop_interval(candidate, reference)
    assert interval is not None
    assert interval == pytest.approx((0.0108, 0.1461), abs=2e-4)


def accuracy(outputs: dict, labels: np.ndarray) -> float:
    assert len(outputs["y"]) == len(labels)
    return float((outputs["y"].argmax(1) == labels).mean())


def bad_metric(outputs: dict, labels: np.ndarray) -> str:
    return "good"


def test_a_python_callable_gets_all_outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_metrics.py").write_text(
        "def accuracy(outputs, labels):\n    return (outputs['y'].argmax(1) == labels).mean()\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    model, samples = labelled(tmp_path)
    metric = find_metric("my_metrics:accuracy")
    score = evaluate(session(model), plan(model, 8), samples, metric)
    assert score == Score(value=14 / 21, samples=21)
    assert drop_interval(score, score) is None


@pytest.mark.parametrize(
    "spec", ["top3", "nothing", "no_such_module_x:f", "math:no_such", "math:pi", ":f", "math:"]
)
def test_unknown_metrics_are_refused(spec: str) -> None:
    with pytest.raises(InputError, match="metric"):
        find_metric(spec)


def test_what_a_metric_cannot_use_is_refused(tmp_path: Path) -> None:
    model, samples = labelled(tmp_path)
    unlabelled = Samples(samples.inputs, None, "test")
    with pytest.raises(InputError, match="needs labels"):
        evaluate(session(model), plan(model, 8), unlabelled, find_metric("top1"))
    with pytest.raises(InputError, match="not a finite number"):
        evaluate(session(model), plan(model, 8), samples, Metric("bad", function=bad_metric))  # type: ignore[arg-type]
    one = write(models.mlp(widths=(16, 1)), tmp_path / "one.onnx")
    with pytest.raises(InputError, match="items x classes"):
        evaluate(session(one), plan(one, 8), samples, find_metric("top1"))


def test_references_and_metrics_use_the_same_samples(tmp_path: Path) -> None:
    model, samples = labelled(tmp_path)
    reference = make_reference(model, samples, quiet)
    assert reference.samples.labels is not None
    assert len(reference.samples.labels) == reference.samples.count
