"""The distance that graphs are ranked by, held to numpy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx_ir")
pytest.importorskip("onnxruntime")

from fakes.models import mlp, save

from wavefit.guard.reference import make_reference
from wavefit.model.load import load
from wavefit.model.samples import random_samples
from wavefit.precision import graph
from wavefit.precision.linear import linears
from wavefit.precision.search.distance import ITEMS, Distance
from wavefit.precision.search.evaluate import Judge


def test_it_is_of_all_items_together_and_the_guards_is_of_the_worst(tmp_path: Path) -> None:
    model = load(save(mlp(widths=(8, 4)), tmp_path / "m.onnx"))
    samples = random_samples(model, {}, 40, 0)
    plain = graph.load(Path(model.path))
    changed = graph.copy(plain)
    [layer] = linears(changed)
    layer.set_matrix((layer.matrix() * np.float32(1.01)).astype(np.float32))
    [name] = [spec.name for spec in model.inputs]
    right, moved = (graph.Runner(each)({name: samples.inputs[name]}) for each in (plain, changed))
    (want,), (have,) = right.values(), moved.values()
    expected = np.linalg.norm(have - want) / np.linalg.norm(want)

    run = graph.Runner(changed)
    assert Distance(model, samples, 8)(run) == pytest.approx(expected, rel=1e-5)
    judge = Judge(model, make_reference(model, samples, lambda _: None), compared=samples)
    judged = judge.numbers(changed, "int8")
    assert judged.size == judged.overall == pytest.approx(expected, rel=1e-5)
    assert judged.error is not None
    assert judged.error > expected


def test_a_large_set_is_run_in_part_and_what_is_not_finite_has_no_distance(tmp_path: Path) -> None:
    model = load(save(mlp(widths=(8, 4)), tmp_path / "m.onnx"))
    samples = random_samples(model, {}, 5 * ITEMS, 0)
    plain = graph.Runner(graph.load(Path(model.path)))
    seen = []

    def count(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        seen.append(len(next(iter(inputs.values()))))
        return plain(inputs)

    assert Distance(model, samples, 8)(count) == 0
    assert sum(seen) == ITEMS

    def nan(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {name: array * np.float32(np.nan) for name, array in plain(inputs).items()}

    assert Distance(model, samples, 8)(nan) is None
