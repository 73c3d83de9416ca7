"""ONNX Runtime sessions: right answers, the provider that was asked for or an error, true placement."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from wavefit import routes
from wavefit.errors import InputError, RouteError
from wavefit.model.load import load
from wavefit.routes import _ort, ort_cpu
from wavefit.schema import Device, Model, NodeTime, Placement, Plan, ProviderShare, Request, Unsupported

CPU = Device(id="cpu", kind="cpu")
WEIGHT = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)


@pytest.fixture
def model(tmp_path: Path) -> Model:
    return load(_save(tmp_path / "tiny.onnx"))


def _save(path: Path, batch: str | int = "N") -> Path:
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["product"], name="matmul"),
            helper.make_node("Softmax", ["product"], ["y"], name="softmax"),
        ],
        "tiny",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 4])],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, 3]),
            helper.make_tensor_value_info("product", TensorProto.FLOAT, [batch, 3]),
        ],
        [numpy_helper.from_array(WEIGHT, "w")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    return path


def _plan(batch: int = 2) -> Plan:
    return Plan(route="ort_cpu", device="cpu", batch=batch, shapes={"x": (batch, 4)})


def _softmax64(x: np.ndarray) -> np.ndarray:
    product = x.astype(np.float64) @ WEIGHT.astype(np.float64)
    powers = np.exp(product - product.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def test_outputs_are_right_and_in_the_models_order(model: Model, tmp_path: Path) -> None:
    x = np.random.default_rng(1).standard_normal((5, 4)).astype(np.float32)
    session = routes.get("ort_cpu").open(_plan(), model, CPU, tmp_path)
    outputs = session.run({"x": x})
    assert list(outputs) == ["y", "product"]
    np.testing.assert_allclose(outputs["y"], _softmax64(x), rtol=1e-6)
    np.testing.assert_allclose(outputs["product"], x.astype(np.float64) @ WEIGHT, rtol=1e-5)


def test_any_batch_runs_where_the_provider_takes_any(model: Model, tmp_path: Path) -> None:
    session = routes.get("ort_cpu").open(_plan(), model, CPU, tmp_path)
    for batch in (1, 3, 2):
        assert session.run({"x": np.ones((batch, 4), np.float32)})["y"].shape == (batch, 3)


def test_a_session_compiled_for_one_shape_says_so_and_takes_no_other(model: Model, tmp_path: Path) -> None:
    session = _ort.OrtSession(model, _ort.Provider(_ort.CPU, shapes={"x": (2, 4)}), tmp_path)
    assert session.inputs[0].shape == (2, 4)
    assert session.run({"x": np.ones((2, 4), np.float32)})["y"].shape == (2, 3)
    with pytest.raises(InputError, match="'x' has shape 3x4, the model takes 2x4"):
        session.run({"x": np.ones((3, 4), np.float32)})


def test_a_free_dimension_is_overridden_in_the_runtime_itself(model: Model, tmp_path: Path) -> None:
    session = _ort.OrtSession(model, _ort.Provider(_ort.CPU, shapes={"x": (2, 4)}), tmp_path)
    assert session._session.get_inputs()[0].shape == [2, 4]


def test_placement_names_the_nodes_from_a_profiled_run(model: Model, tmp_path: Path) -> None:
    session = routes.get("ort_cpu").open(_plan(), model, CPU, tmp_path)
    assert session.placement() is None, "nothing has run, so nothing is known"
    session.run({"x": np.ones((2, 4), np.float32)})
    placement = session.placement()
    assert placement is not None
    assert placement.on("CPUExecutionProvider") == 2
    assert {(node.name, node.op) for node in placement.cpu_nodes} == {
        ("matmul", "MatMul"),
        ("softmax", "Softmax"),
    }
    assert all(node.time_s is not None and node.time_s > 0 for node in placement.cpu_nodes)
    assert not list(tmp_path.glob("profile*")), "the profile is deleted"


@pytest.mark.parametrize(
    "name", ["MIGraphXExecutionProvider", "ROCMExecutionProvider", "DmlExecutionProvider"]
)
@pytest.mark.filterwarnings("ignore:Specified provider")
def test_a_provider_that_is_not_there_is_an_error_and_never_the_cpu(
    name: str, model: Model, tmp_path: Path
) -> None:
    import onnxruntime

    if name in onnxruntime.get_available_providers():
        pytest.skip(f"this build has {name}")
    with pytest.raises(RouteError, match=name):
        _ort.OrtSession(model, _ort.Provider(name), tmp_path)


def test_a_provider_that_took_no_node_is_an_error() -> None:
    everything_on_cpu = Placement(
        providers=(ProviderShare(provider=_ort.CPU, nodes=7),), source="onnxruntime profile"
    )
    with pytest.raises(RouteError, match="DmlExecutionProvider took none of the model's nodes"):
        _ort.check_used(everything_on_cpu, "DmlExecutionProvider")
    _ort.check_used(everything_on_cpu, _ort.CPU)
    only_copies = Placement(
        providers=(
            ProviderShare(provider=_ort.CPU, nodes=7),
            ProviderShare(provider="Dml", nodes=0, time_s=0.1),
        ),
        source="onnxruntime profile",
    )
    with pytest.raises(RouteError, match="7 on CPUExecutionProvider"):
        _ort.check_used(only_copies, "Dml")


def test_a_file_that_is_no_model_is_a_route_error(model: Model, tmp_path: Path) -> None:
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"\xff" * 100)
    with pytest.raises(RouteError, match="could not open the model") as caught:
        routes.get("ort_cpu").open(_plan(), msgspec.structs.replace(model, path=str(broken)), CPU, tmp_path)
    assert "\n" not in caught.value.reason


def test_a_failure_while_running_is_a_route_error(tmp_path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("Reshape", ["x", "shape"], ["y"], name="reshape")],
        "reshape",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N"]),
            helper.make_tensor_value_info("shape", TensorProto.INT64, [2]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["A", "B"])],
    )
    path = tmp_path / "reshape.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    session = _ort.OrtSession(load(path), _ort.Provider(_ort.CPU), tmp_path)
    with pytest.raises(RouteError, match=r"failed while running.*reshape"):
        session.run({"x": np.ones(6, np.float32), "shape": np.array([4, 2])})


def test_closing_twice_is_harmless(model: Model, tmp_path: Path) -> None:
    session = routes.get("ort_cpu").open(_plan(), model, CPU, tmp_path)
    session.close()
    session.close()
    with pytest.raises(RouteError, match="the session is closed"):
        session.run({})


def test_the_cpu_route_refuses_precisions_that_the_file_is_not_in(model: Model) -> None:
    answers = ort_cpu.plans([CPU], model, Request(precisions=("fp32", "fp16", "bf16", "int8")))
    assert [type(answer) for answer in answers] == [Plan, Unsupported, Unsupported, Unsupported]
    for precision, answer in zip(("fp16", "bf16", "int8"), answers[1:], strict=True):
        assert isinstance(answer, Unsupported)
        assert answer.precision == precision
        assert f"no switch to {precision}" in answer.reason


def test_the_cpu_route_says_that_it_computes_a_file_in_half_in_fp32(model: Model) -> None:
    (plan,) = ort_cpu.plans(
        [CPU], msgspec.structs.replace(model, precision="fp16"), Request(precisions=("fp16",))
    )
    assert isinstance(plan, Plan)
    assert plan.label == "ort_cpu fp16 compute=fp32 batch 1"


def test_the_cpu_route_runs_a_quantised_file_in_int8(model: Model) -> None:
    (plan,) = ort_cpu.plans(
        [CPU], msgspec.structs.replace(model, precision="int8"), Request(precisions=("int8",))
    )
    assert isinstance(plan, Plan)
    assert plan.label == "ort_cpu int8 batch 1"


def test_the_cpu_route_says_when_the_cpu_was_not_asked_for(model: Model) -> None:
    gpu = Device(id="gpu0", kind="gpu", vendor="amd")
    (answer,) = ort_cpu.plans([gpu], model, Request())
    assert isinstance(answer, Unsupported)
    assert answer.fix == "add --device cpu"


def test_cpu_nodes_are_the_ten_costliest() -> None:
    events = [_event(f"n{i}", "Relu", _ort.CPU, ts=100 + 100 * i, dur=i + 1) for i in range(15)]
    placement = _ort.read_profile([_run(0, 5000), *events], runs=1)
    assert [node.name for node in placement.cpu_nodes] == [f"n{i}" for i in range(14, 4, -1)]
    assert placement.cpu_nodes[0] == NodeTime(name="n14", op="Relu", provider=_ort.CPU, time_s=15e-6)
    assert placement.on(_ort.CPU) == 15


def test_the_warm_up_run_is_left_out() -> None:
    events = [_run(0, 100), _event("a", "Relu", _ort.CPU, 10, 90)]
    events += [
        _run(200, 20),
        _event("a", "Relu", _ort.CPU, 205, 8),
        _run(300, 20),
        _event("a", "Relu", _ort.CPU, 305, 4),
    ]
    (share,) = _ort.read_profile(events, runs=2).providers
    assert share == ProviderShare(provider=_ort.CPU, nodes=1, time_s=6e-6)


GPU = "WebGpuExecutionProvider"


def test_a_recorded_run_with_a_loop_and_copies_sums_to_its_wall_time() -> None:
    """As onnxruntime-webgpu 1.27.0 wrote it on Mesa's lavapipe, the third run of Sigmoid and a Loop of three turns."""
    events = [_run(184095, 2873), _event("Sigmoid_0", "Sigmoid", GPU, 184224, 35)]
    events += [
        _event("Memcpy", "MemcpyToHost", GPU, 184264, 417),
        _event("Loop_1", "Loop", _ort.CPU, 184689, 2237),
    ]
    for add, relu, identity in (
        ((184856, 29), (184890, 14), (184908, 7)),
        ((185396, 30), (185431, 16), (185451, 7)),
        ((186298, 34), (186337, 19), (186362, 7)),
    ):
        events += [_event("Add_1", "Add", GPU, *add), _event("Relu_2", "Relu", GPU, *relu)]
        events += [_event("Identity_0", "Identity", _ort.CPU, *identity)]
    placement = _ort.read_profile(events, runs=1)
    shares = {share.provider: share for share in placement.providers}
    inside = 29 + 14 + 7 + 30 + 16 + 7 + 34 + 19 + 7
    assert shares[GPU].nodes == 3  # the copy is none of the model's
    nodes_on_gpu = 35 + 417 + 29 + 14 + 30 + 16 + 34 + 19
    outside_nodes = 2873 - 35 - 417 - 2237  # waiting for the adapter and copying the output
    assert shares[GPU].time_s == pytest.approx((nodes_on_gpu + outside_nodes) / 1e6)
    assert shares[_ort.CPU].time_s == pytest.approx((2237 - inside + 3 * 7) / 1e6)
    assert sum(share.time_s or 0 for share in placement.providers) == pytest.approx(2873 / 1e6)
    assert placement.cpu_nodes[0].name == "Loop_1"


