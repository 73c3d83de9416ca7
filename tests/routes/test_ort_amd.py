"""Which plans the AMD routes offer, and the refusals: GPU, system, packages, targets, precisions, ROCm versions.

The packages themselves are tried in test_ort_packages.py; here their metadata and the strings of their library stand
in a folder, since what is tested only reads them.
"""

from __future__ import annotations

import ctypes
import platform
import sys
from pathlib import Path

import msgspec
import pytest
from fakes import sysfs

from wavefit import routes
from wavefit.errors import RouteError
from wavefit.routes import (
    _cache,
    _gpus,
    _packages,
    _rocm,
    _vulkan,
    ort_directml,
    ort_migraphx,
    ort_rocm,
    ort_webgpu,
)
from wavefit.schema import Device, Model, Plan, Precision, Request, Runtime, TensorSpec, Unsupported

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
CPU = Device(id="cpu", kind="cpu")
ALL: tuple[Precision, ...] = ("fp32", "fp16", "bf16", "int8")

linux = pytest.mark.skipif(sys.platform != "linux", reason="ROCm's routes are for Linux")


def gpu(gfx: str | None = "gfx1100", number: int = 0, **known: object) -> Device:
    device = Device(
        id=f"gpu{number}", kind="gpu", vendor="amd", gfx=gfx, pci_address=f"0000:0{number + 3}:00.0"
    )
    return msgspec.structs.replace(device, **known)


