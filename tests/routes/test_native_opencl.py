"""The engine as a route: what it offers and refuses without a driver at hand, and what it does on the device here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from fakes.models import conv_net
from msgspec.structs import replace

from wavefit.device.catalogue import device_of
from wavefit.device.probe import probe
from wavefit.device.runtimes import with_runtimes
from wavefit.errors import InputError, RouteError
from wavefit.model.load import load
from wavefit.plan.predict import Planner
from wavefit.routes import native_opencl as route
from wavefit.routes import refine
from wavefit.schema import Device, Model, Plan, Request, Runtime, Unsupported

pytest.importorskip("onnx_ir")

RUSTICL = Runtime(name="opencl", version="3.0", index=0, platform="rusticl")
RADEON = replace(device_of("gfx90c"), id="gpu0", integrated=True, runtimes=(RUSTICL,))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    path = tmp_path_factory.mktemp("net") / "net.onnx"
    onnx.save(conv_net(), str(path))
    return load(path)


@pytest.fixture(scope="module")
def here() -> Device:
    """The first device that OpenCL shows here."""
    pytest.importorskip("pyopencl")
    for device in with_runtimes(probe(), lambda text: None):
        if any(each.name == "opencl" and each.index is not None for each in device.runtimes):
            return device
    pytest.skip("OpenCL shows no device")


def plan_of(answers: list[Plan | Unsupported]) -> Plan:
    (answer,) = answers
    assert isinstance(answer, Plan), answer
    return answer


def refusal_of(answers: list[Plan | Unsupported]) -> Unsupported:
    (answer,) = answers
    assert isinstance(answer, Unsupported), answer
    return answer


# ---- What it offers -------------------------------------------------------------------------------------------------


def test_a_gpu_that_rocm_refuses_is_offered_both_precisions(model: Model) -> None:
    pytest.importorskip("pyopencl")
    answers = route.plans([RADEON], model, Request(precisions=("fp32", "fp16"), batches=(4,)))
    assert [type(answer) for answer in answers] == [Plan, Plan]
    assert [answer.options for answer in answers if isinstance(answer, Plan)] == [{}, {"storage": "fp16"}]
    first = answers[0]
    assert isinstance(first, Plan)
    assert (first.batch, first.shapes, first.transfer) == (4, {"image": (4, 3, 8, 8)}, "zero-copy")


def test_a_card_is_copied_to_through_pinned_memory(model: Model) -> None:
    pytest.importorskip("pyopencl")
    card = replace(device_of("gfx1030"), id="gpu1", integrated=False, runtimes=(RUSTICL,))
    assert plan_of(route.plans([card], model, Request())).transfer == "pinned"


def test_a_file_runs_in_its_own_precision_and_no_other(model: Model) -> None:
    pytest.importorskip("pyopencl")
    eight = replace(model, precision="int8")
    assert plan_of(route.plans([RADEON], eight, Request(precisions=("int8",)))).options == {}
    refused = refusal_of(route.plans([RADEON], eight, Request(precisions=("fp16",))))
    assert (refused.precision, "int8" in refused.reason) == ("fp16", True)
    refused = refusal_of(route.plans([RADEON], model, Request(precisions=("int8",))))
    assert "does not make int8" in refused.reason
    assert refused.fix


@pytest.mark.parametrize("missing", ["pyopencl", "onnx-ir"])
def test_a_missing_package_is_named_with_the_command(
    model: Model, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(route._packages, "version", lambda name: None if name == missing else "1")
    refused = refusal_of(route.plans([RADEON], model, Request()))
    assert missing in refused.reason
    assert refused.fix == "pip install 'wavefit[opencl]'"


def test_a_gpu_without_a_driver_and_a_cpu_that_nobody_asked_for(model: Model) -> None:
    pytest.importorskip("pyopencl")
    refused = refusal_of(route.plans([replace(RADEON, runtimes=())], model, Request()))
    assert "no OpenCL driver shows gpu0" in refused.reason
    cpu = Device(id="cpu", kind="cpu", runtimes=(RUSTICL,))
    refused = refusal_of(route.plans([cpu], model, Request()))
    assert "--route native_opencl" in refused.fix
    assert isinstance(plan_of(route.plans([cpu], model, Request(routes=("native_opencl",)))), Plan)


def test_an_operator_that_it_lacks_is_named_with_its_node(tmp_path: Path) -> None:
    pytest.importorskip("pyopencl")
    from onnx import TensorProto, helper

    node = helper.make_node("RandomNormalLike", ["x"], ["y"], "dice")
    make = helper.make_tensor_value_info
    graph = helper.make_graph(
        [node], "g", [make("x", TensorProto.FLOAT, ["N", 2])], [make("y", TensorProto.FLOAT, ["N", 2])]
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
        str(tmp_path / "m.onnx"),
    )
    refused = refusal_of(route.plans([RADEON], load(tmp_path / "m.onnx"), Request()))
    assert "RandomNormalLike node 'dice'" in refused.reason
    assert refused.fix


# ---- What it expects ------------------------------------------------------------------------------------------------


def test_its_memory_is_predicted_to_the_byte(model: Model) -> None:
    from wavefit.native import engine
    from wavefit.native.limits import of_device
    from wavefit.native.opencl.chooser import Chooser
    from wavefit.native.program import Program

    plan = Plan(route="native_opencl", device="gpu0", batch=2, shapes={"image": (2, 3, 8, 8)})
    found = Planner(model, refine(model)).predict(RADEON, plan)
    program = engine.prepare(Path(model.path), plan.shapes, Chooser(of_device(RADEON)))
    assert isinstance(program, Program)
    assert found is not None
    assert found.peak_bytes == program.device_bytes + program.port_bytes
    assert found.total_s is not None
    assert found.total_s > len(program.operations) * 1e-6  # no launch is free


def test_a_cpu_and_other_routes_keep_the_general_prediction(model: Model) -> None:
    cpu = Device(id="cpu", kind="cpu")
    for name, device in (("native_opencl", cpu), ("ort_migraphx", RADEON)):
        plan = Plan(route=name, device=device.id, shapes={"image": (1, 3, 8, 8)})
        assert Planner(model, refine(model)).predict(device, plan) == Planner(model).predict(device, plan)


# ---- What it does ---------------------------------------------------------------------------------------------------


def _open(model: Model, device: Device, folder: Path, **options: Any) -> Any:
    plan = Plan(
        route="native_opencl", device=device.id, batch=2, shapes={"image": (2, 3, 8, 8)}, options=options
    )
    return route.open(plan, model, device, folder)


@pytest.mark.parametrize(("options", "bound"), [({}, 1e-5), ({"storage": "fp16"}, 2e-3)])
def test_it_answers_as_onnx_runtime_does(
    model: Model, here: Device, tmp_path: Path, options: dict[str, Any], bound: float
) -> None:
    ort = pytest.importorskip("onnxruntime")
    batches = [
        {"image": np.random.default_rng(seed).standard_normal((2, 3, 8, 8)).astype(np.float32)}
        for seed in range(3)
    ]
    session = _open(model, here, tmp_path, **options)
    reference = ort.InferenceSession(model.path, providers=["CPUExecutionProvider"])
    streamed = list(session.stream(batches))
    for batch, other in zip(batches, streamed, strict=True):
        (want,) = reference.run(None, batch)
        (got,) = session.run(batch).values()
        assert np.linalg.norm(got - want) <= bound * np.linalg.norm(want)
        np.testing.assert_array_equal(got, next(iter(other.values())))
    placement = session.placement()
    assert [share.provider for share in placement.providers] == ["native OpenCL"]
    session.close()


def test_memory_grows_by_a_second_set_of_inputs_and_outputs_in_a_stream(
    model: Model, here: Device, tmp_path: Path
) -> None:
    session = _open(model, here, tmp_path)
    image = np.zeros((2, 3, 8, 8), np.float32)
    (answer,) = session.run({"image": image}).values()
    alone = session.device_peak_bytes()
    list(session.stream([{"image": image}] * 3))
    assert session.device_peak_bytes() == alone + image.nbytes + answer.nbytes
    session.close()


def test_another_shape_than_the_plans_is_refused(model: Model, here: Device, tmp_path: Path) -> None:
    session = _open(model, here, tmp_path)
    with pytest.raises(InputError, match="image"):
        session.run({"image": np.zeros((3, 3, 8, 8), np.float32)})
    session.close()
    with pytest.raises(RouteError, match="closed"):
        session.run({"image": np.zeros((2, 3, 8, 8), np.float32)})
