from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from fakes import models, records
from msgspec.structs import replace

import wavefit
from wavefit import routes
from wavefit.bundle.inputs import read_inputs
from wavefit.bundle.outputs import describe, lines, save
from wavefit.bundle.runner import device_for, differences, open_bundle
from wavefit.bundle.write import write_bundle
from wavefit.choice import choose
from wavefit.device.probe import probe
from wavefit.device.runtimes import with_runtimes
from wavefit.errors import InputError, RouteError
from wavefit.model.load import load
from wavefit.native.opencl.devices import runtime
from wavefit.routes import ort_cpu
from wavefit.schema import Device, Model, Plan, Record, Request

HERE = probe()[0]
OTHER_CPU = replace(HERE, name="Another CPU", compute_units=96)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return models.save(models.conv_net(), tmp_path_factory.mktemp("models") / "net.onnx")


def pack(source: Path, folder: Path, *made: Record, request: Request | None = None) -> Path:
    """A bundle of those records, in the order in which they would be picked."""
    model = load(source)
    kept = [replace(record, model=model, versions=ort_cpu.versions()) for record in made]
    request = request or Request()
    draft = records.bundle(kept, request=request, choice=choose(kept, (), request))
    folder.mkdir()
    write_bundle(folder, draft, model, kept, "")
    return folder


def on_cpu(device: Device = HERE, batch: int = 4, p50_s: float = 0.02) -> Record:
    return records.measured("ort_cpu", device, p50_s, batch=batch)


@pytest.mark.parametrize("count", [1, 3, 4, 5, 9])
def test_any_number_of_items_runs_in_batches_of_the_plan(source: Path, tmp_path: Path, count: int) -> None:
    image = np.random.default_rng(count).normal(size=(count, 3, 8, 8)).astype(np.float32)
    expected = onnxruntime.InferenceSession(source).run(None, {"image": image})[0]
    with open_bundle(pack(source, tmp_path / "a.wavefit", on_cpu())) as run:
        np.testing.assert_allclose(run(image)["logits"], expected, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(run({"image": image})["logits"], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("count", "opened"), [(1, [8, 1]), (3, [8, 4]), (4, [8, 4]), (5, [8]), (8, [8]), (9, [8, 1]), (16, [8])]
)
def test_what_is_left_over_runs_at_the_nearest_batch_that_the_bundle_is_prepared_for(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, opened: list[int]
) -> None:
    image = np.random.default_rng(count).normal(size=(count, 3, 8, 8)).astype(np.float32)
    expected = onnxruntime.InferenceSession(source).run(None, {"image": image})[0]
    made = [on_cpu(batch=batch, p50_s=0.02 * batch) for batch in (1, 4, 8)]
    failed = replace(on_cpu(batch=2), verdict=None, measurement=None)
    elsewhere = on_cpu(replace(HERE, id="gpu0"), batch=2)
    folder = pack(source, tmp_path / "a.wavefit", *made, failed, elsewhere)
    batches: list[int] = []

    def watched(plan: Plan, *rest: object) -> object:
        batches.append(plan.batch)
        return ort_cpu.open(plan, *rest[:3])  # type: ignore[arg-type]

    monkeypatch.setattr(ort_cpu, "carried", None, raising=False)  # a route whose kernels a bundle carries
    monkeypatch.setattr(ort_cpu, "open_told", watched, raising=False)
    with open_bundle(folder, plan="ort_cpu fp32 batch 8") as run:
        np.testing.assert_allclose(run(image)["logits"], expected, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(run(image)["logits"], expected, rtol=1e-5, atol=1e-6)
    assert batches == opened


def test_what_differs_from_the_machine_that_was_measured_is_said(source: Path, tmp_path: Path) -> None:
    folder = pack(source, tmp_path / "a.wavefit", on_cpu(OTHER_CPU))
    with open_bundle(folder) as run:
        assert f"name: measured on Another CPU, here {HERE.name}" in run.differences
        assert f"compute units: measured on 96, here {HERE.compute_units}" in run.differences


def test_a_package_that_is_not_here_any_more_differs(source: Path, tmp_path: Path) -> None:
    with open_bundle(pack(source, tmp_path / "a.wavefit", on_cpu())) as run:
        then = replace(run.record, versions={**run.record.versions, "rocm": "7.1.0", "onnxruntime": "1.0"})
    told = differences(then, HERE)
    assert "rocm: measured with 7.1.0, here none" in told
    assert f"onnxruntime: measured with 1.0, here {onnxruntime.__version__}" in told
    same = replace(then, versions={**ort_cpu.versions(), "wavefit": wavefit.__version__})
    assert differences(same, HERE) == []


class EveryGpu:
    """A route that runs on every GPU; there is none here."""

    @staticmethod
    def plans(devices: Sequence[Device], model: Model, request: Request) -> list[Plan]:
        return [records.plan("ort_webgpu", device.id) for device in devices if device.kind == "gpu"]


def test_of_several_gpus_the_one_like_that_measured_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "get", lambda name: EveryGpu)
    apu = records.gpu(id="gpu0", pci_address="0000:03:00.0")
    card = records.gpu(id="gpu1", name="Example Card", gfx="gfx1100", pci_id="1002:744c", integrated=False)
    record = records.measured("ort_webgpu", card, 0.01)
    bundle = records.bundle([record], request=Request())
    assert device_for(record, (HERE, apu, card), bundle) == card
    moved = replace(card, id="gpu0"), replace(apu, id="gpu1")
    assert device_for(record, (HERE, *moved), bundle) == moved[0]
    assert device_for(record, (HERE, apu), bundle) == apu  # and the differences say so
    twins = replace(card, id="gpu0", pci_address="0000:0a:00.0"), replace(card, pci_address="0000:0b:00.0")
    assert device_for(replace(record, device=twins[1]), (HERE, *twins), bundle) == twins[1]


@pytest.mark.parametrize("ends", ["del model", "gc.disable(); a = [model]; a.append(a); del model"])
def test_nothing_is_left_where_nobody_closes(source: Path, tmp_path: Path, ends: str) -> None:
    folder, temporary = pack(source, tmp_path / "a.wavefit", on_cpu()), tmp_path / "tmp"
    temporary.mkdir()
    script = f"import gc, wavefit; model = wavefit.open({str(folder)!r}); {ends}"
    environment = {**os.environ, "TMPDIR": str(temporary)}
    subprocess.run([sys.executable, "-c", script], check=True, env=environment)
    assert not list(temporary.glob("wavefit*"))


def test_a_pick_that_cannot_run_here_is_an_error_that_names_the_runner_up(
    source: Path, tmp_path: Path
) -> None:
    pick = records.measured("ort_migraphx", records.gpu(), 0.001)
    folder = pack(source, tmp_path / "a.wavefit", pick, on_cpu())
    with pytest.raises(RouteError) as raised:
        open_bundle(folder)
    assert "ort_migraphx fp32 batch 1, measured on Example Graphics, cannot run here" in str(raised.value)
    assert "plan 'ort_cpu fp32 batch 4'" in str(raised.value)
    with open_bundle(folder, plan="ort_cpu fp32 batch 4") as run:
        assert run.record.plan.route == "ort_cpu"


def test_the_engine_runs_on_a_device_that_only_opencl_tells_of(source: Path, tmp_path: Path) -> None:
    pytest.importorskip("pyopencl")
    here = next((each for each in with_runtimes(probe(), str) if runtime(each) is not None), None)
    if here is None:
        pytest.skip("no OpenCL driver shows a device")
    image = np.random.default_rng(0).normal(size=(3, 3, 8, 8)).astype(np.float32)
    expected = onnxruntime.InferenceSession(source).run(None, {"image": image})[0]
    made = records.measured("native_opencl", here, 0.01, batch=2)
    record = replace(made, plan=replace(made.plan, shapes={"image": (2, 3, 8, 8)}))
    folder = pack(source, tmp_path / "a.wavefit", record, request=Request(routes=("native_opencl",)))
    with open_bundle(folder) as run:
        assert run.record.plan.route == "native_opencl"
        np.testing.assert_allclose(run(image)["logits"], expected, rtol=1e-4, atol=1e-5)


def test_an_unknown_plan_lists_those_there_are(source: Path, tmp_path: Path) -> None:
    folder = pack(source, tmp_path / "a.wavefit", on_cpu())
    with pytest.raises(InputError, match=r"no plan 'tensorrt'; it has: ort_cpu fp32 batch 4"):
        open_bundle(folder, plan="tensorrt")


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "input 'image' is missing"),
        ({"picture": np.zeros((1, 3, 8, 8), np.float32)}, "input 'image' is missing"),
        ({"image": np.zeros((1, 3, 8, 8), np.float64)}, "is float64, the model takes float32"),
        ({"image": np.zeros((1, 3, 9, 8), np.float32)}, "has shape 1x3x9x8, the model takes Nx3x8x8"),
        ({"image": np.zeros((0, 3, 8, 8), np.float32)}, "at least one"),
    ],
)
def test_wrong_inputs_are_named(source: Path, tmp_path: Path, inputs: dict, message: str) -> None:  # type: ignore[type-arg]
    with (
        open_bundle(pack(source, tmp_path / "a.wavefit", on_cpu())) as run,
        pytest.raises(InputError, match=message),
    ):
        run(inputs)


