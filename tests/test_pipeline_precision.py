"""The main job in lower precisions, on the demo's trained digits and their labels."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from fakes import records
from msgspec.structs import replace
from test_pipeline import QUICK, Notes

import wavefit
from wavefit import candidates
from wavefit.bundle.read import load_bundle
from wavefit.bundle.runner import open_bundle
from wavefit.candidates import wanted_files
from wavefit.errors import InputError
from wavefit.model.load import load
from wavefit.pipeline import Order, bench, convert, optimize
from wavefit.precision.search.records import Wanted
from wavefit.schema import Data, Plan, Request, TensorSpec, Variant

DEMO = Path(wavefit.__file__).parent / "demo"
CPU = records.cpu(features=("avx2", "avx_vnni"))
DATA = Data(path=str(DEMO / "digits.npz"))


def order(
    folder: Path, *precisions: str, model: Path | str = DEMO / "digits.onnx", **request: object
) -> Order:
    request = {"data": DATA, "routes": ("ort_cpu",), "precisions": precisions, **request}
    made = Request(load=QUICK, **request)  # type: ignore[arg-type]
    return Order(model=str(model), request=made, folder=str(folder), command="wavefit optimize digits.onnx")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("precision") / "digits.wavefit"
    optimize(order(folder, "fp32", "fp16", "int8"), Notes())
    return folder


def test_every_precision_has_a_plan_whose_answers_stand(folder: Path) -> None:
    bundle, made = load_bundle(folder)
    assert {record.plan.precision for record in made if record.passed} == {"fp32", "fp16", "int8"}
    assert {variant.name for variant in bundle.variants} == {"fp16", "int8"}
    for record in made:
        assert record.verdict is not None
        assert record.verdict.task is not None
        assert record.verdict.task.drop <= 0.005  # half a point of accuracy on all 500 digits
        assert bundle.model is not None
        assert record.model.name == bundle.model.name


def test_the_files_are_what_their_names_say(folder: Path) -> None:
    half, integer = (onnx.load(folder / "variants" / f"{name}.onnx") for name in ("fp16", "int8"))
    assert {tensor.data_type for tensor in half.graph.initializer} <= {
        onnx.TensorProto.FLOAT16,
        onnx.TensorProto.INT64,
    }
    assert half.graph.input[0].type.tensor_type.elem_type == onnx.TensorProto.FLOAT
    assert "QuantizeLinear" in {node.op_type for node in integer.graph.node}
    for model in (half, integer):
        onnx.checker.check_model(model, full_check=True)
    size = {name: (folder / name).stat().st_size for name in ("model.onnx", "variants/int8.onnx")}
    assert size["variants/int8.onnx"] < 0.4 * size["model.onnx"]


def test_the_int8_plan_really_runs_integer_kernels(folder: Path) -> None:
    images = np.load(DEMO / "digits.npz")["image"][:20]
    with (
        open_bundle(folder, "ort_cpu int8 batch 1") as run,
        open_bundle(folder, "ort_cpu fp32 batch 1") as fp32,
    ):
        (answers,), (right,) = run(images).values(), fp32(images).values()
    assert np.linalg.norm(answers - right) / np.linalg.norm(right) < 0.1
    assert not np.array_equal(answers, right)


def test_the_same_order_again_searches_and_measures_nothing_again(folder: Path) -> None:
    notes = Notes()
    before = (folder / "variants" / "int8.onnx").stat().st_mtime_ns
    optimize(order(folder, "fp32", "fp16", "int8"), notes)
    assert all(again for _, again in notes.records)
    assert not [text for text in notes.said if "calibration" in text]
    assert (folder / "variants" / "int8.onnx").stat().st_mtime_ns == before


def test_a_bundle_whose_pick_is_a_variant_is_measured_again_as_it_was_picked(
    tmp_path: Path, folder: Path
) -> None:
    manifest = json.loads((folder / "bundle.json").read_text())
    int8 = next(record for record in load_bundle(folder)[1] if record.plan.precision == "int8")
    manifest["choice"]["pick"] = int8.key
    (folder / "bundle.json").write_text(json.dumps(manifest))
    made, _ = bench(order(tmp_path, "fp32", model=folder, routes=()), Notes())
    assert [record.plan.label for record in made] == ["ort_cpu int8 batch 1"]
    assert made[0].passed
    assert made[0].model.sha256 == int8.model.sha256


def test_a_search_that_was_stopped_goes_on_from_its_judgements(tmp_path: Path) -> None:
    folder = tmp_path / "digits.wavefit"
    with pytest.raises(KeyboardInterrupt):
        optimize(order(folder, "int8"), Stopping("cross-layer equalisation"))
    (kept,) = (folder / ".work" / "variants").glob("judgements-*.jsonl")
    assert len(kept.read_text().splitlines()) >= 5
    optimize(order(folder, "int8"), Notes())
    again = load_bundle(folder)[0].variants[0].evaluations
    other = tmp_path / "other.wavefit"
    optimize(order(other, "int8"), Notes())
    assert again <= load_bundle(other)[0].variants[0].evaluations - 5


class Stopping(Notes):
    def __init__(self, at: str) -> None:
        super().__init__()
        self._at = at

    def say(self, text: str) -> None:
        if self._at in text:
            raise KeyboardInterrupt


def test_int8_without_data_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="int8 needs data to calibrate on; give --data"):
        optimize(order(tmp_path / "x.wavefit", "int8", data=Data()), Notes())
    assert not (tmp_path / "x.wavefit").exists()


def test_few_calibration_items_are_told(tmp_path: Path) -> None:
    few = tmp_path / "few.npz"
    digits = np.load(DEMO / "digits.npz")
    np.savez(few, image=digits["image"][:12], labels=digits["labels"][:12])
    bundle, _ = optimize(order(tmp_path / "x.wavefit", "int8", data=Data(path=str(few))), Notes())
    assert any("which is few" in note for note in bundle.variants[0].notes)


def test_a_file_that_is_in_half_already_keeps_its_precision(tmp_path: Path, folder: Path) -> None:
    half = folder / "variants" / "fp16.onnx"
    bundle, made = optimize(order(tmp_path / "half.wavefit", "fp32", model=half), Notes())
    assert [record.plan.precision for record in made] == ["fp16"]
    assert bundle.variants == ()


def test_routes_say_which_files_they_would_run() -> None:
    model = load(DEMO / "digits.onnx")
    asked = Request(precisions=("fp32", "fp16", "int8"), data=DATA, routes=("ort_cpu",))
    assert [each.precision for each in wanted_files((CPU,), model, asked)] == ["fp16", "int8"]
    assert wanted_files((CPU,), replace(model, precision="fp16"), asked) == ()


def test_a_refusal_of_a_precision_goes_where_a_variant_has_it() -> None:
    model = load(DEMO / "digits.onnx")
    variant = Variant(
        key="k",
        name="int8",
        precision="int8",
        model=replace(model, precision="int8"),
        target="onnxruntime cpu",
    )
    asked = Request(precisions=("int8",), routes=("ort_cpu",))
    models = {None: model, "int8": variant.model}
    answers = candidates.candidates((CPU,), models, asked, (variant,))
    assert [answer.label for answer in answers if isinstance(answer, Plan)] == [
        "ort_cpu fp32 batch 1",
        "ort_cpu int8 batch 1",
    ]
    assert len(answers) == 2
    without = candidates.candidates((CPU,), {None: model}, asked)
    assert len(without) == 2  # its fp32 plan, and why there is none in int8


def test_a_variant_for_other_types_is_not_run_here() -> None:
    model = load(DEMO / "digits.onnx")
    variant = Variant(
        key="k", name="int8", precision="int8", model=replace(model, precision="int8"), target="migraphx"
    )
    asked = Request(precisions=("int8",), routes=("ort_cpu",))
    answers = candidates.candidates((CPU,), {None: model, "int8": variant.model}, asked, (variant,))
    assert [answer.variant for answer in answers if isinstance(answer, Plan)] == [None]


def test_the_inputs_of_a_variant_are_the_models(folder: Path) -> None:
    bundle, _ = load_bundle(folder)
    assert bundle.model is not None
    for variant in bundle.variants:
        assert [(spec.name, spec.dtype) for spec in variant.model.inputs] == [("image", "float32")]
        assert isinstance(variant.model.outputs[0], TensorSpec)
        assert variant.model.batch == bundle.model.batch


@pytest.mark.parametrize(("route", "told"), [("ort_webgpu", True), ("ort_migraphx", False)])
def test_what_a_route_computes_otherwise_than_the_search_is_told(
    tmp_path: Path, route: str, told: bool
) -> None:
    """WebGPU adds up products in half: microsoft/onnxruntime, issue 26732."""
    wanted = Wanted(precision="fp16", route=route, device=records.cpu(kind="gpu", id="gpu0"))
    _, made = convert(order(tmp_path / "d.wavefit", "fp16", data=Data()), (wanted,), Notes())
    [variant] = made.variants
    assert any("WebGPU provider adds them in half" in note for note in variant.notes) == told