def test_nodes_of_the_same_name_in_a_graph_and_its_subgraph_are_two() -> None:
    events = [
        _run(0, 100),
        _event("Add_1", "Add", _ort.CPU, 10, 5, number=1),
        _event("Add_1", "Add", _ort.CPU, 20, 5, number=7),
    ]
    assert _ort.read_profile(events, runs=1).on(_ort.CPU) == 2


def test_an_empty_profile_places_nothing() -> None:
    assert _ort.read_profile([], runs=2).providers == ()


def _run(ts: int, dur: int) -> dict[str, object]:
    return {"cat": "Session", "name": "model_run", "ts": ts, "dur": dur, "tid": 1, "args": {}}


def _event(name: str, op: str, provider: str, ts: int, dur: int, number: int = 0) -> dict[str, object]:
    details = {"op_name": op, "provider": provider, "node_index": str(number)}
    return {"cat": "Node", "name": f"{name}_kernel_time", "ts": ts, "dur": dur, "tid": 1, "args": details}


def test_the_cpu_route_refuses_a_file_in_bf16(model: Model) -> None:
    (answer,) = ort_cpu.plans([CPU], msgspec.structs.replace(model, precision="bf16"), Request())
    assert isinstance(answer, Unsupported)
    assert "no kernels for bf16" in answer.reason
