"""The torch routes' refusals and choices; nothing here needs PyTorch."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import msgspec
import pytest

from wavefit.routes import _torch_build, _torch_env, torch_directml, torch_gpu
from wavefit.routes._torch_build import Build
from wavefit.schema import Device, Model, Plan, Request, TensorSpec

AMD = Device(id="gpu0", kind="gpu", vendor="amd", gfx="gfx1103", pci_address="0000:c1:00.0")
NVIDIA = Device(id="gpu1", kind="gpu", vendor="nvidia", pci_address="0000:01:00.0")
CPU = Device(id="cpu", kind="cpu")
MODEL = Model(
    name="net",
    path="/net.onnx",
    sha256="",
    opset=20,
    ir_version=10,
    inputs=(TensorSpec(name="image", dtype="float32", shape=("batch", 3, 8, 8)),),
    outputs=(TensorSpec(name="scores", dtype="float32", shape=("batch", 10)),),
    nodes=2,
    nodes_by_type={"Conv": 1, "Gemm": 1},
    parameters=1,
    weight_bytes=4,
    dynamic=("batch",),
    batch="batch",
    exported_program="/net.pt2",
)
ROCM = Build("2.9.1+rocm6.4", "6.4.43484-123eb5128", None)
CUDA = Build("2.11.0+cu130", None, "13.0")
CPU_ONLY = Build("2.13.0+cpu", None, None)


@pytest.fixture
def rocm(monkeypatch):
    monkeypatch.setattr(_torch_build, "installed", lambda: ROCM)
    monkeypatch.setattr(_torch_build, "compiler_refusal", lambda: None)


# torch/version.py of the wheels named, as they are.
WHEELS = {
    ROCM: "__version__ = '2.9.1+rocm6.4'\ncuda: Optional[str] = None\nhip: Optional[str] = '6.4.43484-123eb5128'\n",
    CUDA: "__version__ = '2.11.0+cu130'\ncuda: Optional[str] = '13.0'\nhip: Optional[str] = None\n",
    CPU_ONLY: "__version__ = '2.13.0+cpu'\ndebug = False\ncuda: Optional[str] = None\nhip: Optional[str] = None\n"
    "rocm: Optional[str] = None\n",
}


@pytest.mark.parametrize("build", list(WHEELS))
def test_a_build_is_read_from_its_version_file(build, tmp_path):
    path = tmp_path / "version.py"
    path.write_text(WHEELS[build])
    assert _torch_build.read(path) == build


def test_no_version_file_is_no_build(tmp_path):
    assert _torch_build.read(tmp_path / "version.py") is None


@pytest.mark.parametrize(
    ("build", "device", "reason", "fix"),
    [
        (
            None,
            AMD,
            "PyTorch is not installed",
            "pip install torch --index-url https://download.pytorch.org/whl/rocm",
        ),
        (CUDA, AMD, "2.11.0+cu130 is a CUDA build, gpu0 needs a ROCm build", "pip uninstall torch"),
        (ROCM, NVIDIA, "2.9.1+rocm6.4 is a ROCm build, gpu1 needs a CUDA build", "choosing CUDA"),
        (CPU_ONLY, AMD, "2.13.0+cpu is a CPU-only build, gpu0 needs a ROCm build", "pip uninstall torch"),
        (ROCM, Device(id="gpu0", kind="gpu", vendor="intel"), "gpu0 is from intel", "ort_webgpu"),
    ],
)
def test_a_build_that_cannot_run_there_is_refused(build, device, reason, fix, monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    refusal = _torch_build.refusal(build, device)
    assert refusal is not None
    assert reason in refusal.reason
    assert fix in refusal.fix


def test_windows_is_sent_to_amds_wheels(monkeypatch):
    monkeypatch.setattr(sys, "platform", "win32")
    refusal = _torch_build.refusal(None, AMD)
    assert refusal is not None
    assert "rocm.docs.amd.com" in refusal.fix


@pytest.mark.parametrize(("build", "device"), [(ROCM, AMD), (CUDA, NVIDIA)])
def test_a_fitting_build_is_not_refused(build, device):
    assert _torch_build.refusal(build, device) is None


def test_fp32_has_three_modes_and_keeps_the_layout(rocm):
    plans = torch_gpu.plans((CPU, AMD), MODEL, Request(batches=(4, 8)))
    assert [plan.options for plan in plans] == [{"mode": "eager"}, {"mode": "graph"}, {"mode": "compile"}]
    assert {(plan.device, plan.batch, plan.shapes["image"]) for plan in plans} == {("gpu0", 4, (4, 3, 8, 8))}


def test_fp16_convolutions_are_offered_channels_last_too(rocm, monkeypatch):
    plans = torch_gpu.plans((AMD,), MODEL, Request(precisions=("fp16",)))
    layouts = [(plan.options["mode"], plan.options.get("layout")) for plan in plans]
    assert layouts[3:] == [("graph", "channels_last"), ("compile", "channels_last")]
    monkeypatch.setattr(_torch_build, "installed", lambda: CUDA)  # there torch.compile sees to the layout
    on_nvidia = torch_gpu.plans((NVIDIA,), MODEL, Request(precisions=("fp16",)))
    assert [plan.options["mode"] for plan in on_nvidia] == ["eager", "graph", "compile", "graph"]


def test_without_convolutions_there_is_one_layout(rocm):
    dense = msgspec.structs.replace(MODEL, nodes_by_type={"Gemm": 1})
    assert len(torch_gpu.plans((AMD,), dense, Request(precisions=("fp16",)))) == 3


@pytest.mark.parametrize(
    ("gfx", "precision", "reason"),
    [
        ("gfx1030", "bf16", "gfx1030 has no bf16"),
        ("gfx90c", "bf16", "no bf16"),
        ("gfx1103", "int8", "no int8"),
    ],
)
def test_precisions_that_would_not_run_natively_are_refused(rocm, gfx, precision, reason):
    gpu = msgspec.structs.replace(AMD, gfx=gfx)
    (refusal,) = torch_gpu.plans((gpu,), MODEL, Request(precisions=(precision,)))
    assert reason in refusal.reason


@pytest.mark.parametrize("gfx", ["gfx908", "gfx90a", "gfx942", "gfx1100", "gfx1151", "gfx1201"])
def test_bf16_is_offered_where_the_instructions_are(rocm, gfx):
    gpu = msgspec.structs.replace(AMD, gfx=gfx)
    assert all(
        isinstance(plan, Plan) for plan in torch_gpu.plans((gpu,), MODEL, Request(precisions=("bf16",)))
    )


def test_an_onnx_file_alone_is_refused(rocm):
    (refusal,) = torch_gpu.plans((AMD,), msgspec.structs.replace(MODEL, exported_program=None), Request())
    assert "came as an ONNX file" in refusal.reason
    assert ".pt2" in refusal.fix


@pytest.mark.parametrize("dtype", ["string", "bfloat16", "float8_e4m3fn"])
def test_inputs_that_numpy_cannot_hand_over_are_refused(rocm, dtype):
    spec = TensorSpec(name="words", dtype=dtype, shape=("batch",))
    (refusal,) = torch_gpu.plans((AMD,), msgspec.structs.replace(MODEL, inputs=(spec,)), Request())
    assert refusal.reason == f"PyTorch takes no {dtype} arrays from NumPy, and 'words' is one"


def test_no_gpu_is_refused():
    (refusal,) = torch_gpu.plans((CPU,), MODEL, Request())
    assert refusal.reason == "no GPU is among the devices"


def test_without_a_compiler_the_other_modes_stay(rocm, monkeypatch, tmp_path):
    monkeypatch.undo()
    monkeypatch.setattr(_torch_build, "installed", lambda: ROCM)
    monkeypatch.setenv("PATH", str(tmp_path))
    refusal, *plans = torch_gpu.plans((AMD,), MODEL, Request())
    assert "torch.compile needs" in refusal.reason
    assert [plan.options["mode"] for plan in plans] == ["eager", "graph"]


def test_amd_builds_get_miopens_variables_in_folders_of_their_own(tmp_path):
    rocm = _torch_env.variables(ROCM, tmp_path, channels_last=True)
    assert rocm["MIOPEN_FIND_MODE"] == "HYBRID"
    assert rocm["PYTORCH_MIOPEN_SUGGEST_NHWC"] == "1"
    assert "2.9.1+rocm6.4-6.4.43484-123eb5128" in rocm["MIOPEN_USER_DB_PATH"]
    cuda = _torch_env.variables(CUDA, tmp_path, channels_last=True)
    assert not any("MIOPEN" in name for name in cuda)
    assert cuda["TORCHINDUCTOR_CACHE_DIR"] != rocm["TORCHINDUCTOR_CACHE_DIR"]
    assert "PYTORCH_MIOPEN_SUGGEST_NHWC" not in _torch_env.variables(ROCM, tmp_path, channels_last=False)


def test_a_variable_of_the_users_is_left_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("MIOPEN_FIND_MODE", "FAST")
    for name in _torch_env.variables(ROCM, tmp_path, channels_last=True):
        if name != "MIOPEN_FIND_MODE":
            monkeypatch.setenv(name, "set by another")
            monkeypatch.delenv(name)
    _torch_env.prepare(ROCM, tmp_path / "work", channels_last=False)
    import os

    assert os.environ["MIOPEN_FIND_MODE"] == "FAST"
    database = os.environ["MIOPEN_USER_DB_PATH"]
    assert database.startswith(str(tmp_path / "cache" / "wavefit"))
    assert (tmp_path / "cache" / "wavefit").is_dir()


def test_versions_without_pytorch_are_empty(monkeypatch):
    monkeypatch.setattr(_torch_build, "installed", lambda: None)
    assert torch_gpu.versions() == {}
    monkeypatch.setattr(_torch_build, "installed", lambda: ROCM)
    assert torch_gpu.versions()["torch.hip"] == "6.4.43484-123eb5128"


def test_directml_says_what_is_missing(monkeypatch, tmp_path):
    monkeypatch.setattr(torch_directml, "_WSL_GPU", tmp_path / "dxg")
    monkeypatch.setattr(sys, "platform", "linux")
    (refusal,) = torch_directml.plans((AMD,), MODEL, Request())
    assert refusal.reason == "DirectML is a part of Windows"
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(sys, "version_info", (3, 13, 1))
    (refusal,) = torch_directml.plans((AMD,), MODEL, Request())
    assert "no wheels for Python 3.13" in refusal.reason
    monkeypatch.setattr(sys, "version_info", (3, 12, 1))
    (refusal,) = torch_directml.plans((AMD,), MODEL, Request())
    assert "torch-directml is not installed" in refusal.reason
    monkeypatch.setattr(torch_directml, "version", lambda package: "0.2.5.dev240914")
    monkeypatch.setattr(_torch_build, "installed", lambda: Build("2.4.1+cpu", None, None))
    (refusal,) = torch_directml.plans((AMD,), MODEL, Request())
    assert refusal.reason.startswith(
        "PyTorch 2.4.1+cpu, which torch-directml pins, keeps exported programs as pickles"
    )
    monkeypatch.setattr(_torch_build, "installed", lambda: CPU_ONLY)
    fp32, fp16 = torch_directml.plans((AMD,), MODEL, Request(precisions=("fp32", "fp16")))
    assert isinstance(fp32, Plan)
    assert "in fp16" in fp16.reason


def test_directml_finds_an_adapter_by_name():
    from wavefit.errors import RouteError

    names = ["AMD Radeon(TM) 780M ", "NVIDIA GeForce RTX 4070"]
    dml = SimpleNamespace(device_count=lambda: 2, device_name=lambda index: names[index])
    radeon = Device(id="gpu0", kind="gpu", name="Radeon(TM) 780M")
    assert torch_directml._index(radeon, dml) == 0
    with pytest.raises(RouteError, match="none can be told to be gpu1"):
        torch_directml._index(Device(id="gpu1", kind="gpu", name="Radeon RX 7900"), dml)
