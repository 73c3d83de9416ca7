"""Axes: every value inside, few round ticks inside."""

from __future__ import annotations

import pytest

from wavefit.report.scale import scale


@pytest.mark.parametrize(
    "values",
    [
        [5.0],
        [1e-6],
        [40.0, 55.0],
        [10.0, 39.0],
        [1.0, 4.5],
        [0.9, 9.1],
        [7.0, 400.0],
        [1e-3, 1e6],
        [1e-9, 1e9],
        [20.0, 20.000001],
    ],
)
@pytest.mark.parametrize("most", [4, 7])
def test_values_and_ticks_lie_inside(values: list[float], most: int) -> None:
    axis = scale(values, most)
    for value in values:
        assert axis.low < axis.place(value) < axis.high
    assert 2 <= len(axis.ticks) <= most
    assert list(axis.ticks) == sorted(set(axis.ticks))
    for tick in axis.ticks:
        assert axis.low <= axis.place(tick) <= axis.high


def test_wide_spans_are_logarithmic_and_narrow_ones_are_not() -> None:
    assert scale([7.0, 400.0], 7).log
    assert not scale([40.0, 55.0], 7).log
    assert scale([7.0, 400.0], 7).ticks == (5, 10, 20, 50, 100, 200, 500)
