"""The engine's route in Triton: what it refuses and why, and what it computes on the interpreter."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from msgspec.structs import replace
from native.triton.harness import submit  # type: ignore[import-not-found]

from wavefit.device import catalogue
from wavefit.device.probe import probe
from wavefit.model.load import load
from wavefit.routes import native_hip
from wavefit.schema import Plan, Request, Unsupported

CPU = next(device for device in probe() if device.kind == "cpu")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stem, a pool, a bottleneck's tail and a dense layer, with a symbolic batch."""
    rng = np.random.default_rng(0)
    weights = {
        "w1": (16, 3, 3, 3),
        "w2": (32, 16, 1, 1),
        "w3": (16, 32, 1, 1),
        "w4": (16 * 3 * 3, 10),
    }
    nodes = [
        onnx.helper.make_node("Conv", ["x", "w1"], ["a"], pads=[1] * 4, strides=[2, 2]),
        onnx.helper.make_node("Relu", ["a"], ["b"]),
        onnx.helper.make_node("Conv", ["b", "w2"], ["c"]),
        onnx.helper.make_node("Relu", ["c"], ["d"]),
        onnx.helper.make_node("Conv", ["d", "w3"], ["e"]),
        onnx.helper.make_node("MaxPool", ["e"], ["f"], kernel_shape=[2, 2], strides=[2, 2]),
        onnx.helper.make_node("Flatten", ["f"], ["g"]),
        onnx.helper.make_node("MatMul", ["g", "w4"], ["y"]),
    ]
    arrays = [
        onnx.numpy_helper.from_array((rng.standard_normal(shape) * 0.3).astype(np.float32), name)
        for name, shape in weights.items()
    ]
    float32 = onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph(
        nodes,
        "small",
        [onnx.helper.make_tensor_value_info("x", float32, ["N", 3, 12, 12])],
        [onnx.helper.make_tensor_value_info("y", float32, ["N", 10])],
        arrays,
    )
    file = tmp_path_factory.mktemp("hip") / "small.onnx"
    onnx.save(
        onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9), file
    )
    return file


def request(*precisions: str) -> Request:
    return Request(routes=("native_hip",), precisions=precisions or ("fp32",), batches=(2,))


def test_a_gpu_without_matrix_units_is_sent_to_opencl(path, monkeypatch):
    monkeypatch.setattr(native_hip._torch_build, "refusal", lambda build, device: None)
    for product in ("gfx90c", "gfx1030", "gfx906"):
        device = catalogue.device_of(product)
        (answer,) = native_hip.plans([device], load(path), request())
        assert isinstance(answer, Unsupported)
        assert product in answer.reason
        assert "native_opencl" in answer.fix


def test_the_cpu_build_of_pytorch_is_refused_on_a_gpu_with_the_install(path):
    (answer,) = native_hip.plans([catalogue.device_of("gfx942")], load(path), request())
    assert isinstance(answer, Unsupported)
    assert "CPU build" in answer.reason or "needs a ROCm build" in answer.reason
    assert "pip" in answer.fix


def test_without_triton_it_names_the_extra(path, monkeypatch):
    monkeypatch.setattr(native_hip.importlib.util, "find_spec", lambda name: None)
    (answer,) = native_hip.plans([catalogue.device_of("gfx942")], load(path), request())
    assert isinstance(answer, Unsupported)
    assert answer.fix == "pip install 'wavefit[hip]'"


def test_the_cpu_is_only_for_who_asks(path):
    (answer,) = native_hip.plans([CPU], load(path), replace(request(), routes=()))
    assert isinstance(answer, Unsupported)


def _run(path: str, plan: Plan, x: np.ndarray) -> tuple[np.ndarray, object, list[np.ndarray]]:
    session = native_hip.open(plan, load(Path(path)), CPU, Path(path).parent)
    first = session.run({"x": x})["y"]
    placement = session.placement()
    streamed = [each["y"] for each in session.stream([{"x": x}, {"x": -x}])]
    session.close()
    return first, placement, streamed


