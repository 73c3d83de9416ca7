from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from fakes import models
from msgspec.structs import replace

import wavefit
from wavefit.bundle.read import load_bundle
from wavefit.errors import InputError, RouteError
from wavefit.pipeline import Order, bench, optimize, select, settle
from wavefit.schema import Constraints, Data, Load, Record, Request

QUICK = Load(duration_s=0.2)


class Notes:
    """Progress that is kept."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.records: list[tuple[str, bool]] = []

    def say(self, text: str) -> None:
        self.said.append(text)

    def done(self, record: Record, again: bool) -> None:
        self.records.append((record.plan.label, again))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return models.save(models.conv_net(), tmp_path_factory.mktemp("models") / "net.onnx")


def order(model: Path | str, folder: Path, **request: object) -> Order:
    made = Request(load=QUICK, routes=("ort_cpu",), **request)  # type: ignore[arg-type]
    return Order(model=str(model), request=made, folder=str(folder), command="wavefit optimize net.onnx")


def test_a_model_becomes_a_bundle_that_answers_as_onnxruntime_does(model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "net.wavefit"
    bundle, records = optimize(order(model, folder, batches=(1, 3)), Notes())
    assert [record.plan.batch for record in records] == [1, 3]
    assert all(record.passed for record in records)
    assert bundle.choice.pick in {record.key for record in records}
    assert load_bundle(folder)[0] == bundle
    assert {path.name for path in folder.iterdir()} == {
        "bundle.json",
        "model.onnx",
        "records.jsonl",
        "report.html",
    }

    image = np.random.default_rng(1).normal(size=(7, 3, 8, 8)).astype(np.float32)
    expected = onnxruntime.InferenceSession(model).run(None, {"image": image})[0]
    with wavefit.open(str(folder)) as run:
        assert run.differences == []
        np.testing.assert_allclose(run(image)["logits"], expected, rtol=1e-5, atol=1e-6)


def test_a_record_holds_what_a_reader_needs(model: Path, tmp_path: Path) -> None:
    _, (record,) = optimize(order(model, tmp_path / "net.wavefit"), Notes())
    assert record.verdict is not None
    assert record.measurement is not None
    assert record.placement is not None
    assert record.placement.on("CPUExecutionProvider") > 0
    assert record.versions["onnxruntime"] == onnxruntime.__version__
    single = record.measurement.scenario("SingleStream")
    assert single is not None
    assert single.queries > 1
    assert 0 < single.latency.p50_s <= single.latency.p90_s <= single.latency.p99_s


def test_the_same_order_again_measures_nothing_again(model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "net.wavefit"
    _, first = optimize(order(model, folder), Notes())
    notes = Notes()
    _, second = optimize(order(model, folder, batches=(1, 2)), notes)
    assert second[0] == first[0]
    assert notes.records == [("ort_cpu fp32 batch 1", True), ("ort_cpu fp32 batch 2", False)]


def test_a_prediction_stands_beside_what_was_measured(model: Path, tmp_path: Path) -> None:
    _, (record,) = optimize(order(model, tmp_path / "net.wavefit"), Notes())
    assert record.plan.predicted is not None
    assert record.plan.predicted.peak_bytes is not None
    assert record.measurement is not None
    assert record.measurement.host_peak_bytes is not None


def test_another_model_in_the_same_folder_is_measured_anew(model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "net.wavefit"
    optimize(order(model, folder), Notes())
    other = models.save(models.conv_net(seed=9), tmp_path / "net.onnx")
    notes = Notes()
    optimize(order(other, folder), notes)
    assert [again for _, again in notes.records] == [False]


def test_routes_that_cannot_run_here_are_refusals_with_a_fix(model: Path, tmp_path: Path) -> None:
    made = Order(
        model=str(model), request=Request(load=QUICK), folder=str(tmp_path / "net.wavefit"), command="wavefit"
    )
    bundle, _ = optimize(made, Notes())
    assert {refusal.route for refusal in bundle.refusals} >= {"ort_migraphx", "ort_directml", "torch_gpu"}
    assert all(refusal.reason and refusal.fix for refusal in bundle.refusals)


def test_labelled_data_guard_a_metric(tmp_path: Path) -> None:
    from wavefit import demo

    folder = Path(demo.__file__).parent
    made = order(folder / "digits.onnx", tmp_path / "d.wavefit", data=Data(path=str(folder / "digits.npz")))
    _, (record,) = optimize(made, Notes())
    assert record.verdict is not None
    task = record.verdict.task
    assert task is not None
    # examples/digits/train.py prints 0.9920 on these 500 images.
    assert (task.name, task.samples, task.reference, task.candidate) == ("top1", 500, 0.992, 0.992)


def test_a_changed_metric_is_measured_anew(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text("def good(outputs, labels):\n    return 1.0\n")
    image = np.random.default_rng(0).normal(size=(8, 3, 8, 8)).astype(np.float32)
    np.savez("data.npz", image=image, labels=np.arange(8))
    data = Data(path="data.npz", metric="mine:good")
    notes = Notes()
    for value in ("1.0", "1.0", "0.500"):  # of another length: Python tells a file by its second and size
        Path("mine.py").write_text(f"def good(outputs, labels):\n    return {value}\n")
        _, records = optimize(order(model, tmp_path / "net.wavefit", data=data), notes)
    assert [again for _, again in notes.records] == [False, True, False]
    assert records[0].verdict is not None
    assert records[0].verdict.task is not None
    assert records[0].verdict.task.candidate == 0.5


def test_bad_input_leaves_nothing_behind(model: Path, tmp_path: Path) -> None:
    data = Data(path=str(tmp_path / "none.npz"))
    with pytest.raises(InputError, match=r"none.npz does not exist"):
        optimize(order(model, tmp_path / "net.wavefit", data=data), Notes())
    assert list(tmp_path.iterdir()) == []


def test_an_earlier_bundle_survives_bad_input(model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "net.wavefit"
    bundle, _ = optimize(order(model, folder), Notes())
    with pytest.raises(InputError):
        optimize(order(tmp_path / "gone.onnx", folder), Notes())
    assert load_bundle(folder)[0] == bundle


def test_a_deadline_too_short_is_a_timeout_for_the_whole(model: Path, tmp_path: Path) -> None:
    with pytest.raises(RouteError, match="timeout"):
        optimize(order(model, tmp_path / "net.wavefit", deadline_s=0.01), Notes())


def test_a_spent_budget_skips_what_is_left_and_says_so(model: Path, tmp_path: Path) -> None:
    bundle, records = optimize(
        order(model, tmp_path / "net.wavefit", batches=(1, 2), budget_s=0.001), Notes()
    )
    assert records == []
    assert [skipped.plan.batch for skipped in bundle.skipped] == [1, 2]
    assert "budget" in bundle.skipped[0].reason


def test_bench_measures_a_bundle_again_and_writes_nothing(model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "net.wavefit"
    optimize(order(model, folder), Notes())
    before = sorted(tmp_path.rglob("*"))
    records, refusals = bench(
        Order(model=str(folder), request=Request(load=QUICK), folder="", command=""), Notes()
    )
    assert [record.plan.route for record in records] == ["ort_cpu"]
    assert refusals == ()
    assert sorted(tmp_path.rglob("*")) == before


def test_unknown_devices_and_routes_are_bad_input(model: Path) -> None:
    from wavefit.device.probe import probe
    from wavefit.model.load import load

    with pytest.raises(InputError, match=r"no device 'gpu7' here.*cpu"):
        select(probe(), ("gpu7",))
    with pytest.raises(InputError, match=r"no route 'tensorrt'.*ort_cpu"):
        settle(Request(routes=("tensorrt",)), load(model))


def test_a_frozen_batch_is_the_only_one_that_is_tried(tmp_path: Path) -> None:
    from wavefit.model.load import load

    frozen = load(models.save(models.conv_net(batch=4), tmp_path / "frozen.onnx"))
    assert settle(Request(), frozen).batches == (4,)
    with pytest.raises(InputError, match="dynamic-batch"):
        settle(Request(batches=(1, 2)), frozen)


def test_a_run_that_picks_nothing_leaves_an_earlier_bundle_as_it_was(model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "net.wavefit"
    first, _ = optimize(order(model, folder), Notes())
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    again = order(model, folder)
    hopeless = replace(again, request=replace(again.request, routes=("ort_migraphx",)))
    bundle, _ = optimize(hopeless, Notes())
    assert bundle.choice.pick is None
    assert "stays as it was" in bundle.choice.sentence
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert load_bundle(folder)[0] == first


def test_bench_of_a_bundle_measures_the_pick_at_its_own_batch(model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "net.wavefit"
    optimize(order(model, folder, batches=(3,)), Notes())
    again = Order(model=str(folder), request=Request(load=QUICK), folder="", command="")
    records, _ = bench(again, Notes())
    assert [record.plan.label for record in records] == ["ort_cpu fp32 batch 3"]


def test_what_an_earlier_run_measured_of_the_same_model_is_kept(model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "net.wavefit"
    _, first = optimize(order(model, folder, batches=(4,)), Notes())
    optimize(order(model, folder, batches=(1,), objective="throughput"), Notes())
    assert {record.key for record in load_bundle(folder)[1]} > {first[0].key}
    notes = Notes()
    optimize(order(model, folder, batches=(4,)), notes)
    assert notes.records == [("ort_cpu fp32 batch 4", True)]


def test_records_of_a_run_that_picks_nothing_wait_for_the_next_without_the_bulk(
    model: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "net.wavefit"
    first, _ = optimize(order(model, folder), Notes())
    strict = Constraints(max_latency_s=1e-9)
    bundle, _ = optimize(order(model, folder, batches=(2,), constraints=strict), Notes())
    assert bundle.choice.pick is None
    assert load_bundle(folder)[0] == first
    assert {path.name for path in (folder / ".work").iterdir()} == {"lock", "records.jsonl"}
    notes = Notes()
    optimize(order(model, folder, batches=(2,)), notes)
    assert notes.records == [("ort_cpu fp32 batch 2", True)]
    assert not (folder / ".work").exists()


def test_a_spent_budget_is_not_called_an_inability(model: Path, tmp_path: Path) -> None:
    bundle, made = optimize(order(model, tmp_path / "net.wavefit", budget_s=0.01), Notes())
    assert made == []
    assert bundle.choice.sentence == "No plan was tried: the budget of 0.01 s was spent."
