"""Scenarios with sessions whose time is known, against LoadGen's own records and against arithmetic."""

from __future__ import annotations

import itertools
import re
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from fakes import models
from fakes.sessions import Failing, Overlapping, Sleeping, batches, ort_session

from wavefit.bench import loadgen, scenarios
from wavefit.bench.loadgen import read_trace
from wavefit.bench.system import Subject, System
from wavefit.errors import InputError, RouteError
from wavefit.schema import Load, ScenarioName, ScenarioResult

ALL: tuple[ScenarioName, ...] = ("SingleStream", "MultiStream", "Offline", "Server")


def _subject(session: Sleeping, batch: int, batch_s: float | None = None) -> Subject:
    return Subject(session, batches(batch), batch, session.seconds(0) if batch_s is None else batch_s)


def _run(name: ScenarioName, session: Sleeping, batch: int, **load: float) -> ScenarioResult:
    return scenarios.run(name, _subject(session, batch), Load(**{"duration_s": 0.4, **load}))


# ---- What the figures mean ------------------------------------------------------------------------------------------


def test_single_stream_times_whole_batches() -> None:
    session = Sleeping(0.02)
    result = _run("SingleStream", session, batch=4)
    assert result.name == "SingleStream"
    assert result.queries == len(session.given) == len(result.latencies_s)
    assert result.samples == 4 * result.queries
    assert result.latency.min_s >= 0.02
    assert result.duration_s >= 0.4
    assert result.throughput_per_s == pytest.approx(result.samples / result.duration_s)
    assert result.throughput_per_s <= 4 / 0.02


def test_offline_runs_whole_batches_and_is_bounded() -> None:
    session = Sleeping(0.02)
    result = _run("Offline", session, batch=4)
    # 0.4 s of 20 ms are 20 batches; LoadGen's slack is 1.1, ours 1.15: 25.3, so 26 batches and no more
    assert len(session.given) == 26
    assert (result.queries, result.samples) == (1, 4 * 26)
    assert len(result.latencies_s) == 26
    assert result.latency.min_s >= 0.02
    assert result.throughput_per_s <= 4 / 0.02
    assert result.valid, result.reasons


def test_offline_of_a_slow_model_is_a_few_batches() -> None:
    session = Sleeping(0.3)
    result = scenarios.run("Offline", _subject(session, 2), Load(duration_s=0.1))
    assert len(session.given) == 3
    assert result.samples == 6


def test_offline_streams_and_a_batch_lasts_from_being_taken_to_being_answered() -> None:
    """Two are under way at any time: their latency is twice what their throughput says."""
    session = Overlapping(0.02)
    result = _run("Offline", session, batch=4)
    assert len(session.given) == len(result.latencies_s) == 26
    assert sorted(result.latencies_s)[1] >= 0.04  # the last one has nobody behind it
    assert result.duration_s >= 26 * 0.02
    assert result.throughput_per_s == pytest.approx(4 * 26 / result.duration_s)


def test_offline_that_was_estimated_too_slow_is_run_again_for_long_enough() -> None:
    result = scenarios.run("Offline", _subject(Sleeping(0.001), 2, batch_s=0.1), Load(duration_s=0.4))
    # By the estimate alone 12 items would be run; how long the second run lasts is up to a busy machine.
    assert result.samples >= 100


@pytest.mark.parametrize(("batch", "items", "runs"), [(1, 8, 8), (3, 8, 3), (16, 16, 1)])
def test_multi_stream_times_eight_items_or_a_batch(batch: int, items: int, runs: int) -> None:
    session = Sleeping(0.004)
    result = _run("MultiStream", session, batch, duration_s=0.2)
    assert len(session.given) == runs * result.queries
    assert result.samples == items * result.queries
    assert len(result.latencies_s) == result.queries
    assert result.latency.min_s >= runs * 0.004


def test_multi_stream_is_held_to_the_target_latency() -> None:
    missed = _run("MultiStream", Sleeping(0.004), batch=8, duration_s=0.1, target_latency_s=0.001)
    assert not missed.valid
    assert "over the target latency of 1 ms" in " ".join(missed.reasons)
    assert missed.target_latency_s == 0.001
    met = _run("MultiStream", Sleeping(0.004), batch=8, duration_s=0.1, target_latency_s=60.0)
    assert "over the target" not in " ".join(met.reasons)


def test_server_with_room_to_spare_is_valid() -> None:
    session = Sleeping(0.001)
    result = _run("Server", session, batch=16, duration_s=1.0, target_qps=700.0, target_latency_s=2.0)
    assert result.valid, result.reasons
    assert result.reasons == ()
    assert (result.target_qps, result.target_latency_s) == (700.0, 2.0)
    assert result.samples == result.queries == len(result.latencies_s)
    assert result.latency.min_s >= 0.001


