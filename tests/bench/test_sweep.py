from __future__ import annotations

from fakes import records
from msgspec.structs import replace

from wavefit.bench.sweep import why_stop
from wavefit.schema import Failure, Record

MIB = 2**20


def at(batch: int, items_per_s: float, peak_mib: int = 100) -> Record:
    offline = records.scenario("Offline", batch / items_per_s, items_per_s, batch)
    measured = records.measurement(0.01, batch, scenarios=(offline,), host_peak_bytes=peak_mib * MIB)
    return records.measured("ort_cpu", records.cpu(), 0.01, batch=batch, measurement=measured)


def test_the_first_two_batches_are_always_tried() -> None:
    assert why_stop([], 1, None) is None
    assert why_stop([at(1, 50)], 2, None) is None


def test_it_goes_on_while_throughput_rises() -> None:
    assert why_stop([at(1, 50), at(2, 80), at(4, 120)], 8, None) is None


def test_one_batch_without_more_throughput_may_be_noise() -> None:
    assert why_stop([at(1, 50), at(2, 80), at(4, 79)], 8, None) is None


def test_it_stops_where_throughput_no_longer_rises_and_says_the_figures() -> None:
    reason = why_stop([at(1, 50), at(2, 80), at(4, 79), at(8, 81)], 16, None)
    assert reason == "throughput stopped rising: 80/s at batch 2, 81/s at batch 8"


def test_it_stops_before_a_batch_that_would_not_fit() -> None:
    # 100 MiB at 1 and 200 MiB at 2: 100 MiB a batch item, so 8 take 800 MiB.
    done = [at(1, 50, peak_mib=100), at(2, 80, peak_mib=200)]
    assert why_stop(done, 8, 801 * MIB) is None
    reason = why_stop(done, 8, 799 * MIB)
    assert reason is not None
    assert "800 MiB (predicted)" in reason


def test_the_hosts_memory_is_not_held_against_a_gpus() -> None:
    done = [
        replace(each, device=records.gpu()) for each in (at(1, 50, peak_mib=100), at(2, 80, peak_mib=200))
    ]
    assert why_stop(done, 8, 500 * MIB) is None  # nothing is known of the device's


def test_it_stops_after_running_out_of_memory() -> None:
    failure = Failure(kind="out of memory", stage="first run", reason="no more")
    broken = replace(at(2, 80), failure=failure, measurement=None)
    assert why_stop([at(1, 50), broken], 4, None) == "batch 2 already ran out of memory"


def test_a_failure_of_another_kind_does_not_end_the_sweep() -> None:
    broken = replace(
        at(2, 80), failure=Failure(kind="timeout", stage="open", reason="slow"), measurement=None
    )
    assert why_stop([at(1, 50), broken], 4, None) is None
