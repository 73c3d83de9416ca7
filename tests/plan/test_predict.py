"""A plan's prediction: what is unknown is None, and nothing is raised for it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from fakes import models

from wavefit.model.load import load
from wavefit.model.shapes import bind
from wavefit.plan.memory import BASE_BYTES, trial_buffers
from wavefit.plan.outlook import Question, outlook
from wavefit.plan.predict import Planner, predict
from wavefit.plan.trace import trace
from wavefit.schema import Device, Figure, Link, Model, Plan, Pool, Prediction


@pytest.fixture
def model(tmp_path: Path) -> Model:
    return load(models.save(models.conv_net(), tmp_path / "net.onnx"))


def plan(model: Model, batch: int = 1, route: str = "ort_cpu", **others: object) -> Plan:
    return Plan(route=route, device="d", batch=batch, shapes=bind(model, batch), **others)  # type: ignore[arg-type]


def card(**peaks: float) -> Device:
    figures = {name: Figure(value=value, unit="", source="invented") for name, value in peaks.items()}
    return Device(
        id="d",
        kind="gpu",
        integrated=False,
        peaks=figures,
        link=Link(speed_gts=16.0, width=16),
        memory=(Pool(name="vram", total_bytes=8 << 30, source="invented"),),
    )


def test_a_gpu_of_which_nothing_is_known(model: Model) -> None:
    found = predict(model, Device(id="d", kind="gpu"), plan(model, route="torch_gpu"))
    assert found is not None
    assert found.peak_bytes is not None
    times = (found.compute_s, found.memory_s, found.transfer_s, found.launch_s, found.total_s)
    assert times == (None,) * 5


def test_the_total_is_the_nodes_and_the_transfer(model: Model) -> None:
    device = card(fp32=1e12, bandwidth=1e11, launch_s=1e-5)
    found = predict(model, device, plan(model, route="torch_gpu"))
    assert found is not None
    assert found.launch_s == pytest.approx(4e-5)  # five nodes, of which Flatten starts nothing
    assert found.total_s is not None
    assert found.transfer_s is not None
    least = max(found.compute_s or 0, found.memory_s or 0) + found.launch_s + found.transfer_s
    assert least <= found.total_s <= least + min(found.compute_s or 0, found.memory_s or 0)


def test_a_recorded_cpu_has_no_peak_of_this_machine(model: Model) -> None:
    found = predict(model, Device(id="d", kind="cpu", name="Another CPU", compute_units=64), plan(model))
    assert found is not None
    assert found.compute_s is None
    assert found.transfer_s == 0
    assert found.total_s is None


def test_the_host_has_the_process_and_the_trials_arrays_in_it(model: Model) -> None:
    found = predict(model, Device(id="d", kind="cpu"), plan(model, 4))
    assert found is not None
    arrays = trial_buffers(trace(model, bind(model, 4)), 4)
    assert arrays == 4 * 4 * 768 + 8 * 768 + 4 * 40  # four batches, eight samples, one answer
    assert (found.peak_bytes or 0) > BASE_BYTES["ort_cpu"] + arrays + model.weight_bytes


def test_memory_never_falls_as_the_batch_grows(model: Model) -> None:
    planner = Planner(model)
    for device, route in (
        (Device(id="d", kind="cpu"), "ort_cpu"),
        (card(), "torch_gpu"),
        (card(), "ort_webgpu"),
    ):
        peaks = [
            _peak(planner.predict(device, plan(model, batch, route))) for batch in (1, 2, 8, 64, 512, 4096)
        ]
        assert peaks == sorted(peaks)
        assert peaks[-1] > peaks[0]


def _peak(found: Prediction | None) -> int:
    assert found is not None
    assert found.peak_bytes is not None
    return found.peak_bytes


def test_shapes_that_do_not_go_through_the_graph_give_none(model: Model) -> None:
    wrong = msgspec.structs.replace(plan(model), shapes={"image": (1, 5, 8, 8)})
    assert predict(model, Device(id="d", kind="cpu"), wrong) is None


def test_the_largest_batch_fits_and_is_found(model: Model) -> None:
    answer = outlook(Planner(model), Question(device=card(), cpu=None, sizes={}, batches=(1,)))
    assert answer.largest_batch is not None
    near = (answer.largest_batch, answer.largest_batch + 1)
    asked = Question(device=card(), cpu=None, sizes={}, batches=near)
    fits = [at.fits for at in outlook(Planner(model), asked).batches]
    assert fits == [True, False] or answer.largest_batch == 1 << 16


def test_a_frozen_batch_has_no_largest(tmp_path: Path) -> None:
    model = load(models.save(models.conv_net(batch=3), tmp_path / "net.onnx"))
    answer = outlook(Planner(model), Question(device=card(), cpu=None, sizes={}))
    assert answer.largest_batch is None
    assert [at.batch for at in answer.batches] == [3]