def test_server_runs_together_what_waits() -> None:
    session = Sleeping(0.02)
    result = _run("Server", session, batch=4, target_qps=150.0, target_latency_s=5.0)
    assert result.queries / 4 <= len(session.given) < result.queries


def test_server_above_capacity_is_not_valid_and_ends() -> None:
    session = Sleeping(0.02)
    result = _run("Server", session, batch=4, target_qps=5000.0, target_latency_s=0.05)
    assert not result.valid
    said = " ".join(result.reasons)
    assert "Too many outstanding queries" in said
    assert "Reduce target QPS" in said
    assert "Increase the target QPS" not in said
    assert result.throughput_per_s <= 4 / 0.02
    # 200 items a second for 0.4 s may wait; 2,000 would have come
    assert result.queries < 500
    assert result.latency.max_s > 0.05


def test_server_says_what_it_chose() -> None:
    result = _run("Server", Sleeping(0.01), batch=2)
    # 70 % of what two items in 10 ms give, less the 0.2 ms that handing a query over takes.
    assert result.target_qps == pytest.approx(0.7 * 2 / 0.0102)
    assert result.target_latency_s == pytest.approx(0.1)
    said = " ".join(result.reasons)
    assert "no target qps given: 137.3" in said
    assert "no target latency given: 100 ms" in said


@pytest.mark.parametrize("name", ALL)
def test_a_session_never_changes_threads_and_batches_are_not_copied(name: ScenarioName) -> None:
    session = Sleeping(0.002)
    subject = _subject(session, 2)
    scenarios.run(name, subject, Load(duration_s=0.1))
    assert session.threads == {threading.get_ident()}
    own = {id(batch["x"]) for batch in subject.batches}
    assert {id(array) for array in session.given} == own


# ---- Against LoadGen's own records ----------------------------------------------------------------------------------


def test_our_latencies_are_loadgens(tmp_path: Path) -> None:
    """Each of our times lies within LoadGen's of the same query, and nearly fills it."""
    session = ort_session(models.conv_net(size=32), tmp_path)
    random = np.random.default_rng(0)
    inputs = [{"image": random.random((8, 3, 32, 32), dtype=np.float32)} for _ in range(2)]
    system = System(Subject(session, inputs, 8, 0.001))
    settings = {"min_duration_ms": 300, "min_query_count": 3, "single_stream_expected_latency_ns": 20_000}
    test = loadgen.Test("SingleStream", settings, len(inputs), trace=True)
    report = loadgen.run(test, lambda ids, places: system.answer(ids, places[0]))
    ours, theirs = np.array(system.latencies_s()), np.array(report.latencies_s)
    assert len(ours) == len(theirs) == report.results["result_query_count"]
    assert (ours <= theirs + 1e-6).all()
    assert np.median(theirs - ours) < 0.001
    # the trace is LoadGen's summary, sample by sample
    assert theirs.min() == pytest.approx(report.results["result_min_latency_ns"] / 1e9, abs=1e-9)
    assert theirs.max() == pytest.approx(report.results["result_max_latency_ns"] / 1e9, abs=1e-9)
    assert theirs.mean() == pytest.approx(report.results["result_mean_latency_ns"] / 1e9, abs=2e-9)


def test_server_counts_from_when_a_query_was_due() -> None:
    """A query that was issued late was late: LoadGen's issuing thread is held up, the latency shows it."""

    def issue(ids: list[int], places: list[int]) -> None:
        time.sleep(0.05)  # every query takes 50 ms to hand over, one is due every 10 ms
        loadgen.completer()(ids)

    settings = {
        "min_duration_ms": 200,
        "min_query_count": 3,
        "server_target_qps": 100.0,
        "server_target_latency_ns": 1,
    }
    report = loadgen.run(loadgen.Test("Server", settings, 1, trace=True), issue)
    assert len(report.latencies_s) == report.results["result_query_count"]
    assert max(report.latencies_s) > 0.05 * len(report.latencies_s) / 2