class Site:
    """A folder of installed packages, the only one that is seen."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def install(self, package: str, version: str, library: str = "", strings: str = "") -> None:
        info = self._folder / f"{package.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
        if library:
            capi = self._folder / "onnxruntime" / "capi"
            capi.mkdir(parents=True, exist_ok=True)
            (self._folder / "onnxruntime" / "__init__.py").touch()
            (capi / f"lib{library}.so").write_bytes(b"\x7fELF\0" + strings.encode() + b"\0")

    def migraphx(
        self, strings: str = "migraphx_fp16_enable migraphx_bf16_enable migraphx_model_cache_dir"
    ) -> None:
        self.install("onnxruntime-migraphx", "1.27.1", "onnxruntime_providers_migraphx", strings)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    for name in [name for name in sys.modules if name.partition(".")[0] == "onnxruntime"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    return Site(tmp_path)


def refusals(
    name: str, devices: list[Device], request: Request | None = None, model: Model = MODEL
) -> list[Unsupported]:
    answers = routes.get(name).plans(devices, model, request or Request())
    assert all(isinstance(answer, Unsupported) for answer in answers), answers
    return [answer for answer in answers if isinstance(answer, Unsupported)]


# ---- Packages -------------------------------------------------------------------------------------------------------


@linux
def test_a_missing_package_is_named_with_its_extra(site: Site) -> None:
    (answer,) = refusals("ort_migraphx", [CPU, gpu()])
    assert answer.reason == "the package onnxruntime-migraphx is not installed"
    assert answer.fix == "pip install 'wavefit[migraphx]'"


@linux
def test_another_build_in_its_place_is_removed_first(site: Site) -> None:
    site.install("onnxruntime", "1.32.0")
    (answer,) = refusals("ort_migraphx", [CPU, gpu()])
    assert "onnxruntime 1.32.0 has no such provider" in answer.reason
    assert answer.fix == "pip uninstall -y onnxruntime && pip install 'wavefit[migraphx]'"


@linux
def test_two_builds_in_one_folder_are_refused_and_both_are_named(site: Site) -> None:
    site.install("onnxruntime", "1.32.0")
    site.migraphx()
    (answer,) = refusals("ort_migraphx", [CPU, gpu()])
    assert (
        answer.reason
        == "onnxruntime-migraphx 1.27.1 and onnxruntime 1.32.0 share one folder and overwrite each other"
    )
    assert (
        answer.fix == "pip uninstall -y onnxruntime-migraphx onnxruntime && pip install 'wavefit[migraphx]'"
    )


def test_every_build_is_known_by_the_metadata_alone(site: Site) -> None:
    for package in _packages.BUILDS:
        site.install(package, "1.0")
    assert _packages.installed() == dict.fromkeys(_packages.BUILDS, "1.0")


# ---- MIGraphX -------------------------------------------------------------------------------------------------------


@linux
def test_migraphx_plans_what_its_library_knows(site: Site) -> None:
    site.migraphx()
    answers = ort_migraphx.plans([CPU, gpu()], MODEL, Request(precisions=ALL, batches=(4,)))
    plans = [answer for answer in answers if isinstance(answer, Plan)]
    assert [plan.precision for plan in plans] == ["fp32", "fp16", "bf16"]
    assert all(plan.shapes == {"x": (4, 4)} and plan.batch == 4 and plan.device == "gpu0" for plan in plans)
    (int8,) = [answer for answer in answers if isinstance(answer, Unsupported)]
    assert "calibration table" in int8.reason


@linux
def test_an_option_that_the_version_lacks_is_refused_and_not_tried(site: Site) -> None:
    site.migraphx(strings="migraphx_fp16_enable")
    answers = ort_migraphx.plans([gpu()], MODEL, Request(precisions=("fp16", "bf16")))
    assert isinstance(answers[0], Plan)
    assert isinstance(answers[1], Unsupported)
    assert answers[1].reason == "onnxruntime-migraphx 1.27.1 has no option migraphx_bf16_enable"
    assert answers[1].fix == "pip install --upgrade onnxruntime-migraphx"


@linux
@pytest.mark.parametrize("gfx", ["gfx803", "gfx90c", "gfx1036", "gfx1031"])
def test_migraphx_refuses_targets_that_no_release_lists(gfx: str, site: Site) -> None:
    site.migraphx()
    (answer,) = refusals("ort_migraphx", [CPU, gpu(gfx)])
    assert answer.device == "gpu0"
    assert (
        answer.reason == f"neither AMD's lists of GPUs for MIGraphX nor rocBLAS, which it needs, have {gfx}"
    )
    assert "ort_webgpu" in answer.fix


@pytest.mark.parametrize(
    ("gfx", "rocm", "refused"),
    [
        ("gfx1103", "7.2.4", True),  # rocBLAS without kernels ended the process
        ("gfx1103", "10.1.0", True),
        ("gfx1103", "10.2.0", False),  # first listed for MIGraphX 2.19
        ("gfx1103", None, False),  # unknown: tried
        ("gfx1100", "6.4.1", False),
        ("gfx942", "10.2.0", False),
        ("gfx1030", "6.4.1", False),  # in rocBLAS, in no list: tried
        (None, "7.2.4", False),
    ],
)
def test_migraphx_targets_by_rocm_version(gfx: str | None, rocm: str | None, refused: bool) -> None:
    assert bool(ort_migraphx._target_problem(gfx, rocm)) == refused


@linux
def test_rdna2_has_no_bf16(site: Site) -> None:
    site.migraphx()
    (answer,) = refusals("ort_migraphx", [gpu("gfx1030")], Request(precisions=("bf16",)))
    assert answer.reason == "gfx1030 has no bf16 arithmetic"


@linux
def test_a_model_with_text_is_refused_beforehand(site: Site) -> None:
    site.migraphx()
    model = msgspec.structs.replace(MODEL, inputs=(TensorSpec(name="words", dtype="string", shape=("N",)),))
    (answer,) = refusals("ort_migraphx", [gpu()], model=model)
    assert "no string tensors" in answer.reason
    assert "'words'" in answer.reason


@linux
@pytest.mark.parametrize(
    "name", ["ORT_MIGRAPHX_FP16_ENABLE", "ORT_MIGRAPHX_MODEL_CACHE_PATH", "ORT_MIGRAPHX_COMPILE_BATCHES"]
)
def test_variables_that_override_the_plan_are_refused(
    name: str, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.migraphx()
    monkeypatch.setenv(name, "1")
    (answer,) = refusals("ort_migraphx", [gpu()])
    assert name in answer.reason
    assert answer.fix == f"unset {name}"


@linux
def test_the_compile_cache_is_another_for_all_that_a_program_depends_on(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    plan = Plan(route="ort_migraphx", device="gpu0", shapes={"x": (1, 4)})
    replace = msgspec.structs.replace
    folders = [
        ort_migraphx._cache_folder(plan, MODEL, gpu()),
        ort_migraphx._cache_folder(replace(plan, precision="fp16"), MODEL, gpu()),
        ort_migraphx._cache_folder(replace(plan, shapes={"x": (2, 4)}), MODEL, gpu()),
        ort_migraphx._cache_folder(plan, replace(MODEL, sha256="1" * 64), gpu()),
        ort_migraphx._cache_folder(plan, MODEL, gpu("gfx1101")),
    ]
    site.migraphx()
    folders.append(ort_migraphx._cache_folder(plan, MODEL, gpu()))
    monkeypatch.setenv("MIGRAPHX_DISABLE_MLIR", "1")
    folders.append(ort_migraphx._cache_folder(plan, MODEL, gpu()))
    assert len(set(folders)) == len(folders)
    assert all(folder.is_dir() and folder.parent == tmp_path / "cache/wavefit/migraphx" for folder in folders)
    assert ort_migraphx._cache_folder(plan, replace(MODEL, name="renamed"), gpu()) == folders[-1]


@linux
def test_a_home_that_cannot_be_written_still_has_a_cache_for_the_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocker = tmp_path / "file"
    blocker.touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocker / "below"))
    plan = Plan(route="ort_migraphx", device="gpu0", shapes={"x": (1, 4)})
    folder = ort_migraphx._writable_cache(plan, MODEL, gpu(), tmp_path)
    assert folder == tmp_path / "migraphx" / "session"
    assert folder.is_dir()


def test_a_cache_lies_below_the_base_that_is_given(tmp_path: Path) -> None:
    assert _cache.compile_cache("migraphx", "key", base=tmp_path) == tmp_path / "migraphx" / "key"


@linux
def test_opening_without_the_package_is_refused_too(site: Site, tmp_path: Path) -> None:
    for route in ("ort_migraphx", "ort_rocm", "ort_webgpu", "ort_directml"):
        plan = Plan(route=route, device="gpu0", shapes={"x": (1, 4)})
        with pytest.raises(RouteError) as caught:
            routes.get(route).open(plan, MODEL, gpu(), tmp_path)
        assert caught.value.fix


# ---- ROCm -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rocm", "refused"),
    [("6.4.3", False), ("7.0.2", False), ("7.1.0", True), ("10.2.0", True), (None, False)],
)
def test_the_rocm_provider_ends_with_rocm_7_0(rocm: str | None, refused: bool) -> None:
    problem = ort_rocm._version_problem(rocm)
    assert bool(problem) == refused
    if problem:
        assert "ROCm 7.0" in problem[0]
        assert "ort_migraphx" in problem[1]


@linux
@pytest.mark.parametrize("gfx", ["gfx1103", "gfx1036", "gfx90c", "gfx950"])
def test_the_rocm_provider_has_no_kernels_for_others(gfx: str, site: Site) -> None:
    site.install("onnxruntime-rocm", "1.22.2")
    (answer,) = refusals("ort_rocm", [gpu(gfx)])
    assert f"no kernels for {gfx}" in answer.reason
    assert "ort_migraphx" in answer.fix


@linux
def test_the_rocm_provider_plans_fp32_alone(site: Site) -> None:
    site.install("onnxruntime-rocm", "1.22.2")
    answers = ort_rocm.plans(
        [CPU, gpu("gfx1100"), gpu("gfx942", 1)], MODEL, Request(precisions=("fp32", "fp16"))
    )
    assert [(type(answer), answer.device) for answer in answers] == [
        (Plan, "gpu0"),
        (Unsupported, "gpu0"),
        (Plan, "gpu1"),
        (Unsupported, "gpu1"),
    ]


def test_rocm_version_is_read_where_amd_writes_it(tmp_path: Path) -> None:
    assert _rocm.rocm_version(tmp_path) == _packages.version("rocm-sdk-core")
    info = tmp_path / "opt/rocm/.info"
    info.mkdir(parents=True)
    (info / "version").write_text("7.0.2-56\n")
    assert _rocm.rocm_version(tmp_path) == "7.0.2"
    core = tmp_path / "ten/opt/rocm/core-10.0/.info"
    core.mkdir(parents=True)
    (core / "version").write_text("10.0.0\n")
    assert _rocm.rocm_version(tmp_path / "ten") == "10.0.0", "below a folder of its version, from 7.14 on"
    assert _packages.numbers("7.0.2") == (7, 0, 2)
    assert _packages.numbers("10.0") > _packages.numbers("7.2.4"), "as numbers and not as text"


def test_the_hip_index_is_the_runtimes_own_or_the_place_among_amd_gpus() -> None:
    other = Device(id="gpu0", kind="gpu", vendor="nvidia", pci_address="0000:01:00.0")
    first, second = gpu(number=1), gpu(number=2)
    everything = [CPU, other, first, second]
    assert [_rocm.hip_index(device, everything) for device in (first, second)] == [0, 1]
    told = gpu(number=1, runtimes=(Runtime(name="hip", index=5),))
    assert _rocm.hip_index(told, everything) == 5
    with pytest.raises(RouteError, match="which of 2 AMD GPUs"):
        _rocm.hip_index(gpu(number=7), everything)


def test_the_hip_index_is_the_place_in_the_compute_drivers_list(tmp_path: Path) -> None:
    """KFD's nodes are HIP's order, whatever the bus says: ROCr takes them one after another."""
    first, second = gpu(number=1), gpu(number=2)
    for node, device in ((1, second), (2, first)):
        properties = sysfs.gpu_properties(device.pci_address or "", simd_count=192, simd_per_cu=2)
        sysfs.kfd_node(tmp_path, node, properties)
    assert [_rocm.hip_index(device, [first, second], tmp_path) for device in (first, second)] == [1, 0]
    third = gpu(number=3)
    assert _rocm.hip_index(third, [first, second, third], tmp_path) == 2, "not in the list: the bus's order"


def test_the_hip_index_follows_the_variables_that_renumber_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """HIP counts what is left: https://rocm.docs.amd.com/en/latest/conceptual/gpu-isolation.html."""
    first, second = gpu(number=1), gpu(number=2)
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "1")
    assert _rocm.hip_index(second, [first, second]) == 0
    assert _rocm.hip_index(second, [second]) == 0
    with pytest.raises(RouteError, match="HIP_VISIBLE_DEVICES=1 hides gpu1"):
        _rocm.hip_index(first, [first, second])
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "1,0")
    assert [_rocm.hip_index(device, [first, second]) for device in (first, second)] == [1, 0]
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "GPU-0f1e2d3c4b5a6978")
    with pytest.raises(RouteError, match="which GPU is gpu1 in HIP is not known"):
        _rocm.hip_index(first, [first, second])


