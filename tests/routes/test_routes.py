"""The contract of every route, found by its name: it answers on a machine without a GPU and imports no runtime."""

from __future__ import annotations

import subprocess
import sys

import pytest

from wavefit import routes
from wavefit.schema import Device, Model, Plan, Request, TensorSpec, Unsupported

CPU = Device(id="cpu", kind="cpu")
MODEL = Model(
    name="tiny",
    path="/nowhere/tiny.onnx",
    sha256="0" * 64,
    opset=17,
    ir_version=8,
    inputs=(TensorSpec(name="x", dtype="float32", shape=("N", 4)),),
    outputs=(TensorSpec(name="y", dtype="float32", shape=("N", 3)),),
    nodes=1,
    nodes_by_type={"MatMul": 1},
    parameters=12,
    weight_bytes=48,
    dynamic=("N",),
    batch="N",
)
RUNTIMES = ("onnxruntime", "torch", "torch_directml", "onnx", "tensorflow")


def test_every_route_of_the_design_is_found() -> None:
    expected = "native_hip native_opencl ort_cpu ort_directml ort_migraphx ort_rocm ort_webgpu torch_directml torch_gpu"
    assert routes.names() == expected.split()


def test_an_unknown_route_is_a_key_error() -> None:
    for name in ("nothing", "session", "_ort"):
        with pytest.raises(KeyError):
            routes.get(name)


@pytest.mark.parametrize("name", routes.names())
def test_without_a_gpu_each_route_refuses_with_reason_and_fix(name: str) -> None:
    answers = routes.get(name).plans([CPU], MODEL, Request(batches=(2,)))
    assert answers
    if name == "ort_cpu":
        assert answers == [Plan(route="ort_cpu", device="cpu", batch=2, shapes={"x": (2, 4)})]
        return
    for answer in answers:
        assert isinstance(answer, Unsupported)
        assert answer.route == name
        for sentence in (answer.reason, answer.fix):
            assert sentence
            assert "\n" not in sentence
            assert not sentence.endswith(".")


@pytest.mark.parametrize("name", routes.names())
def test_each_route_answers_where_there_is_no_device_at_all(name: str) -> None:
    answers = routes.get(name).plans([], MODEL, Request())
    assert answers
    assert all(isinstance(answer, Unsupported) and answer.reason and answer.fix for answer in answers)


@pytest.mark.parametrize("name", routes.names())
def test_a_route_imports_no_runtime_before_it_opens_a_plan(name: str) -> None:
    code = (
        "import sys\n"
        "from wavefit import routes\n"
        "from wavefit.schema import Device, Request\n"
        f"from test_routes import MODEL\n"
        f"route = routes.get({name!r})\n"
        "gpu = Device(id='gpu0', kind='gpu', vendor='amd', gfx='gfx1100')\n"
        "route.plans([Device(id='cpu', kind='cpu'), gpu], MODEL, Request(precisions=('fp32', 'fp16')))\n"
        "versions = route.versions()\n"
        "assert all(isinstance(part, str) for pair in versions.items() for part in pair), versions\n"
        f"print([name for name in {RUNTIMES!r} if name in sys.modules])\n"
    ).replace("from test_routes import MODEL\n", f"MODEL = {_as_code()}\n")
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def _as_code() -> str:
    """The model, for a program in another process."""
    from wavefit.schema import encode

    return f"__import__('wavefit.schema').schema.decode({encode(MODEL)!r}, __import__('wavefit.schema').schema.Model)"


def test_the_cpu_is_in_the_table_whatever_precision_is_asked_for() -> None:
    pytest.importorskip("onnxruntime")
    answers = routes.get("ort_cpu").plans([CPU], MODEL, Request(precisions=("fp16",)))
    assert [answer.precision for answer in answers if isinstance(answer, Plan)] == ["fp32"]
    assert ["fp16" in answer.reason for answer in answers if isinstance(answer, Unsupported)] == [True]
