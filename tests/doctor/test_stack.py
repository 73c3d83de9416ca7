from __future__ import annotations

import json
from pathlib import Path

from fakes import software, sysfs

from wavefit.doctor.machine import Machine
from wavefit.doctor.nodes import RECORDING
from wavefit.doctor.stack import examination, stack
from wavefit.schema import Finding, Layer, Part


def parts(machine: Machine) -> dict[str, Part]:
    return {part.name: part for part in stack(machine, "0.2.0")}


def problem(layer: Layer, title: str) -> Finding:
    return Finding(check="c", layer=layer, status="problem", title=title)


def test_every_layer_as_it_is(tmp_path: Path) -> None:
    files = {
        "opt/rocm/.info/version": "7.1.0-42",
        "opt/rocm/lib/libamdhip64.so.7": "",
        "etc/OpenCL/vendors/amdocl64_70100_42.icd": "libamdocl64.so",
        "usr/share/vulkan/icd.d/radeon_icd.x86_64.json": "{}",
        "usr/share/vulkan/icd.d/lvp_icd.x86_64.json": "{}",
        RECORDING.lstrip("/"): json.dumps({"nodes": [{"path": "/dev/kfd", "errno": 0}]}),
    }
    packages = {"torch": "2.9.0", "onnxruntime-migraphx": "1.27.1"}
    machine = software.machine(tmp_path, "card apu", None, packages, {"torch": software.ROCM}, files)
    found = parts(machine)
    assert {name: (part.state, part.version) for name, part in found.items() if name != "wavefit"} == {
        "Python": ("ok", "3.12.3"),
        "PyTorch": ("ok", "2.9.0+rocm6.4"),
        "onnxruntime-migraphx": ("ok", "1.27.1"),
        "HIP (ROCm)": ("ok", "7.1.0-42"),
        "OpenCL": ("ok", None),
        "Vulkan": ("ok", None),
        "Linux": ("ok", "6.14.0-29-generic"),
        "amdgpu": ("ok", "in-tree"),
        "/dev/kfd": ("ok", None),
        "AMD Ryzen 7 7840U w/ Radeon 780M Graphics": ("ok", None),
        "AMD GPU": ("ok", "gfx1103"),  # the last of two
    }
    assert "amdocl64" in found["OpenCL"].detail
    assert "radeon" in found["Vulkan"].detail


def test_a_node_that_does_not_open(tmp_path: Path) -> None:
    nodes = {"nodes": [{"path": "/dev/kfd", "errno": 13}]}
    machine = software.machine(tmp_path, files={RECORDING.lstrip("/"): json.dumps(nodes)})
    assert parts(machine)["/dev/kfd"].state == "broken"
    assert "EACCES" in parts(machine)["/dev/kfd"].detail
    assert parts(software.machine(tmp_path / "unknown"))["/dev/kfd"].state == "unknown"


def test_what_is_missing_and_what_is_only_unused(tmp_path: Path) -> None:
    with_gpu = parts(software.machine(tmp_path / "gpu"))
    assert {with_gpu[name].state for name in ("PyTorch", "ONNX Runtime", "HIP (ROCm)", "OpenCL")} == {
        "missing"
    }
    without = parts(software.machine(tmp_path / "none", gpus=""))
    assert {without[name].state for name in ("HIP (ROCm)", "OpenCL", "amdgpu")} == {"unused"}
    nobody = parts(Machine(tmp_path / "gpu"))
    assert nobody["Python"].state == "unknown", "no process was recorded"


def test_a_software_vulkan_is_no_driver_for_the_gpu(tmp_path: Path) -> None:
    files = {"usr/share/vulkan/icd.d/lvp_icd.x86_64.json": "{}"}
    assert parts(software.machine(tmp_path, files=files))["Vulkan"].state == "missing"


def test_the_lowest_problem_comes_first(tmp_path: Path) -> None:
    found = [problem("framework", "wheel"), problem("environment", "group"), problem("hardware", "unplugged")]
    result = examination(software.machine(tmp_path), found, "0.2.0")
    assert [finding.title for finding in result.findings] == ["unplugged", "group", "wheel"]
    assert not result.usable
    assert result.sentence == "3 problems stand in the way. Begin with the lowest: unplugged."


def test_without_a_gpu_it_says_what_is_left(tmp_path: Path) -> None:
    bare = examination(software.machine(tmp_path / "bare", gpus=""), [], "0.2.0")
    assert bare.usable
    assert "pip install 'wavefit[cpu]'" in bare.sentence
    assert "pip install 'pyopencl[pocl]'" in bare.sentence
    half = examination(
        software.machine(tmp_path / "half", gpus="", packages={"onnxruntime": "1.32.0"}), [], "0.2.0"
    )
    assert "ONNX Runtime, and pip install 'pyopencl[pocl]' lets OpenCL kernels run" in half.sentence
    packages = {"onnxruntime": "1.32.0", "pyopencl": "2026.1", "pocl-binary-distribution": "3.0"}
    able = examination(software.machine(tmp_path / "able", gpus="", packages=packages), [], "0.2.0")
    assert "ONNX Runtime" in able.sentence
    assert "OpenCL" in able.sentence


def test_a_recording_of_the_hardware_alone_leaves_the_rest_unknown(tmp_path: Path) -> None:
    sysfs.card(tmp_path)
    found = parts(Machine(tmp_path))
    unknown = ("Python", "PyTorch", "ONNX Runtime", "HIP (ROCm)", "OpenCL", "Vulkan", "Linux", "amdgpu")
    assert {found[name].state for name in unknown} == {"unknown"}
    assert found["AMD GPU"].state == "ok"


def test_a_recording_of_the_compute_driver_alone_does_not_say_that_no_driver_holds_the_gpu(
    tmp_path: Path,
) -> None:
    sysfs.kfd_node(
        tmp_path, 1, sysfs.gpu_properties("0000:03:00.0", simd_count=416, gfx_target_version=90010)
    )
    gpu = parts(Machine(tmp_path))["AMD GPU"]
    assert (gpu.state, gpu.detail) == ("unknown", "gpu0, discrete")


def test_the_last_sentence_fits_the_machine(tmp_path: Path) -> None:
    card = software.machine(tmp_path / "card")
    one = examination(card, [problem("environment", "this process may not open /dev/kfd")], "0.2.0")
    assert one.sentence == "One problem stands in the way: this process may not open /dev/kfd."
    nvidia = software.machine(tmp_path / "nvidia", gpus="", packages={"onnxruntime-gpu": "1.32.0"})
    sysfs.pci(nvidia.root, "0000:01:00.0", {"vendor": "0x10de", "device": "0x2684", "class": "0x030000"})
    assert "No AMD GPU is visible here, which is no error" in examination(nvidia, [], "0.2.0").sentence
    wsl = software.machine(tmp_path / "wsl", gpus="", files={"dev/dxg": ""})
    assert examination(wsl, [], "0.2.0").sentence.startswith("WSL shows a GPU")


def test_a_machine_without_proc_names_no_kernel(tmp_path: Path) -> None:
    machine = software.machine(tmp_path)
    (tmp_path / "proc/sys/kernel/osrelease").unlink()
    assert not any(
        "None" in f"{part.version} {part.detail}" for part in stack(machine, "0.2.0") if part.version
    )
