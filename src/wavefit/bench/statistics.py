"""What is told of a list of latencies."""

from __future__ import annotations

from collections.abc import Sequence

from wavefit.schema import Percentiles

KEPT = 2_000
"""Raw latencies kept of one scenario."""


def percentiles(latencies_s: Sequence[float]) -> Percentiles:
    """Percentiles by nearest rank: the smallest latency that at least p % of all do not exceed.

    Always one of the measured values (numpy's ``inverted_cdf``). LoadGen's own summary takes the value at the
    0-based index ``floor(n * p)``, which is one rank higher where ``n * p`` is whole.

    Args:
        latencies_s: at least one, in any order, in seconds.
    """
    ranked = sorted(latencies_s)
    return Percentiles(
        p50_s=_ranked(ranked, 50),
        p90_s=_ranked(ranked, 90),
        p95_s=_ranked(ranked, 95),
        p99_s=_ranked(ranked, 99),
        mean_s=sum(ranked) / len(ranked),
        min_s=ranked[0],
        max_s=ranked[-1],
    )


def median(values: Sequence[float]) -> float:
    """The 50th percentile by nearest rank."""
    return _ranked(sorted(values), 50)


def thin(latencies_s: Sequence[float], most: int = KEPT) -> tuple[float, ...]:
    """At most ``most`` of them, evenly spaced and in order, the first among them."""
    count = len(latencies_s)
    if count <= most:
        return tuple(latencies_s)
    return tuple(latencies_s[index * count // most] for index in range(most))


def _ranked(ranked: Sequence[float], percent: int) -> float:
    rank = -(-len(ranked) * percent // 100)  # rounded up, in whole numbers: 0.95 * n has a rounding error
    return ranked[rank - 1]
