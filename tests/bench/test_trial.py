"""One plan's trial, run in this process."""

from __future__ import annotations

import io
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from fakes import models

from wavefit.bench.trial import Trial, Trialled, run_trial
from wavefit.child.main import Reporter
from wavefit.device.probe import probe
from wavefit.guard.reference import make_reference
from wavefit.guard.task import Score
from wavefit.model.data import load_samples
from wavefit.model.load import load
from wavefit.routes import ort_cpu
from wavefit.schema import Data, Load, Plan, Request


def trial(folder: Path, reference_top1: float) -> Trialled:
    """Tries a classifier of which an eighth of the answers is right."""
    model = load(models.save(models.mlp(widths=(16, 32, 10)), folder / "m.onnx"))
    x = np.random.default_rng(0).normal(size=(8, 16)).astype(np.float32)
    session = ort_cpu.open(Plan(route="ort_cpu", device="cpu", shapes={}), model, probe()[0], folder)
    scores = session.run({"x": x})["y"]
    labels = np.where(np.arange(8) == 0, scores.argmax(1), scores.argmin(1))
    np.savez(folder / "data.npz", x=x, labels=labels)
    data = Data(path=str(folder / "data.npz"))
    request = Request(data=data, load=Load(duration_s=0.1))
    samples = load_samples(model, folder / "data.npz", None, {}, 8, 0)
    make_reference(model, samples, lambda _: None).save(folder / "reference")
    [plan] = ort_cpu.plans(probe(), model, request)
    assert isinstance(plan, Plan)
    payload = Trial(
        plan=plan,
        device=probe()[0],
        model=model,
        request=request,
        reference=str(folder / "reference"),
        reference_score=Score(value=reference_top1, samples=8),
    )
    return run_trial(payload, Reporter(io.BytesIO(), deadline_s=60.0))


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(sys, "path", list(sys.path))


def test_a_plan_that_passes_is_measured(tmp_path: Path) -> None:
    answer = trial(tmp_path, reference_top1=0.125)
    assert answer.verdict is not None
    assert answer.verdict.passed
    assert answer.verdict.task is not None
    assert answer.verdict.task.candidate == 0.125
    assert answer.measurement is not None
    assert [one.name for one in answer.measurement.scenarios] == ["SingleStream", "Offline"]
    assert answer.placement is not None


def test_a_plan_that_moved_is_not_measured_but_where_it_ran_is_told(tmp_path: Path) -> None:
    answer = trial(tmp_path, reference_top1=1.0)
    assert answer.verdict is not None
    assert not answer.verdict.passed
    assert "top1 went from 1.0000 to 0.1250" in answer.verdict.reasons[0]
    assert answer.measurement is None
    assert answer.placement is not None
    assert answer.placement.on("CPUExecutionProvider") > 0