def test_arrivals_are_a_poisson_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gaps between due times are exponential: standard deviation = mean, and 63 % of them are below the mean."""
    traces: list[str] = []
    monkeypatch.setattr(loadgen, "read_trace", lambda text: traces.append(text) or read_trace(text))
    result = _run("Server", Sleeping(0.001), batch=8, duration_s=2.0, target_qps=250.0, target_latency_s=5.0)
    due = [float(when) for when in re.findall(r'"name":"Latency".*?"ts":([0-9.]+)', traces[0])]
    assert len(due) == result.queries
    gaps = np.diff(sorted(due)) / 1e6
    assert gaps.mean() == pytest.approx(1 / 250, rel=0.15)
    assert gaps.std() / gaps.mean() == pytest.approx(1.0, abs=0.15)
    assert (gaps < gaps.mean()).mean() == pytest.approx(1 - np.exp(-1), abs=0.06)


# ---- The seed -------------------------------------------------------------------------------------------------------


def _order(seed: int) -> list[float]:
    session = Sleeping(0.001)
    scenarios.run("SingleStream", _subject(session, 2), Load(duration_s=0.5, seed=seed))
    assert len(session.given) > 12
    return [float(array[0, 0]) for array in session.given[:12]]


def test_the_order_of_queries_follows_the_seed() -> None:
    assert _order(7) == _order(7)
    assert _order(7) != _order(8)
    assert _order(-1) == _order(2**32 - 1)


def test_the_servers_arrivals_follow_the_seed() -> None:
    load = {"target_qps": 500.0, "target_latency_s": 5.0}
    counts = [_run("Server", Sleeping(0.001), 8, seed=seed, **load).queries for seed in (1, 1, 2, 3, 4)]
    assert counts[0] == counts[1]
    assert len(set(counts)) > 1


# ---- Failures -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("good", [0, 5])
def test_a_failing_runtime_ends_the_scenario_with_its_error(name: ScenarioName, good: int) -> None:
    session = Failing(good, RouteError("the device is lost"))
    with pytest.raises(RouteError, match="the device is lost"):
        scenarios.run(name, _subject(session, 2), Load(duration_s=0.1))
    assert session.attempts == good + 1  # nothing is run after a failure
    after = _run(name, Sleeping(0.002), batch=2, duration_s=0.1)  # LoadGen still works in this process
    assert after.queries >= 1


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("error", [ValueError("a bug"), KeyboardInterrupt(), MemoryError("full")])
def test_any_other_error_comes_out_as_itself(name: ScenarioName, error: BaseException) -> None:
    with pytest.raises(type(error)):
        scenarios.run(name, _subject(Failing(2, error), 2), Load(duration_s=0.1))


def test_a_missing_loadgen_is_refused_with_the_way_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlperf_loadgen", None)
    with pytest.raises(RouteError) as caught:
        _run("SingleStream", Sleeping(0.001), batch=1)
    assert "MLPerf LoadGen cannot be imported" in caught.value.reason
    assert "pip install 'wavefit[loadgen]'" in caught.value.fix
    assert "compiler" in caught.value.fix


@pytest.mark.parametrize(
    ("load", "words"),
    [
        (Load(duration_s=0), "the duration is 0"),
        (Load(duration_s=-1.0), "the duration is -1"),
        (Load(duration_s=float("nan")), "the duration is nan"),
        (Load(duration_s=float("inf")), "the duration is inf"),
        (Load(target_qps=0.0), "the target qps is 0"),
        (Load(target_latency_s=-0.1), "the target latency is -0.1"),
        (Load(target_qps=1e9), "more than 1,000,000 queries"),
    ],
)
def test_a_load_out_of_range_is_the_users_error(load: Load, words: str) -> None:
    session = Sleeping(0.001)
    with pytest.raises(InputError, match=words):
        scenarios.run("Server", _subject(session, 1), load)
    assert session.given == []


# ---- What LoadGen leaves behind and reads ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
def test_nothing_is_printed_or_left_behind(
    name: ScenarioName, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    _run(name, Sleeping(0.002), batch=2, duration_s=0.1)
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr() == ("", "")


def test_an_audit_file_in_the_current_folder_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "audit.config").write_text("*.*.min_query_count = 40\n")
    monkeypatch.chdir(tmp_path)
    assert _run("SingleStream", Sleeping(0.03), batch=1, duration_s=0.1).queries < 40


def test_a_run_that_was_too_short_says_so_in_loadgens_words() -> None:
    result = _run("SingleStream", Sleeping(0.05), batch=1, duration_s=0.2)
    assert not result.valid
    assert result.reasons == (
        f"Only processed {result.queries} queries. Need to process at least 64 queries for early stopping.",
    )


def test_queries_are_spread_over_all_batches() -> None:
    session = Sleeping(0.001)
    _run("Offline", session, batch=2, duration_s=0.1)
    firsts = [float(array[0, 0]) for array in session.given]
    assert firsts == list(itertools.islice(itertools.cycle([0.0, 1.0, 2.0]), len(firsts)))
