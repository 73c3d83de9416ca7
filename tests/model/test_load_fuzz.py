"""Damaged models give a Model or an InputError, never another exception."""

from __future__ import annotations

import random
from pathlib import Path

import onnx
import pytest
from fakes import models

from wavefit.errors import InputError
from wavefit.model.cost import cost
from wavefit.model.load import load
from wavefit.model.shapes import bind, fixed_batch, missing_sizes

LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"


def damaged(good: bytes, chance: random.Random) -> bytes:
    """Cut at a random place, or one to twenty bytes changed."""
    if chance.random() < 0.3:
        return good[: chance.randrange(1, len(good))]
    bad = bytearray(good)
    for _ in range(chance.choice((1, 1, 2, 5, 20))):
        bad[chance.randrange(len(bad))] = chance.randrange(256)
    return bytes(bad)


def attempt(path: Path) -> bool:
    """Whether it was loaded and its cost counted."""
    said = ""
    try:
        model = load(path)
        if not missing_sizes(model):
            cost(model, bind(model, fixed_batch(model) or 1))
    except InputError as error:
        said = str(error)
    assert len(said.splitlines()) <= 1
    return not said


@pytest.mark.parametrize("source", ["conv_net", "light_squeezenet", "light_shufflenet"])
def test_damage_is_refused_or_harmless(tmp_path: Path, source: str) -> None:
    good = (
        models.conv_net().SerializeToString()
        if source == "conv_net"
        else (LIGHT / f"{source}.onnx").read_bytes()
    )
    chance = random.Random(source)
    path = tmp_path / "m.onnx"
    results = []
    for _ in range(150):
        path.write_bytes(damaged(good, chance))
        results.append(attempt(path))
    assert False in results


@pytest.mark.parametrize("file", ["m.onnx", "weights.data"])
def test_damage_to_a_model_with_external_data(tmp_path: Path, file: str) -> None:
    models.save_external(models.mlp(), tmp_path / "m.onnx")
    good = (tmp_path / file).read_bytes()
    chance = random.Random(file)
    results = []
    for _ in range(100):
        (tmp_path / file).write_bytes(damaged(good, chance))
        results.append(attempt(tmp_path / "m.onnx"))
    assert False in results
