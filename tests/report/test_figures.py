"""Figures as people read them."""

from __future__ import annotations

import math

import pytest

from wavefit.report import figures


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0123456, "0.0123"),
        (51.24, "51.2"),
        (999.6, "1,000"),
        (12345.0, "12,300"),
        (3.0, "3.00"),
        (0.0, "0"),
        (1.5e-9, "1.50e-09"),
        (math.inf, "inf"),
        (math.nan, "nan"),
        (None, "—"),
    ],
)
def test_significant(value: float | None, text: str) -> None:
    assert figures.significant(value) == text


@pytest.mark.parametrize(
    "show",
    [
        figures.ms,
        figures.duration,
        figures.rate,
        figures.size,
        figures.watts,
        figures.energy,
        figures.error,
        figures.count,
        figures.share,
    ],
)
def test_what_was_not_measured_is_a_dash_and_zero_is_not(show: object) -> None:
    assert callable(show)
    assert show(None) == "—"
    assert "—" not in show(0)
    assert "0" in show(0)


def test_units() -> None:
    assert figures.ms(0.0071) == "7.10 ms"
    assert figures.duration(90.0) == "90.0 s"
    assert figures.size(412 * 2**20) == "412 MiB"
    assert figures.size(3 * 2**29) == "1.50 GiB"
    assert figures.size(17) == "17 B"
    assert figures.energy(0.16) == "160 mJ"
    assert figures.energy(1.82) == "1.82 J"
    assert figures.si(8.3e12, "FLOP/s") == "8.30 TFLOP/s"


def test_a_share_reads_100_percent_only_where_it_is_all() -> None:
    assert figures.share(1.0) == "100 %"
    assert figures.share(0.999999) == "99.99 %"


def test_ratio_to_nothing_is_not_known() -> None:
    assert figures.ratio(1.0, None) == "—"
    assert figures.ratio(1.0, 0.0) == "—"
    assert figures.ratio(3.0, 2.0) == "1.50\N{MULTIPLICATION SIGN}"
