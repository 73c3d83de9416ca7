"""Known error messages explained by the facts of the machine that they come from."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from fakes import sysfs

from wavefit.doctor.explain import Explanation, explain
from wavefit.doctor.known_errors import load
from wavefit.doctor.machine import Machine, Process

ERRORS = load()
GROUP = 993


def machine(
    root: Path, *gpus: Callable[[Path], Path], groups: tuple[int, ...] = (), **environ: str
) -> Machine:
    sysfs.linux(root)
    sysfs.cpu_node(root)
    for gpu in gpus:
        gpu(root)
    node = {
        "path": "/dev/kfd",
        "errno": 0 if GROUP in groups else 13,
        "gid": GROUP,
        "uid": 0,
        "mode": "crw-rw----",
    }
    sysfs.write(root, {"wavefit/nodes.json": msgspec.json.encode({"nodes": [node]}).decode()})
    return Machine(root, Process(1000, (1000, *groups), environ, {}, "3.12.3"))


def kernels(root: Path, *targets: str) -> None:
    folder = "opt/rocm/lib/rocblas/library"
    sysfs.write(root, {f"{folder}/TensileLibrary_lazy_{target}.dat": "" for target in targets})


def first(text: str, on: Machine) -> Explanation:
    return explain(text, on, ERRORS).known[0]


def commands(found: Explanation) -> str:
    return "\n".join(fix.command for fix in found.fixes)


def test_an_override_is_for_the_gpu_that_is_here(tmp_path: Path) -> None:
    said = first("rocBLAS error: Cannot read TensileLibrary.dat", machine(tmp_path, sysfs.apu))
    assert commands(said).splitlines()[-1] == "export HSA_OVERRIDE_GFX_VERSION=11.0.0"
    assert "gfx1103: ROCm 10 has them" in said.cause
    assert said.machine


def test_a_card_with_kernels_gets_no_override(tmp_path: Path) -> None:
    here = machine(tmp_path, sysfs.card)
    kernels(tmp_path, "gfx1100")
    said = first("HIP error: invalid device function", here)
    assert "HSA_OVERRIDE" not in commands(said)
    assert "gfx1100" in said.cause
    assert "extension" in said.cause


def test_the_build_is_compared_with_the_gpu(tmp_path: Path) -> None:
    here = machine(tmp_path, sysfs.apu)
    kernels(tmp_path, "gfx1030", "gfx1100")
    said = first("HIP error: invalid device function", here)
    assert "kernels for gfx1030, gfx1100, and none for this GPU's gfx1103" in said.cause
    assert commands(said) == "export HSA_OVERRIDE_GFX_VERSION=11.0.0"


def test_no_override_fits_where_no_relative_has_kernels(tmp_path: Path) -> None:
    here = machine(tmp_path, sysfs.apu)
    kernels(tmp_path, "gfx90a", "gfx1030")
    said = first("HIP error: invalid device function", here)
    assert "no override fits" in said.cause
    assert "ort_webgpu" in commands(said)


def test_an_override_that_is_set_is_suspected(tmp_path: Path) -> None:
    here = machine(tmp_path, sysfs.apu, HSA_OVERRIDE_GFX_VERSION="10.3.0")
    for text in (
        "HIP error: invalid device function",
        "Memory access fault by GPU node-1",
        "HSA_STATUS_ERROR_INVALID_ISA",
        "HSA_STATUS_ERROR_ILLEGAL_INSTRUCTION",
        "HW Exception by GPU node-1 reason :GPU Hang",
        "rocBLAS error: Cannot read TensileLibrary.dat",
    ):
        said = first(text, here)
        assert commands(said) == "unset HSA_OVERRIDE_GFX_VERSION"
        assert "10.3.0" in said.cause


DENIED = "Unable to open /dev/kfd read-write: Permission denied"


def test_permission_outside_a_container(tmp_path: Path) -> None:
    said = first(DENIED, machine(tmp_path, sysfs.card))
    assert commands(said) == "sudo usermod -a -G render,video $LOGNAME"
    assert not said.machine


def test_permission_of_a_member_is_something_else(tmp_path: Path) -> None:
    said = first(DENIED, machine(tmp_path, sysfs.card, groups=(GROUP,)))
    assert "usermod" not in commands(said)
    assert "SELinux" in said.cause


def test_permission_inside_a_container_is_given_by_number(tmp_path: Path) -> None:
    sysfs.write(tmp_path, {".dockerenv": ""})
    said = first(DENIED, machine(tmp_path, sysfs.card))
    assert f"--group-add {GROUP} " in commands(said)
    assert "--group-add keep-groups" in commands(said)
    assert "usermod" not in commands(said)


def test_wsl_has_no_kfd(tmp_path: Path) -> None:
    here = machine(tmp_path)
    sysfs.write(tmp_path, {"proc/sys/kernel/osrelease": "6.6.87.2-microsoft-standard-WSL2"})
    said = first("Unable to open /dev/kfd read-write: No such file or directory", here)
    assert "--usecase=wsl" in commands(said)


def test_no_gpu_is_said(tmp_path: Path) -> None:
    said = first("RuntimeError: No HIP GPUs are available", machine(tmp_path))
    assert "shows no AMD GPU" in said.cause


def test_an_integrated_gpu_beside_a_card(tmp_path: Path) -> None:
    here = machine(tmp_path, sysfs.apu, sysfs.card)
    for text in (
        "Memory access fault by GPU node-2",
        "HIP out of memory. Tried to allocate",
        "hipErrorNoBinaryForGpu",
    ):
        said = first(text, here)
        assert "HIP_VISIBLE_DEVICES" in commands(said)
        assert "integrated" in said.cause


@pytest.mark.parametrize(("node", "index"), [(1, 1), (3, 0)])
def test_the_card_is_called_by_its_index(tmp_path: Path, node: int, index: int) -> None:
    """Its place among the compute driver's GPUs, whatever the bus."""
    here = machine(tmp_path, lambda root: sysfs.apu(root, node=node), sysfs.card)
    assert f"export HIP_VISIBLE_DEVICES={index}" in commands(first("Memory access fault by GPU node-2", here))


