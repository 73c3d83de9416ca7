"""Random numbers that try operations out: whole ranges, and requantised results that are seldom held at an end."""

from __future__ import annotations

import numpy as np
import pytest

from wavefit.native import draw, reference, specimens
from wavefit.native.opencl.selftest import data
from wavefit.native.operation import Operation

ODD = specimens.odd()


@pytest.mark.parametrize("name", ["3x3 int8 to int8", "depthwise int8 to int8"])
def test_requantised_results_show_errors(name: str) -> None:
    operation = ODD[name]
    got = reference.compute(operation, data(operation))
    assert (np.abs(got) <= 128).all()
    np.testing.assert_array_equal(got, np.rint(got))
    assert (np.abs(got) > 126).mean() < 0.25
    assert 25 < np.sqrt(np.mean(got**2)) < 80


def numbers(operation: Operation, number: int) -> np.ndarray:
    drawn = draw.numbers(operation, number, 10_000, np.random.default_rng(0))
    assert drawn is not None
    return drawn


def test_bytes_take_every_value() -> None:
    operation = ODD["3x3 int8 to int8"]
    assert {*np.unique(numbers(operation, 0))} == {*range(256)}
    assert {*np.unique(numbers(operation, 1))} == {*range(-128, 128)}


def test_floats_are_normal_and_indices_are_left_to_the_caller() -> None:
    assert abs(float(numbers(ODD["softmax"], 0).std()) - 1) < 0.05
    assert draw.numbers(ODD["words"], 1, 5, np.random.default_rng(0)) is None


def test_an_error_of_one_quantum_everywhere_is_seen() -> None:
    from wavefit.native.opencl.selftest import TOLERANCES

    operation = ODD["3x3 int8 to int8"]
    want = reference.compute(operation, data(operation))
    assert np.linalg.norm(np.ones_like(want)) / np.linalg.norm(want) > TOLERANCES["int8"]
