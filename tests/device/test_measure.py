"""Measured peaks: by NumPy on this CPU, by OpenCL where there is a platform, kept by device and driver."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from wavefit.device.measure import measure, measured, on_opencl, store, timing, ways
from wavefit.device.measure.order import Order
from wavefit.device.probe import probe
from wavefit.schema import Device, Failure, Figure, Runtime

CARD = Device(
    id="gpu0", kind="gpu", vendor="amd", pci_id="1002:744c", driver="amdgpu 6.12.12", machine="Linux"
)


def figure(value: float, source: str = "measured with X") -> Figure:
    return Figure(value=value, unit="FLOP/s", source=source)


def test_this_cpu(tmp_path: Path) -> None:
    cpu = probe()[0]
    said: list[str] = []
    found = measure(cpu, said.append, tmp_path)
    assert isinstance(found, Device)
    peaks = found.peaks
    assert {"bandwidth", "fp32", "launch_s"} <= set(peaks)
    assert not {"h2d", "fp16"} & set(peaks)  # a CPU copies nothing to itself, and has no fp16 BLAS
    # No CPU with less than 0.1 or more than 100 GFLOP/s a thread, 0.1 or 2,000 GB/s, a call from 10 ns to 1 ms.
    assert 1e8 < peaks["fp32"].value < 1e13 * (cpu.threads or 1)
    assert 1e8 < peaks["bandwidth"].value < 2e12
    assert 1e-8 < peaks["launch_s"].value < 1e-3
    assert peaks["fp32"].source.startswith("measured with NumPy ")
    assert f"{timing.RUNS} runs, 20" in peaks["fp32"].source
    assert measured(cpu, tmp_path).peaks == peaks
    assert said[0] == "measuring cpu with numpy"


def test_measured_comes_before_published(tmp_path: Path) -> None:
    published = msgspec.structs.replace(
        CARD, peaks={"fp16": figure(2, "AMD"), "fp16_matrix": figure(4, "AMD"), "int8": figure(8, "AMD")}
    )
    store.keep(CARD, {"fp16": figure(1)}, tmp_path)
    peaks = measured(published, tmp_path).peaks
    assert {name: peak.value for name, peak in peaks.items()} == {"fp16": 1, "fp16_matrix": 1, "int8": 8}


def test_figures_belong_to_a_device_and_its_driver(tmp_path: Path) -> None:
    store.keep(CARD, {"fp32": figure(1)}, tmp_path)
    replace = msgspec.structs.replace
    others = [
        replace(CARD, driver="amdgpu 6.16.6"),
        replace(CARD, id="gpu1"),
        replace(CARD, pci_id="1002:7480"),
        replace(CARD, machine="Linux 7"),
    ]
    assert all(measured(other, tmp_path) == other for other in others)
    # What runtimes add changes nothing: the planner reads the system's files alone.
    seen = replace(CARD, name="RX 7900 XTX", pci_address="0000:03:00.0", runtimes=(Runtime(name="hip"),))
    assert measured(seen, tmp_path).peaks["fp32"].value == 1


@pytest.mark.parametrize("text", ["", "{", '{"device": "gpu0", "figures": {"fp32": 3}}'])
def test_a_torn_file_is_no_measurement(tmp_path: Path, text: str) -> None:
    store.keep(CARD, {"fp32": figure(1)}, tmp_path)
    next(tmp_path.iterdir()).write_text(text)
    assert measured(CARD, tmp_path) == CARD


def test_a_cache_that_cannot_be_written_loses_no_figures(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(OSError, match="file"):
        store.keep(CARD, {"fp32": figure(1)}, blocked)
    assert measured(CARD, blocked) == CARD
    assert store.with_figures(CARD, {"fp32": figure(1)}).peaks["fp32_matrix"].value == 1


def test_a_gpu_without_a_runtime_is_refused(tmp_path: Path) -> None:
    silent = msgspec.structs.replace(CARD, runtimes=(Runtime(name="torch", note="crash"),))
    answer = measure(silent, lambda text: None, tmp_path)
    assert isinstance(answer, Failure)
    assert "no runtime here" in answer.reason
    assert "pip install" in answer.fix
    assert list(tmp_path.iterdir()) == []


def test_pytorch_comes_before_opencl() -> None:
    runtimes = (Runtime(name="opencl", index=0), Runtime(name="torch", index=2), Runtime(name="hip", index=2))
    found = ways(msgspec.structs.replace(CARD, runtimes=runtimes))
    assert [runtime.name for _, runtime in found] == ["torch", "opencl"]


def test_a_runtime_that_cannot_is_a_failure_with_its_words(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    card = msgspec.structs.replace(CARD, runtimes=(Runtime(name="torch", index=63),))
    answer = measure(card, lambda text: None, tmp_path)
    assert isinstance(answer, Failure)
    assert list(tmp_path.iterdir()) == []


def test_opencl_on_a_real_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its product is held against float64 inside; a size of 512 alone, and one run: PoCL takes a second each."""
    cl = pytest.importorskip("pyopencl")
    monkeypatch.setattr(timing, "RUNS", 1)
    monkeypatch.setattr(timing, "_WARM_S", 0.0)
    monkeypatch.setattr(on_opencl, "_LARGEST_MATRIX", 512)
    monkeypatch.setattr(on_opencl, "_COPY_BYTES", 16 << 20)
    monkeypatch.setattr(on_opencl, "_TRANSFER_BYTES", 16 << 20)
    try:
        platforms = cl.get_platforms()
    except cl.Error:
        pytest.skip("no OpenCL platform")
    order = Order(device=CARD, runtime=Runtime(name="opencl", index=0, platform=platforms[0].name.strip()))
    readings = on_opencl.measure(order, _Quiet()).readings  # type: ignore[arg-type]
    assert {"bandwidth", "h2d", "h2d_pinned", "d2h", "d2h_pinned", "fp32", "launch_s"} <= set(readings)
    assert all(reading.value > 0 for reading in readings.values())


def test_a_wrong_product_is_refused() -> None:
    cl = pytest.importorskip("pyopencl")
    np = pytest.importorskip("numpy")
    from wavefit.errors import RouteError

    try:
        device = cl.get_platforms()[0].get_devices()[0]
    except cl.Error:
        pytest.skip("no OpenCL platform")
    context = cl.Context([device])
    queue = cl.CommandQueue(context, device)
    first, second = on_opencl._matrix(64, np.float32, 0), on_opencl._matrix(64, np.float32, 1)
    flags = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
    right = first @ second
    on_opencl._check(cl, queue, cl.Buffer(context, flags, hostbuf=right), first, second, "fp32")
    right[-1, 5] += 1
    with pytest.raises(RouteError, match="product is wrong"):
        on_opencl._check(cl, queue, cl.Buffer(context, flags, hostbuf=right), first, second, "fp32")


def test_measuring_a_recording_is_refused(tmp_path: Path) -> None:
    (tmp_path / "sys").mkdir()
    for arguments in (("--root", str(tmp_path)), ("--files-only",)):
        done = subprocess.run(
            [sys.executable, "-m", "wavefit", "devices", "--measure", *arguments],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stdout) == (2, "")
        assert "--measure" in done.stderr


class _Quiet:
    def stage(self, name: str) -> None:
        pass