def test_the_reason_of_a_fix_names_the_gpu_too(tmp_path: Path) -> None:
    said = first("hipErrorNoBinaryForGpu", machine(tmp_path, sysfs.apu))
    assert "lets gfx1103 run" in said.fixes[0].why


@pytest.mark.parametrize("text", ["HSA_STATUS_ERROR_OUT_OF_RESOURCES", "PLATFORM_NOT_FOUND_KHR"])
def test_a_container_on_a_machine_without_an_amd_gpu_is_given_none(tmp_path: Path, text: str) -> None:
    sysfs.write(tmp_path, {".dockerenv": ""})
    said = first(text, machine(tmp_path))
    assert "no AMD GPU" in said.cause
    assert "docker" not in commands(said)
    assert "docker" in commands(first(text, machine(tmp_path, sysfs.card)))


def test_memory_of_an_integrated_gpu_and_of_a_card(tmp_path: Path) -> None:
    text = "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 432.00 MiB."
    assert "pages_limit" in commands(first(text, machine(tmp_path / "apu", sysfs.apu)))
    assert "pages_limit" not in commands(first(text, machine(tmp_path / "card", sysfs.card)))


@pytest.mark.parametrize(
    ("version", "machine_says"), [("6.0.2-115", True), ("6.1.0-82", False), ("7.2.0-43", False)]
)
def test_the_second_copy_hangs_before_rocm_6_1(tmp_path: Path, version: str, machine_says: bool) -> None:
    here = machine(tmp_path, sysfs.apu)
    sysfs.write(tmp_path, {"opt/rocm/.info/version": version})
    said = first("#3 in rocr::core::BusyWaitSignal::WaitRelaxed(", here)
    assert said.machine is machine_says
    assert ("ROCm 6.0.2 on an integrated GPU" in said.cause) is machine_says


def test_a_rocm_build_is_not_blamed_for_cuda(tmp_path: Path) -> None:
    here = machine(tmp_path, sysfs.card)
    assert "whl/rocm" in commands(first("Found no NVIDIA driver on your system", here))
    text = "__version__ = '2.9.1+rocm6.4'\nhip = '6.4.43482'\ncuda = None\n"
    sysfs.write(tmp_path, {"wavefit/installed.json": msgspec.json.encode({"torch": text}).decode()})
    assert "whl/rocm" not in commands(first("Found no NVIDIA driver on your system", here))


def test_every_blank_in_a_text_is_filled(tmp_path: Path) -> None:
    """On machines of every kind: no "<gfx>" is left where the machine's facts are used."""
    kinds = [
        machine(tmp_path / "none"),
        machine(tmp_path / "apu", sysfs.apu),
        machine(tmp_path / "card", sysfs.card, groups=(GROUP,)),
        machine(tmp_path / "both", sysfs.apu, sysfs.card, HSA_OVERRIDE_GFX_VERSION="11.0.0"),
        machine(tmp_path / "box", sysfs.apu, container="lxc"),
        Machine(tmp_path / "nowhere"),
    ]
    kernels(tmp_path / "apu", "gfx1100")
    sysfs.write(tmp_path / "apu", {"opt/rocm/.info/version": "6.0.0-91"})
    for here in kinds:
        for error in ERRORS:
            said = first(error.sample, here)
            text = " ".join((said.cause, said.verify, commands(said)))
            assert not re.search(r"<(gfx|override|set|compiled|group|rocm|card)>", text), (
                here.root,
                error.id,
                text,
            )


TENSILE = "rocBLAS error: Cannot read TensileLibrary.dat: Illegal seek for GPU arch : "


def test_a_target_that_the_text_names_counts_where_no_gpu_is_here(tmp_path: Path) -> None:
    """A log is often read on another machine than the one that wrote it."""
    here = machine(tmp_path)
    said = first(f"{TENSILE}gfx1103", here)
    assert "gfx1103: ROCm 10 has them" in said.cause
    assert "export HSA_OVERRIDE_GFX_VERSION=11.0.0" in commands(said)
    assert not said.machine, "it is not of this machine"
    assert "HSA_OVERRIDE_GFX_VERSION=10.3.0" in commands(first(f"{TENSILE}gfx1032", here))
    assert "<" not in first("rocBLAS error: Cannot read TensileLibrary.dat", here).cause


def test_a_gpu_that_is_here_counts_more_than_the_text(tmp_path: Path) -> None:
    said = first(f"{TENSILE}gfx1032", machine(tmp_path, sysfs.apu))
    assert "gfx1103" in said.cause
    assert said.machine