@pytest.mark.parametrize("system", ["Windows", "Darwin"])
def test_rocm_routes_are_refused_off_linux(system: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "system", lambda: system)
    for name in ("ort_migraphx", "ort_rocm"):
        (answer,) = refusals(name, [CPU, gpu()])
        assert system in answer.reason
        assert "--route" in answer.fix


# ---- DirectML -------------------------------------------------------------------------------------------------------


@linux
def test_directml_is_refused_off_windows() -> None:
    (answer,) = refusals("ort_directml", [CPU, gpu()])
    assert answer.reason == "DirectML is a part of Windows, this is Linux"


def test_directml_plans_on_windows(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Windows")
    site.install("onnxruntime-directml", "1.24.4")
    big, small, twin = gpu(number=0), gpu("gfx1103", 1, integrated=True), gpu(number=2)
    answers = ort_directml.plans([CPU, big, small, twin], MODEL, Request())
    assert [type(answer) for answer in answers] == [Plan, Plan, Unsupported]
    assert isinstance(answers[2], Unsupported)
    assert "gpu0" in answers[2].reason


def test_directml_options_point_at_the_gpu() -> None:
    assert ort_directml._options(gpu(runtimes=(Runtime(name="dxgi", index=1),))) == {"device_id": "1"}
    assert ort_directml._options(gpu(integrated=True))["performance_preference"] == "minimum_power"
    assert ort_directml._options(gpu(integrated=False))["performance_preference"] == "high_performance"


def test_directml_session_options_are_sequential_without_memory_patterns() -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.execution_mode = onnxruntime.ExecutionMode.ORT_PARALLEL
    ort_directml._configure(options)
    assert options.enable_mem_pattern is False
    assert options.execution_mode == onnxruntime.ExecutionMode.ORT_SEQUENTIAL


# ---- WebGPU ---------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.version_info < (3, 11), reason="another refusal comes first")
def test_webgpu_names_both_packages(site: Site) -> None:
    (answer,) = refusals("ort_webgpu", [CPU, gpu()])
    assert answer.reason == "neither onnxruntime-ep-webgpu nor onnxruntime-webgpu is installed"
    assert answer.fix == "pip install 'wavefit[webgpu]'"


@pytest.mark.parametrize(
    ("packages", "reason"),
    [
        ({"onnxruntime": "1.22.1", "onnxruntime-ep-webgpu": "0.4.0"}, "needs ONNX Runtime 1.23 or newer"),
        ({"onnxruntime-ep-webgpu": "0.4.0"}, "without ONNX Runtime"),
        ({"onnxruntime": "1.32.0", "onnxruntime-webgpu": "1.27.0"}, "share one folder"),
    ],
)
def test_webgpu_packages_that_do_not_fit(packages: dict[str, str], reason: str, site: Site) -> None:
    for package, version in packages.items():
        site.install(package, version)
    (answer,) = refusals("ort_webgpu", [CPU, gpu()])
    assert reason in answer.reason
    assert "pip install" in answer.fix


@pytest.mark.parametrize(
    "packages",
    [
        {"onnxruntime": "1.32.0", "onnxruntime-ep-webgpu": "0.4.0"},
        {"onnxruntime-migraphx": "1.27.1", "onnxruntime-ep-webgpu": "0.4.0"},
        {"onnxruntime-webgpu": "1.27.0"},
    ],
)
def test_webgpu_takes_any_vendors_gpu(packages: dict[str, str], site: Site) -> None:
    for package, version in packages.items():
        site.install(package, version)
    intel = Device(id="gpu0", kind="gpu", vendor="intel", integrated=True)
    (answer,) = ort_webgpu.plans([CPU, intel], MODEL, Request())
    assert isinstance(answer, Plan)
    assert ort_webgpu.versions() == packages


def adapter(kind: _vulkan.Kind, pci_id: str = "1002:744c") -> _vulkan.Adapter:
    vendor, device = (int(part, 16) for part in pci_id.split(":"))
    return _vulkan.Adapter(f"{kind} adapter", kind, vendor, device)


LAVAPIPE = _vulkan.Adapter("llvmpipe (LLVM 15.0.6, 256 bits)", "cpu", 0x10005, 0)  # as Mesa 25.0.7 reports it


def test_a_software_adapter_is_never_taken_for_a_gpu() -> None:
    with pytest.raises(RouteError, match=r"llvmpipe .* is software on the CPU"):
        ort_webgpu._check_adapter(gpu(pci_id=None), [LAVAPIPE])
    with pytest.raises(RouteError, match="Vulkan sees no GPU"):
        ort_webgpu._check_adapter(gpu(), [])


def test_webgpu_must_land_on_the_plans_gpu() -> None:
    discrete, integrated = adapter("discrete", "1002:744c"), adapter("integrated", "1002:15bf")
    found = [LAVAPIPE, integrated, discrete]
    ort_webgpu._check_adapter(gpu(pci_id="1002:744C"), found)
    ort_webgpu._check_adapter(gpu(pci_id="1002:15bf", integrated=True), found)
    with pytest.raises(RouteError, match="would run on discrete adapter"):
        ort_webgpu._check_adapter(gpu(pci_id="1002:15bf"), found)
    with pytest.raises(RouteError, match="1002:15bf"):
        ort_webgpu._check_adapter(gpu(pci_id="10de:2335"), [integrated])


def test_a_runtime_that_cannot_tell_twins_apart_takes_the_first() -> None:
    devices = [CPU, gpu(number=0), gpu(number=1, integrated=True), gpu(number=2, integrated=False)]
    assert _gpus.hidden(devices[1], devices, "WebGPU") is None
    assert _gpus.hidden(devices[2], devices, "WebGPU") is None
    problem = _gpus.hidden(devices[3], devices, "WebGPU")
    assert problem is not None
    assert "cannot be told to use gpu2" in problem[0]


def _has_vulkan() -> bool:
    try:
        ctypes.CDLL("vulkan-1.dll" if sys.platform == "win32" else "libvulkan.so.1")
    except OSError:
        return False
    return True


@pytest.mark.skipif(_has_vulkan(), reason="Vulkan is installed")
def test_without_vulkan_the_missing_library_is_named() -> None:
    with pytest.raises(RouteError, match=r"Vulkan is not installed: .*vulkan.* is missing") as caught:
        _vulkan.adapters()
    assert "libvulkan1" in caught.value.fix


@pytest.mark.skipif(not _has_vulkan(), reason="Vulkan is not installed")
def test_vulkan_is_asked_for_its_adapters() -> None:
    try:
        found = _vulkan.adapters()
    except RouteError:
        pytest.skip("no Vulkan driver works here")
    assert all(one.name and one.vendor_id for one in found)