def test_inputs_come_from_files_by_name_or_alone(source: Path, tmp_path: Path) -> None:
    model = load(source)
    image = np.random.default_rng(0).normal(size=(2, 3, 8, 8)).astype(np.float32)
    np.save(tmp_path / "a.npy", image)
    np.savez(tmp_path / "a.npz", image=image)
    for text in (f"{tmp_path}/a.npy", f"image={tmp_path}/a.npy", f"{tmp_path}/a.npz"):
        np.testing.assert_array_equal(read_inputs(model, Request(), [text])["image"], image)
    assert read_inputs(model, Request(), [])["image"].shape == (1, 3, 8, 8)
    with pytest.raises(InputError, match="no input 'picture'"):
        read_inputs(model, Request(), ["picture=a.npy"])


def test_outputs_are_described_by_their_largest_classes() -> None:
    scores = np.array([[0.1, 0.7, 0.2], [0.5, 0.1, 0.4]], np.float32)
    described = describe({"scores": scores, "box": np.array([[[1.0, 3.0]]])}, top=2)
    assert [row.index for row in described[0].top] == [(1, 2), (0, 2)]
    assert (described[1].min, described[1].max, described[1].mean) == (1.0, 3.0, 2.0)
    assert lines(described)[1] == "  item 0: class 1 (0.7), class 2 (0.2)"


def test_outputs_are_saved_whole(tmp_path: Path) -> None:
    save(tmp_path / "out.npz", {"scores": np.arange(3)})
    np.testing.assert_array_equal(np.load(tmp_path / "out.npz")["scores"], [0, 1, 2])
    with pytest.raises(InputError, match=r"must end in .npz"):
        save(tmp_path / "out.txt", {})
