import numpy as np
import pytest

from wavefit.bench.statistics import KEPT, median, percentiles, thin


@pytest.mark.parametrize("count", [1, 2, 3, 10, 19, 20, 40, 99, 100, 101, 1000, 1237])
def test_percentiles_are_numpys_inverted_cdf(count: int) -> None:
    values = np.random.default_rng(count).exponential(size=count)
    told = percentiles(values.tolist())
    for percent, value in {50: told.p50_s, 90: told.p90_s, 95: told.p95_s, 99: told.p99_s}.items():
        assert value == np.percentile(values, percent, method="inverted_cdf")
    assert told.mean_s == pytest.approx(values.mean(), rel=1e-12)
    assert (told.min_s, told.max_s) == (values.min(), values.max())
    assert median(values.tolist()) == told.p50_s


def test_percentiles_by_hand() -> None:
    """The worked example of the nearest-rank method: rank 5 of ten values is the median, rank 9 the 90th."""
    told = percentiles([10, 20, 30, 40, 50, 60, 70, 80, 90, 100])
    assert (told.p50_s, told.p90_s, told.p95_s, told.p99_s) == (50, 90, 100, 100)


def test_the_order_of_the_latencies_does_not_matter() -> None:
    assert percentiles([3.0, 1.0, 2.0]) == percentiles([1.0, 2.0, 3.0])


def test_few_latencies_are_kept_as_they_are() -> None:
    assert thin([3.0, 1.0, 2.0]) == (3.0, 1.0, 2.0)
    assert len(thin([0.0] * KEPT)) == KEPT


@pytest.mark.parametrize("count", [KEPT + 1, 2 * KEPT - 1, 2 * KEPT, 123_457])
def test_many_latencies_are_thinned_evenly_and_in_order(count: int) -> None:
    kept = np.array(thin([float(place) for place in range(count)]))
    assert len(kept) == KEPT
    gaps = np.diff(kept)
    assert kept[0] == 0
    assert gaps.min() >= count // KEPT
    assert gaps.max() <= -(-count // KEPT)
    assert count - kept[-1] <= -(-count // KEPT)
