"""What runtimes see, merged: one GPU is one Device."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from fakes import sysfs

from wavefit.device import runtimes, torch_devices
from wavefit.device.probe import probe
from wavefit.device.runtimes import merge_seen
from wavefit.device.seen import Seen
from wavefit.schema import Device, Pool, Runtime


def gpu(runtime: Runtime, address: str | None, gfx: str | None = None, **facts: object) -> Device:
    return Device(id="", kind="gpu", vendor="amd", gfx=gfx, pci_address=address, runtimes=(runtime,), **facts)  # type: ignore[arg-type]


def two_gpus(root: Path) -> tuple[Device, ...]:
    """A card at 03:00.0 (gpu0) and an APU at 64:00.0 (gpu1)."""
    sysfs.linux(root)
    sysfs.cpu_node(root)
    sysfs.apu(root)
    sysfs.card(root)
    return probe(root)


def test_one_gpu_seen_by_three_runtimes_is_one_device(tmp_path: Path) -> None:
    known = two_gpus(tmp_path)
    hip = Seen(
        runtime="hip",
        version="7.1.1",
        devices=(
            gpu(Runtime(name="hip", index=0), "0000:64:00.0", "gfx1103"),
            gpu(Runtime(name="hip", index=1), "0000:03:00.0", "gfx1100"),
        ),
    )
    opencl = Seen(
        runtime="opencl",
        devices=(
            Device(id="", kind="cpu", runtimes=(Runtime(name="opencl", index=0, platform="PoCL"),)),
            gpu(Runtime(name="opencl", index=0, platform="AMD"), "03:00.0", "gfx1100"),
            gpu(Runtime(name="opencl", index=0, platform="rusticl"), "0000:03:00.0", "gfx1100"),
        ),
    )
    torch = Seen(runtime="torch", devices=(gpu(Runtime(name="torch", index=0), "0000:03:00.0", "gfx1100"),))
    cpu, card, apu = merge_seen(known, [hip, opencl, torch])
    assert [device.id for device in (cpu, card, apu)] == ["cpu", "gpu0", "gpu1"]
    named = [(runtime.name, runtime.platform, runtime.index) for runtime in card.runtimes]
    assert named == [("hip", None, 1), ("opencl", "AMD", 0), ("opencl", "rusticl", 0), ("torch", None, 0)]
    assert [(runtime.name, runtime.index) for runtime in apu.runtimes] == [("hip", 0)]
    assert [runtime.platform for runtime in cpu.runtimes] == ["PoCL"]


def test_the_systems_facts_stand_and_the_runtimes_fill(tmp_path: Path) -> None:
    known = two_gpus(tmp_path)
    seen = gpu(
        Runtime(name="opencl", index=0),
        "0000:03:00.0",
        "gfx1100",
        name="Radeon RX 7900 XTX",
        compute_units=48,
        memory=(Pool(name="opencl", total_bytes=1, source="x"),),
    )
    card = merge_seen(known, [Seen(runtime="opencl", devices=(seen,))])[1]
    assert (card.compute_units, known[1].compute_units) == (96, 96)
    assert [pool.name for pool in card.memory] == [*[pool.name for pool in known[1].memory], "opencl"]


def test_a_gpu_that_only_a_runtime_sees_is_added(tmp_path: Path) -> None:
    known = probe(sysfs.linux(tmp_path))  # WSL: no amdgpu, no PCI display device
    seen = gpu(Runtime(name="hip", index=0), "03:00.0", "gfx1100", name="AMD Radeon RX 7900 XTX")
    _, added = merge_seen(known, [Seen(runtime="hip", devices=(seen,))])
    assert (added.id, added.pci_address, added.machine) == ("gpu0", "0000:03:00.0", known[0].machine)
    assert added.runtimes == seen.runtimes
    assert (
        added.vgprs == 1536
    )  # the catalogue's, by the target that HIP told: AMD's RDNA3 ISA, 192 KB of 32 lanes
    torch = gpu(Runtime(name="torch", index=0), "0000:03:00.0", "gfx1100")
    again = merge_seen(known, [Seen(runtime="hip", devices=(seen,)), Seen(runtime="torch", devices=(torch,))])
    assert [runtime.name for runtime in again[1].runtimes] == ["hip", "torch"]


def test_windows_adapters_have_no_address_until_a_runtime_tells() -> None:
    card = Device(id="gpu0", kind="gpu", vendor="amd", name="AMD Radeon RX 7900 XTX")
    apu = Device(id="gpu1", kind="gpu", vendor="amd", name="AMD Radeon 780M Graphics")
    cpu = Device(id="cpu", kind="cpu")
    seen = gpu(Runtime(name="hip", index=0), "0000:03:00.0", "gfx1100")
    merged = merge_seen((cpu, card), [Seen(runtime="hip", devices=(seen,))])
    assert (len(merged), merged[1].gfx, merged[1].pci_address) == (2, "gfx1100", "0000:03:00.0")
    named = gpu(Runtime(name="opencl", index=0), None, name="AMD Radeon 780M Graphics")
    merged = merge_seen((cpu, card, apu), [Seen(runtime="opencl", devices=(named,))])
    assert [len(device.runtimes) for device in merged] == [0, 0, 1]


def test_two_like_gpus_without_addresses_are_not_guessed() -> None:
    cards = [
        Device(id=f"gpu{number}", kind="gpu", vendor="amd", gfx="gfx1100", pci_address=f"0000:0{number}:00.0")
        for number in range(2)
    ]
    seen = [gpu(Runtime(name="torch", index=number), None, "gfx1100") for number in range(2)]
    merged = merge_seen(cards, [Seen(runtime="torch", devices=tuple(seen))])
    assert len(merged) == 2
    for device in merged:
        (runtime,) = device.runtimes
        assert (runtime.name, runtime.index) == ("torch", None)
        assert "which of its indices" in (runtime.note or "")


def test_functions_of_one_slot_are_told_apart_by_the_whole_address() -> None:
    functions = [
        Device(id=f"gpu{number}", kind="gpu", vendor="amd", pci_address=f"0000:0a:00.{number}")
        for number in range(2)
    ]
    assert runtimes.find(functions, gpu(Runtime(name="hip"), "0000:0a:00.1")) == 1
    assert runtimes.find(functions, gpu(Runtime(name="hip"), "0001:0a:00.1")) is None


def test_a_runtime_that_failed_is_listed_where_it_should_drive(tmp_path: Path) -> None:
    known = two_gpus(tmp_path)
    cpu, card, apu = merge_seen(known, [Seen(runtime="hip", note="crash at ask HIP: SIGSEGV")])
    assert cpu.runtimes == ()
    for device in (card, apu):
        assert device.runtimes == (Runtime(name="hip", note="crash at ask HIP: SIGSEGV"),)
    missing = merge_seen(known, [Seen(runtime="hip"), Seen(runtime="torch")])
    assert missing == known


def test_torch_properties_of_a_card() -> None:
    """As PyTorch 2.9 for ROCm has them on an RX 7900 XTX; PyTorch before 2.8 has no PCI fields."""
    properties = SimpleNamespace(
        name="Radeon RX 7900 XTX",
        gcnArchName="gfx1100",
        multi_processor_count=48,
        is_integrated=0,
        warp_size=32,
        pci_domain_id=0,
        pci_bus_id=3,
        pci_device_id=0,
    )
    found = torch_devices.describe(properties, Runtime(name="torch", index=0), amd=True)
    assert (found.gfx, found.pci_address, found.compute_units) == ("gfx1100", "0000:03:00.0", 96)
    assert (found.vendor, found.integrated, found.wave_sizes) == ("amd", False, (32,))
    old = SimpleNamespace(name="NVIDIA H200", multi_processor_count=132)
    found = torch_devices.describe(old, Runtime(name="torch", index=0), amd=False)
    assert (found.vendor, found.gfx, found.pci_address, found.compute_units) == ("nvidia", None, None, 132)


@pytest.mark.torch
def test_torch_lists_the_cpu_in_a_child(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    seen = runtimes.ask(runtimes.TORCH, tmp_path)
    assert seen.version == str(torch.__version__)
    assert seen.devices[0].kind == "cpu"
    assert len(seen.devices) == 1 + torch.cuda.device_count()


def test_this_machine_keeps_its_devices() -> None:
    known = probe()
    found = runtimes.with_runtimes(known, lambda text: None)
    assert [device.id for device in found][: len(known)] == [device.id for device in known]
