"""The pictures' geometry: where a plan stands, and which percentiles a curve can tell."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from wavefit.report.plots import NARROW, WIDE, Curve, Point, _quantiles, pareto, percentiles

POINTS = [
    Point(number=1, label="a", latency_s=0.005, per_s=200.0, role="pick", sweep="a"),
    Point(number=2, label="b", latency_s=0.050, per_s=400.0, role="front", sweep="b"),
    Point(number=3, label="c", latency_s=0.500, per_s=20.0, role="passed", sweep="c"),
    Point(number=4, label="d <&>", latency_s=0.004, per_s=300.0, role="moved", sweep="d"),
]


def circles(svg: str) -> dict[str, tuple[float, float]]:
    """Each dot's place by its number."""
    found = re.findall(
        r'<circle cx="([\d.]+)" cy="([\d.]+)"[^>]*/><title>[^<]*</title><text [^>]*>(\d+)<', svg
    )
    return {number: (float(x), float(y)) for x, y, number in found}


@pytest.mark.parametrize("size", [WIDE, NARROW])
def test_dots_stand_by_latency_and_throughput(size: tuple[int, int]) -> None:
    svg = str(pareto(POINTS, size))
    dots = circles(svg)
    assert sorted(dots, key=lambda number: dots[number][0]) == [
        "4",
        "1",
        "2",
        "3",
    ]  # latency rises to the right
    assert sorted(dots, key=lambda number: -dots[number][1]) == [
        "3",
        "1",
        "4",
        "2",
    ]  # throughput rises upwards
    # On a logarithmic axis a factor of ten is the same distance everywhere.
    assert dots["2"][0] - dots["1"][0] == pytest.approx(dots["3"][0] - dots["2"][0], rel=1e-3)
    width, height = size
    assert all(0 < x < width and 0 < y < height for x, y in dots.values())


def test_lines_join_the_batches_of_one_series_only() -> None:
    assert 'class="series sweep"' not in str(pareto(POINTS, WIDE))
    second = Point(number=5, label="a batch 2", latency_s=0.009, per_s=230.0, role="passed", sweep="a")
    assert 'class="series sweep"' in str(pareto([*POINTS, second], WIDE))


def test_labels_are_escaped() -> None:
    ElementTree.fromstring(str(pareto(POINTS, WIDE)))
    ElementTree.fromstring(str(percentiles([Curve("<b>&", [0.1, 0.2], "curve-0")], WIDE)))


@pytest.mark.parametrize("count", [1, 2, 9, 100, 2000])
def test_a_curve_goes_no_further_than_its_latencies_can_tell(count: int) -> None:
    latencies = np.random.default_rng(0).lognormal(-4, 0.5, count)
    line = _quantiles(latencies.tolist())
    tail = line[-1][0]
    assert tail <= max(np.log10(count), 0.3) + 1e-9
    assert tail <= 3
    assert line[0][1] == latencies.min()
    for place, value in line:
        share = 1 - 10**-place
        expected = np.quantile(latencies, share, method="higher")
        lower = np.quantile(latencies, share, method="lower")
        neighbours = np.sort(latencies)[: int(np.ceil(share * count)) + 1]
        assert lower <= value <= max(expected, neighbours[-1])


@pytest.mark.parametrize("latencies", [[0.01], [0.01, 0.01], [0.01, 10.0]])
def test_one_latency_or_equal_ones_still_make_a_picture(latencies: list[float]) -> None:
    assert "<svg" in str(percentiles([Curve("a", latencies, "curve-0")], NARROW))
