from __future__ import annotations

import pytest
from fakes import records
from msgspec.structs import replace

from wavefit.choice import choose, cost_per_million, pareto, violations
from wavefit.schema import Constraints, Failure, Measurement, Record, Request

MIB = 2**20
CPU, GPU = records.cpu(), records.gpu()


def measured(
    p90_s: float, per_s: float, host: int = 100, device: int | None = None, **rest: object
) -> Measurement:
    single = records.scenario("SingleStream", p90_s, 1 / p90_s)
    single = replace(single, latency=replace(single.latency, p90_s=p90_s))
    offline = records.scenario("Offline", 1 / per_s, per_s)
    peak = None if device is None else device * MIB
    return records.measurement(
        0.01, scenarios=(single, offline), host_peak_bytes=host * MIB, device_peak_bytes=peak, **rest
    )


def record(route: str, p90_s: float, per_s: float, **rest: object) -> Record:
    device = CPU if route == "ort_cpu" else GPU
    return records.measured(route, device, 0.01, measurement=measured(p90_s, per_s, **rest))


SLOW = record("ort_cpu", 0.050, 25)
QUICK = record("ort_webgpu", 0.010, 120, device=300)
WIDE = record("ort_migraphx", 0.012, 400, device=600)


@pytest.mark.parametrize(
    ("objective", "winner"),
    [("latency", QUICK), ("throughput", WIDE), ("memory", SLOW)],
)
def test_each_objective_has_its_winner(objective: str, winner: Record) -> None:
    choice = choose([SLOW, QUICK, WIDE], (), Request(objective=objective))  # type: ignore[arg-type]
    assert choice.pick == winner.key


def test_the_sentence_says_what_won_over_what_and_by_how_much() -> None:
    sentence = choose([SLOW, QUICK], records.REFUSALS, Request()).sentence
    assert sentence.startswith(
        "ort_webgpu fp32 batch 1 wins on latency with p90 10 ms, 5.00 times better than ort_cpu"
    )
    assert "2 routes cannot run here (ort_directml, ort_rocm)" in sentence


def test_close_results_are_called_a_tie() -> None:
    assert "a tie within 2 %" in choose([QUICK, record("ort_cpu", 0.0101, 99)], (), Request()).sentence


def test_a_failed_plan_cannot_be_picked_and_is_named() -> None:
    moved = replace(QUICK, verdict=records.MOVED)
    crashed = replace(WIDE, failure=Failure(kind="crash", stage="open", reason="SIGSEGV"), measurement=None)
    choice = choose([SLOW, moved, crashed], (), Request())
    assert choice.pick == SLOW.key
    assert choice.runners_up == ()
    assert "ort_webgpu fp32 batch 1 failed (answers moved" in choice.sentence
    assert "ort_migraphx fp32 batch 1 failed (crash at open: SIGSEGV)" in choice.sentence


@pytest.mark.parametrize(
    ("constraints", "broken"),
    [
        (Constraints(max_latency_s=0.011), "p90 latency 12 ms misses the limit of 11 ms"),
        (
            Constraints(min_throughput_per_s=500),
            "throughput 400 inferences/s misses the limit of 500 inferences/s",
        ),
        (Constraints(max_memory_bytes=512 * MIB), "peak memory 600 MiB misses the limit of 512 MiB"),
    ],
)
def test_constraints_hold(constraints: Constraints, broken: str) -> None:
    assert violations(WIDE, Request(constraints=constraints)) == [broken]


def test_an_unknown_figure_cannot_be_shown_to_hold() -> None:
    unknown = record("ort_webgpu", 0.01, 100)  # its device memory was not measured
    limit = Request(constraints=Constraints(max_memory_bytes=512 * MIB))
    assert violations(unknown, limit) == ["peak memory was not measured"]


def test_no_plan_within_the_constraints_names_the_closest() -> None:
    choice = choose([SLOW, QUICK], (), Request(constraints=Constraints(max_latency_s=0.005)))
    assert choice.pick is None
    assert choice.sentence.startswith("No plan meets the constraints: ort_webgpu fp32 batch 1 comes closest")


def test_energy_that_was_not_measured_cannot_win() -> None:
    choice = choose([SLOW], (), Request(objective="energy"))
    assert choice.pick is None
    assert "not measured" in choice.sentence


def test_energy_is_told_with_its_meter_and_what_that_covers() -> None:
    figures = (records.power(20, 100, meter="nvml total energy", covers="card", joules_per_inference=0.2),)
    metered = record("torch_gpu", 0.01, 100, power=figures)
    sentence = choose([SLOW, metered], (), Request(objective="energy")).sentence
    assert "0.2 J per inference by nvml total energy, which covers the card" in sentence


def test_the_cpu_is_not_picked_where_a_gpu_is_required() -> None:
    alone = choose([SLOW], (), Request(require_gpu=True))
    assert alone.pick is None
    assert "its device is the CPU, and a GPU was required" in alone.sentence
    assert choose([SLOW, WIDE], (), Request(require_gpu=True)).pick == WIDE.key


def test_cost_of_a_million_inferences() -> None:
    # 400 a second are 1.44 million an hour: at 3.60 an hour a million cost 2.50.
    assert cost_per_million(WIDE, 3.60) == pytest.approx(2.5)


def test_the_pareto_set_leaves_out_what_another_beats_everywhere() -> None:
    beaten = record("torch_gpu", 0.013, 100, device=700)
    assert [each.key for each in pareto([SLOW, WIDE, QUICK, beaten])] == [QUICK.key, WIDE.key, SLOW.key]


def test_no_records_at_all() -> None:
    assert choose([], records.REFUSALS, Request()).sentence == "No route can run this model on this machine."
