"""Measuring an opened session: real ONNX Runtime sessions, and sessions whose time is known."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from fakes import models
from fakes.sessions import Failing, Sleeping, batches, ort_session

from wavefit.bench.measure import Opened, measure
from wavefit.bench.warmup import other_batch, warm_up
from wavefit.device.power import Covers
from wavefit.errors import InputError, RouteError
from wavefit.routes.session import Arrays, Session
from wavefit.schema import Load, Measurement, Plan, Power, TensorSpec, decode, encode

QUICK = Load(duration_s=0.1)
ONCE = Opened(load_s=0.5, first_run_s=0.25)


def _plan(batch: int) -> Plan:
    return Plan(route="ort_cpu", device="cpu", batch=batch, shapes={})


def _measure(
    session: Session,
    inputs: Sequence[Arrays],
    load: Load = QUICK,
    meters: Sequence[Meter] = (),
    opened: Opened = ONCE,
) -> tuple[Measurement, list[str]]:
    said: list[str] = []
    batch = len(next(iter(inputs[0].values())))
    return measure(session, _plan(batch), inputs, load, meters, said.append, opened), said


class Meter:
    """Counts; tells ``joules`` for the whole, or nothing where that is None."""

    name = "test"
    covers: Covers = "chip"

    def __init__(self, joules: float | None) -> None:
        self.joules = joules
        self.calls: list[object] = []

    def start(self) -> None:
        self.calls.append("start")

    def stop(self, inferences: int) -> Power | None:
        self.calls.append(inferences)
        if self.joules is None:
            return None
        return Power(
            meter="test", covers="chip", joules=self.joules, joules_per_inference=self.joules / inferences
        )


# ---- A real runtime -------------------------------------------------------------------------------------------------


def test_a_real_session_is_measured_in_every_scenario(tmp_path: Path) -> None:
    session = ort_session(models.conv_net(size=16), tmp_path)
    random = np.random.default_rng(0)
    inputs = [{"image": random.random((4, 3, 16, 16), dtype=np.float32)} for _ in range(3)]
    load = Load(scenarios=("SingleStream", "Offline", "MultiStream", "Server"), duration_s=0.2)
    told, said = _measure(session, inputs, load)
    assert said == [
        "warm-up",
        "SingleStream 0.2 s",
        "Offline 0.2 s",
        "MultiStream 0.2 s",
        "Server 0.2 s",
        "another batch",
    ]
    assert [result.name for result in told.scenarios] == list(load.scenarios)
    for result in told.scenarios:
        latency = result.latency
        assert (
            0
            < latency.min_s
            <= latency.p50_s
            <= latency.p90_s
            <= latency.p95_s
            <= latency.p99_s
            <= latency.max_s
        )
        assert len(result.latencies_s) <= 2000
        assert result.throughput_per_s == pytest.approx(result.samples / result.duration_s)
    assert told.new_shape_s is not None
    assert told.new_shape_s > 0
    assert told.host_peak_bytes is not None
    assert told.host_peak_bytes > 10 << 20  # Python, numpy and ONNX Runtime are in memory
    assert told.device_peak_bytes is None  # the CPU provider does not tell
    assert (told.load_s, told.first_run_s) == (0.5, 0.25)
    assert decode(encode(told), Measurement) == told
    session.close()


def test_a_fixed_batch_has_no_other_shape(tmp_path: Path) -> None:
    session = ort_session(models.mlp(batch=2), tmp_path)
    inputs = [{"x": np.random.default_rng(0).random((2, 16), dtype=np.float32)}]
    told, said = _measure(session, inputs)
    assert told.new_shape_s is None
    assert "another batch" not in said


def test_inputs_of_another_shape_are_the_users_error() -> None:
    with pytest.raises(InputError, match="shape"):
        _measure(Sleeping(0.001), [{"x": np.ones((2, 5), dtype=np.float32)}])


# ---- Another batch --------------------------------------------------------------------------------------------------


def test_another_batch_is_run_last_and_the_session_left_at_the_plans() -> None:
    session = Sleeping(0.002)
    _measure(session, batches(3))
    sizes = [len(array) for array in session.given]
    assert sizes[-2:] == [2, 3]
    assert set(sizes[:-2]) == {3}


def test_a_slow_first_run_is_not_repeated_at_another_batch() -> None:
    session = Sleeping(0.002)
    told, said = _measure(session, batches(3), opened=Opened(load_s=1.0, first_run_s=243.0))
    assert told.new_shape_s is None
    assert said[-1] == "another batch is not tried, as the first run was slow"
    assert {len(array) for array in session.given} == {3}


def test_a_runtime_that_takes_no_other_batch_is_still_measured() -> None:
    class OneBatch(Sleeping):
        def _run_impl(self, inputs):  # type: ignore[no-untyped-def]
            if len(inputs["x"]) != 3:
                raise RouteError("compiled for batch 3")
            return super()._run_impl(inputs)

    told, said = _measure(OneBatch(0.002), batches(3))
    assert told.new_shape_s is None
    assert said[-1] == "another batch failed: compiled for batch 3"
    assert len(told.scenarios) == 2


def _spec(name: str, *shape: int | str | None) -> TensorSpec:
    return TensorSpec(name=name, dtype="float32", shape=shape)


def test_another_batch_has_one_item_less_or_two() -> None:
    three = {"a": np.arange(6).reshape(3, 2), "b": np.arange(3)}
    specs = (_spec("a", "N", 2), _spec("b", "N"))
    less = other_batch(specs, three)
    assert less is not None
    assert {name: array.tolist() for name, array in less.items()} == {"a": [[0, 1], [2, 3]], "b": [0, 1]}
    two = other_batch(specs, {"a": np.array([[5, 6]]), "b": np.array([7])})
    assert two is not None
    assert {name: array.tolist() for name, array in two.items()} == {"a": [[5, 6], [5, 6]], "b": [7, 7]}


def test_inputs_without_a_batch_axis_stay_as_they_are_at_another_batch() -> None:
    specs = (_spec("a", "N", 2), _spec("scale"), _spec("table", 5, 2))
    table = np.arange(10).reshape(5, 2)
    less = other_batch(specs, {"a": np.arange(6).reshape(3, 2), "scale": np.array(2.0), "table": table})
    assert less is not None
    assert less["a"].tolist() == [[0, 1], [2, 3]]
    assert (less["scale"], less["table"].tolist()) == (2.0, table.tolist())


@pytest.mark.parametrize(
    "specs",
    [
        (_spec("a", 3, 2), _spec("b", 3)),  # fixed
        (_spec("a", "N", 2), _spec("b", "M")),  # not the same size
        (_spec("a", None, 2), _spec("b", None)),  # unknown: the two may differ
        (TensorSpec(name="a", dtype="float32", shape=None),),
    ],
)
def test_no_other_batch_where_the_model_does_not_say_that_it_has_one(specs: tuple[TensorSpec, ...]) -> None:
    assert other_batch(specs, {"a": np.zeros((3, 2)), "b": np.zeros(3)}) is None


# ---- Meters ---------------------------------------------------------------------------------------------------------


def test_meters_run_over_the_scenarios_and_are_told_of_every_item() -> None:
    meters = [Meter(12.0), Meter(None), Meter(3.0)]
    session = Sleeping(0.002)
    told, _ = _measure(session, batches(4), meters=meters)
    items = sum(result.samples for result in told.scenarios)
    assert [meter.calls for meter in meters] == [["start", items]] * 3
    assert [power.joules for power in told.power] == [12.0, 3.0]
    assert told.power[0].joules_per_inference == pytest.approx(12.0 / items)


def test_meters_are_stopped_after_a_failure() -> None:
    meter = Meter(None)

    class LostOnceMetered(Sleeping):
        def _run_impl(self, inputs):  # type: ignore[no-untyped-def]
            if meter.calls:
                raise RouteError("the device is lost")
            return super()._run_impl(inputs)

    with pytest.raises(RouteError, match="the device is lost"):
        _measure(LostOnceMetered(0.002), batches(2), meters=[meter])
    assert meter.calls == ["start", 0]


# ---- Bad loads, memory ----------------------------------------------------------------------------------------------


def test_a_bad_load_is_refused_before_anything_runs() -> None:
    session = Sleeping(0.001)
    with pytest.raises(InputError, match="the duration is 0"):
        _measure(session, batches(1), Load(duration_s=0))
    assert session.given == []


def test_the_callers_host_peak_is_kept() -> None:
    told, _ = _measure(
        Sleeping(0.001), batches(1), opened=Opened(load_s=0, first_run_s=0, host_peak_bytes=123)
    )
    assert told.host_peak_bytes == 123


def test_the_sessions_device_peak_is_told() -> None:
    class OnDevice(Sleeping):
        def _device_peak_bytes_impl(self) -> int | None:
            return 7_000_000

    assert _measure(OnDevice(0.001), batches(1))[0].device_peak_bytes == 7_000_000


# ---- Warm-up --------------------------------------------------------------------------------------------------------


def test_warm_up_ends_when_the_time_is_steady() -> None:
    session = Sleeping(0.02)
    told = warm_up(session, batches(2), most_s=20.0)
    assert told.settled
    assert 10 <= told.runs == len(session.given)
    assert told.batch_s >= 0.02


def test_warm_up_outlasts_slow_first_runs() -> None:
    faster = warm_up(Sleeping([0.08, 0.06, 0.04, 0.02, 0.02, 0.002]), batches(2), most_s=20.0)
    assert faster.settled
    assert faster.runs > 10
    assert 0.002 <= faster.batch_s < 0.02


def test_warm_up_that_never_settles_is_bounded() -> None:
    session = Sleeping([0.002 * 1.2**run for run in range(60)])
    told = warm_up(session, batches(2), most_s=0.5)
    assert not told.settled
    assert told.runs == len(session.given) <= 40


def test_warm_up_that_never_settles_is_not_called_steady() -> None:
    session = Sleeping([0.002 * 1.2**run for run in range(10)] + [0.001])
    told, _ = _measure(session, batches(1), Load(duration_s=0.05))
    assert told.steady_after_runs is None


def test_warm_up_of_a_slow_model_takes_single_runs() -> None:
    told = warm_up(Sleeping(0.05), batches(1), most_s=0.01)
    assert told.runs == 2  # each run is a window: there is time for no more
    assert told.batch_s >= 0.05


def test_warm_up_is_bounded_in_runs() -> None:
    told = warm_up(Sleeping([0.001 * 1.02**run for run in range(400)]), batches(1), most_s=60.0, most_runs=50)
    assert told.runs < 150


def test_warm_up_hands_on_what_the_runtime_says() -> None:
    with pytest.raises(RouteError, match="no memory"):
        warm_up(Failing(3, RouteError("no memory")), batches(1), most_s=1.0)