@pytest.mark.parametrize(("precision", "most"), [("fp32", 1e-5), ("fp16", 3e-3)])
def test_the_answers_are_onnxruntimes(path, precision, most):
    onnxruntime = pytest.importorskip("onnxruntime")
    (plan,) = native_hip.plans([CPU], load(path), request(precision))
    assert isinstance(plan, Plan), plan
    x = np.random.default_rng(2).standard_normal((2, 3, 12, 12)).astype(np.float32)
    got, placement, streamed = submit(_run, str(path), plan, x)
    reference = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (want,), (negative,) = (reference.run(None, {"x": each}) for each in (x, -x))
    assert np.linalg.norm(got - want) <= most * np.linalg.norm(want)
    for one, other in zip(streamed, (want, negative), strict=True):
        assert np.linalg.norm(one - other) <= most * np.linalg.norm(other)
    assert [share.provider for share in placement.providers] == ["native HIP"]


def test_bf16_is_refused_where_the_interpreter_would_multiply_its_bits(path):
    (answer,) = native_hip.plans([CPU], load(path), request("bf16"))
    assert isinstance(answer, Unsupported)
    assert "bf16" in answer.reason


def test_a_bundle_carries_what_opens_it_elsewhere_without_compiling(path, tmp_path, monkeypatch):
    """Compiled here for a GPU that is not here: the folder alone is enough, as on a server with an empty cache."""
    from wavefit.native.limits import for_matrix, of_device
    from wavefit.native.triton import recipe, runner
    from wavefit.native.triton.chooser import Chooser
    from wavefit.native.triton.compile import of_gfx
    from wavefit.native.triton.compilers import compile_all

    device = catalogue.device_of("gfx942")
    plan = Plan(
        route="native_hip",
        device=device.id,
        precision="fp16",
        batch=2,
        shapes={"x": (2, 3, 12, 12)},
        options={"storage": "fp16"},
    )
    model, bundle = load(path), tmp_path / "a.wavefit"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(runner, "target_of", lambda found: of_gfx("gfx942"))
    assert native_hip.carried(plan, model, device) == {}
    chooser = Chooser(for_matrix(of_device(device), device))
    program = native_hip._program(plan, model, chooser)
    folder = native_hip.compiled_folder(plan, model, device)
    compile_all([step.kernel for step in program.steps], of_gfx("gfx942"), folder, lambda _: None, 120)
    recipe.save(chooser, folder)
    for name, file in native_hip.carried(plan, model, device).items():
        (bundle / name).parent.mkdir(parents=True, exist_ok=True)
        (bundle / name).write_bytes(file.read_bytes())
    shutil.rmtree(tmp_path / "cache")

    def found(where: object = device, at: Plan = plan) -> object:
        return native_hip._carried_program(at, model, where, None, bundle)

    assert found().steps == program.steps
    assert (
        found(replace(device, peaks={})).steps == program.steps
    )  # not chosen anew by this machine's figures
    assert found(catalogue.device_of("gfx1100")) is None
    assert found(at=replace(plan, shapes={"x": (3, 3, 12, 12)})) is None
    one = next(bundle.rglob("kernel.json"))
    one.unlink()
    assert found() is None


def test_a_profile_tells_every_launch(path, tmp_path):
    from wavefit import child
    from wavefit.native.profiling import Profile, Profiling

    shapes = {"x": (2, 3, 12, 12)}
    payload = Profiling(model=load(path), device=CPU, batch=2, shapes=shapes, sizes={}, half=True, batches=2)
    function = "wavefit.routes._native_hip_profile:profile"
    answer = child.run(function, payload, Profile, 120.0, tmp_path, lambda text: None)
    assert isinstance(answer, Profile), answer
    assert {"Conv", "MatMul"} <= {each.op for each in answer.launches}
    assert all(each.seconds > 0 for each in answer.launches)
    convolved = sum(each.flops for each in answer.launches if each.op in ("Conv", "Chain"))
    assert convolved == 2 * 2 * 36 * (27 * 16 + 16 * 32 + 32 * 16)
    assert answer.batch_s is not None
    assert answer.graph_s is None  # a graph is a GPU's
