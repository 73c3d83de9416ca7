"""ResNet-50 through the torch_gpu route beside bare PyTorch doing the same in the same process; prints ratios.

    PYTHONPATH=src:examples/resnet50 python benchmarks/torch_routes.py [--batches 1,8,32] [--modes eager,graph,compile]

Bare PyTorch is what an experienced user writes by hand: the module itself (``.half()`` and channels-last for fp16),
page-locked buffers, torch.cuda.CUDAGraph, torch.compile(mode="reduce-overhead") with frozen weights, no TF32. Times
are medians from a NumPy array on the host to a NumPy array on the host, in alternating rounds; "device" is the mean
of launches back to back, without the copies. Errors are relative L2 against a float64 run. Needs one GPU.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from resnet50 import resnet50

from wavefit.routes import torch_gpu
from wavefit.schema import Device, Model, Plan, Request, TensorSpec

ROUNDS, SECONDS = 3, 0.25
DEVICE = torch.device("cuda", 0)


def main() -> None:
    options = _arguments()
    batches = [int(text) for text in options.batches.split(",")]
    net = resnet50().eval()
    device = _device()
    with tempfile.TemporaryDirectory() as folder:
        model = _model(net, Path(folder))
        exact = copy.deepcopy(net).double().to(DEVICE).requires_grad_(False)
        request = Request(precisions=tuple(options.precisions.split(",")), batches=(batches[0],))
        plans = [plan for plan in torch_gpu.plans((device,), model, request) if isinstance(plan, Plan)]
        modes = options.modes.split(",")
        for mode in modes:
            for plan in (plan for plan in plans if plan.options["mode"] == mode):
                _compare(plan, model, device, net, exact, batches, Path(folder))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batches", default="1,8,32")
    parser.add_argument("--modes", default="eager,graph,compile")
    parser.add_argument("--precisions", default="fp32,fp16")
    return parser.parse_args()


def _device() -> Device:
    vendor = "amd" if torch.version.hip else "nvidia"
    address = None
    if vendor == "nvidia":
        query = ["nvidia-smi", "--query-gpu=pci.bus_id", "--format=csv,noheader"]
        address = (
            subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()[0][4:].lower()
        )
    print(f"{torch.cuda.get_device_name(0)} at {address}, PyTorch {torch.__version__}", flush=True)
    return Device(id="gpu0", kind="gpu", vendor=vendor, pci_address=address)


def _model(net: torch.nn.Module, folder: Path) -> Model:
    path = folder / "resnet50.pt2"
    dynamic = ({0: torch.export.Dim("batch", max=1024)},)
    torch.export.save(torch.export.export(net, (torch.randn(2, 3, 224, 224),), dynamic_shapes=dynamic), path)
    return Model(
        name="resnet50",
        path=str(folder / "resnet50.onnx"),
        sha256="",
        opset=20,
        ir_version=10,
        inputs=(TensorSpec(name="x", dtype="float32", shape=("batch", 3, 224, 224)),),
        outputs=(TensorSpec(name="y", dtype="float32", shape=("batch", 1000)),),
        nodes=1,
        nodes_by_type={"Conv": 53},
        parameters=25_557_032,
        weight_bytes=102_228_128,
        dynamic=("batch",),
        batch="batch",
        exported_program=str(path),
    )


def _compare(
    plan: Plan, model: Model, device: Device, net: Any, exact: Any, batches: list[int], folder: Path
) -> None:
    began = time.perf_counter()
    session: Any = torch_gpu.open(plan, model, device, folder)
    print(f"\n{plan.series}: opened in {time.perf_counter() - began:.1f} s", flush=True)
    for batch in batches:
        _compare_batch(session, plan, net, exact, batch)
    again = np.random.default_rng(7).standard_normal((batches[0], 3, 224, 224), dtype=np.float32)
    truth = exact(torch.from_numpy(again).to(DEVICE).double()).cpu().numpy()
    print(f"  back to batch {batches[0]}: error {_error(session.run({'x': again})['y'], truth):.1e}")
    placement = session.placement()
    shares = ", ".join(f"{share.provider} {share.nodes}" for share in placement.providers)
    print(
        f"  ops: {shares}; on the CPU: {placement.on('cpu')}; peak {session.device_peak_bytes() / 2**20:.0f} MiB"
    )
    session.close()


def _compare_batch(session: Any, plan: Plan, net: Any, exact: Any, batch: int) -> None:
    images = np.random.default_rng(batch).standard_normal((batch, 3, 224, 224), dtype=np.float32)
    began = time.perf_counter()
    session.run({"x": images})
    first = time.perf_counter() - began
    bare = Bare(net, plan.precision, str(plan.options["mode"]), batch)
    ours_s, bare_s = _alternate(lambda: session.run({"x": images}), lambda: bare.run(images))
    fresh = np.random.default_rng(batch + 100).standard_normal(images.shape, dtype=np.float32)
    truth = exact(torch.from_numpy(fresh).to(DEVICE).double()).cpu().numpy()
    print(
        f"  batch {batch:3}: route {ours_s * 1e3:7.3f} ms, bare {bare_s * 1e3:7.3f} ms, "
        f"ratio {ours_s / bare_s:.3f}; "
        f"device {session.device_time_s() * 1e3:7.3f} / {bare.device_time_s() * 1e3:7.3f} ms; "
        f"error {_error(session.run({'x': fresh})['y'], truth):.1e} / {_error(bare.run(fresh), truth):.1e}; "
        f"first run {first:.2f} s",
        flush=True,
    )


class Bare:
    """The module by hand, one batch size."""

    def __init__(self, net: torch.nn.Module, precision: str, mode: str, batch: int) -> None:
        half = precision == "fp16"
        self.dtype = torch.float16 if half else torch.float32
        layout = torch.channels_last if half else torch.contiguous_format
        self.net: Any = copy.deepcopy(net).to(DEVICE, self.dtype, memory_format=layout).requires_grad_(False)
        self.host_in = torch.empty(batch, 3, 224, 224, pin_memory=True)
        self.host_out = torch.empty(batch, 1000, pin_memory=True)
        self.x = torch.randn(batch, 3, 224, 224, device=DEVICE)
        self.layout = layout
        self.launch: Callable[[], torch.Tensor] = self._forward
        if mode == "compile":
            self.net = torch.compile(self.net, mode="reduce-overhead", dynamic=False)
            with torch._inductor.config.patch(freezing=True):
                for _ in range(3):
                    self._forward()
        if mode == "graph":
            self._capture()

    def _forward(self) -> torch.Tensor:
        with torch.no_grad():
            return self.net(self.x.to(self.dtype, memory_format=self.layout)).float()

    def _capture(self) -> None:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(3):
                self._forward()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            output = self._forward()

        def launch() -> torch.Tensor:
            graph.replay()
            return output

        self.launch = launch

    def run(self, images: np.ndarray) -> np.ndarray:
        self.host_in.copy_(torch.from_numpy(images))
        self.x.copy_(self.host_in, non_blocking=True)
        self.host_out.copy_(self.launch(), non_blocking=True)
        torch.cuda.synchronize()
        return self.host_out.numpy().copy()

    def device_time_s(self, runs: int = 10) -> float:
        self.launch()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(runs):
            self.launch()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1e3 / runs


def _alternate(ours: Callable[[], Any], bare: Callable[[], Any]) -> tuple[float, float]:
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS):
        for function, found in zip((ours, bare), times, strict=True):
            function()
            until = time.perf_counter() + SECONDS
            while time.perf_counter() < until:
                began = time.perf_counter()
                function()
                found.append(time.perf_counter() - began)
    return statistics.median(times[0]), statistics.median(times[1])


def _error(have: np.ndarray, want: np.ndarray) -> float:
    return float(np.linalg.norm(have.astype(np.float64) - want) / np.linalg.norm(want))


if __name__ == "__main__":
    main()
