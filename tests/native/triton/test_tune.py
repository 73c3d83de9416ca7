"""The tuner on Triton's interpreter: what it tries is right, what it finds is kept, and nothing is measured twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from native.triton.harness import submit  # type: ignore[import-not-found]

from wavefit.native.specimens import rows, softmax


def _tuned(folder: Path, budget_s: float) -> tuple[list[Any], list[str]]:
    import torch

    from wavefit.native.triton.tune import open_store, tune

    said: list[str] = []
    device = torch.device("cpu")
    found = tune([softmax(rows(6, 40), -1)], device, folder, budget_s, said.append, folder)
    lines = open_store(device, folder).path.read_text().splitlines()
    return list(found.values()), [*said, str(len(lines))]


@pytest.fixture
def tuned(tmp_path: Path) -> Any:
    return lambda budget_s: submit(_tuned, tmp_path, budget_s)


def test_the_choice_is_no_slower_than_the_default_and_kept(tuned):
    (choice,), said = tuned(6.0)
    assert choice.template == "softmax"
    assert choice.evaluations >= 2
    assert choice.seconds <= choice.default_s
    assert said[0] == "tuning 1 of 1 operations, 6 s at most"
    (again,), later = tuned(6.0)
    assert again == choice
    assert later == [said[-1]]  # it said nothing, and wrote nothing
