"""The engine on OpenCL beside PyTorch on the same GPU, fp32 without TF32, in one run; prints ratios.

    PYTHONPATH=src:examples/resnet50 python benchmarks/native_opencl.py [--batches 1,8,32,128] [--tune 60] [--layers]

PyTorch runs as an experienced user has it: eager, as a CUDA graph, and torch.compile(mode="reduce-overhead") with
frozen weights. Inputs lie on the device; a time is the median over rounds of the mean of runs back to back, the
contenders taking turns. "host" is the engine from a NumPy array to a NumPy array, "stream" the same for successive
batches, whose copies overlap with computing; "launch us" is what the host takes to enqueue one kernel. The floor is
ResNet-50's 8.2 GFLOP an image over the fp32 peak. Errors are relative L2 against float64. Needs one GPU with PyTorch
and OpenCL.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl
import torch
import torch._inductor.config
from resnet50 import resnet50

from wavefit.native import engine
from wavefit.native.limits import of_opencl
from wavefit.native.opencl.chooser import Chooser
from wavefit.native.opencl.executor import Executor

ROUNDS, SECONDS = 5, 0.25
CUDA = torch.device("cuda", 0)
TIMED = ("eager", "graph", "compile", "native", "host", "stream")
Run = tuple[Callable[[], Any], Callable[[], Any]]
"""What enqueues one run, and what waits for all that were enqueued."""


def main() -> None:
    options = _arguments()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    net = resnet50().eval()
    device = next(each for each in _opencl_devices() if "NVIDIA" in each.vendor or "Advanced" in each.vendor)
    with tempfile.TemporaryDirectory() as folder:
        path = _export(net, Path(folder) / "resnet50.onnx")
        rows = {batch: _compare(net, path, device, batch, options) for batch in options.batches}
    _table(rows)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--batches", type=lambda text: [int(each) for each in text.split(",")], default=[1, 8, 32, 128]
    )
    parser.add_argument("--tune", type=float, default=0.0, help="seconds for tuning, of each batch")
    parser.add_argument("--layers", action="store_true", help="print the slowest launches")
    parser.add_argument("--modes", default="eager,graph,compile")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def _opencl_devices() -> list[Any]:
    return [device for platform in cl.get_platforms() for device in platform.get_devices()]


def _export(net: torch.nn.Module, path: Path) -> Path:
    names = {"input_names": ["data"], "output_names": ["scores"]}
    sample = torch.zeros(1, 3, 224, 224)
    torch.onnx.export(
        net, (sample,), str(path), opset_version=17, dynamo=False, dynamic_axes={"data": {0: "N"}}, **names
    )
    return path


def _compare(
    net: torch.nn.Module, path: Path, device: Any, batch: int, options: argparse.Namespace
) -> dict[str, float]:
    data = np.random.default_rng(batch).standard_normal((batch, 3, 224, 224), np.float32)
    executor = _prepare(path, device, batch, options.tune)
    got = executor.run({"data": data})["scores"]
    on_gpu = torch.from_numpy(data).to(CUDA)
    with torch.inference_mode():
        exact = copy.deepcopy(net).double().to(CUDA)(on_gpu.double()).cpu().numpy()
        runs = _torch_runs(copy.deepcopy(net).to(CUDA), on_gpu, options.modes.split(","))
        runs["native"] = (executor.launch, executor.queue.finish)
        row = _in_turns(runs)
        row["host"] = _seconds(lambda: executor.run({"data": data}), lambda: None)
        row["stream"] = _streamed(executor, data)
    row["launch us"] = _launch_seconds(executor) * 1e6
    row["error"] = float(np.linalg.norm(got - exact) / np.linalg.norm(exact))
    row["MiB"] = executor.program.device_bytes / 2**20
    row["arena/bound"] = executor.program.arena_bytes / executor.program.bound_bytes
    if options.layers:
        _layers(executor.program, device, data)
    executor.close()
    return row


def _prepare(path: Path, device: Any, batch: int, tune_s: float) -> Executor:
    limits = of_opencl(device, None)
    started = time.perf_counter()
    shapes = {"data": (batch, 3, 224, 224)}
    program = engine.prepare(path, shapes, Chooser(limits))
    assert not isinstance(program, tuple), program
    if tune_s:
        from wavefit.native.opencl.tune import tune

        operations = [operation for operation, _ in program.operations]
        choices = tune(operations, device, tune_s, print)
        tuned = {key: (choice.template, choice.config) for key, choice in choices.items()}
        program = engine.prepare(path, shapes, Chooser(limits, tuned))
        assert not isinstance(program, tuple), program
    planned = time.perf_counter()
    executor = Executor(program, device)
    print(
        f"batch {batch}: {len(program.steps)} launches, planned in {planned - started:.1f} s, "
        f"built in {time.perf_counter() - planned:.1f} s",
        flush=True,
    )
    return executor


def _torch_runs(net: torch.nn.Module, data: torch.Tensor, modes: list[str]) -> dict[str, Run]:
    runs: dict[str, Run] = {}
    if "eager" in modes:
        runs["eager"] = (lambda: net(data), torch.cuda.synchronize)
    if "graph" in modes:
        runs["graph"] = (_graph(net, data).replay, torch.cuda.synchronize)
    if "compile" in modes:
        torch._inductor.config.freezing = True
        compiled = torch.compile(net, mode="reduce-overhead")
        for _ in range(3):
            compiled(data)
        runs["compile"] = (lambda: compiled(data), torch.cuda.synchronize)
    return runs


def _graph(net: torch.nn.Module, data: torch.Tensor) -> torch.cuda.CUDAGraph:
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            net(data)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        net(data)
    return graph


def _in_turns(runs: dict[str, Run]) -> dict[str, float]:
    """Seconds of one run of each, the median over rounds."""
    taken = defaultdict(list)
    for _ in range(ROUNDS):
        for name, (run, finish) in runs.items():
            taken[name].append(_seconds(run, finish))
    return {name: statistics.median(times) for name, times in taken.items()}


def _seconds(run: Callable[[], Any], finish: Callable[[], Any]) -> float:
    run()
    finish()
    started, count = time.perf_counter(), 0
    while time.perf_counter() - started < SECONDS:
        for _ in range(5):
            run()
        finish()
        count += 5
    return (time.perf_counter() - started) / count


def _streamed(executor: Executor, data: np.ndarray) -> float:
    """Seconds of a batch in a stream of them."""
    count = max(6, int(0.5 / max(data.nbytes / 20e9, 1e-3)))
    best = float("inf")
    for _ in range(3):
        started = time.perf_counter()
        for _ in executor.stream({"data": data} for _ in range(count)):
            pass
        best = min(best, (time.perf_counter() - started) / count)
    return best


def _launch_seconds(executor: Executor) -> float:
    """Host seconds of one enqueue, while the device is behind."""
    best = float("inf")
    for _ in range(10):
        executor.queue.finish()
        started = time.perf_counter()
        executor.launch()
        best = min(best, time.perf_counter() - started)
    executor.queue.finish()
    return best / len(executor.program.steps)


def _layers(program: Any, device: Any, data: np.ndarray) -> None:
    executor = Executor(program, device, profiling=True)
    executor.run({"data": data})
    times = [executor.times() for _ in range(5)]
    rows = [
        (statistics.median(seconds for _, seconds in column), column[0][0])
        for column in zip(*times, strict=True)
    ]
    total = sum(seconds for seconds, _ in rows)
    print(f"  device time of all launches {total * 1e3:.3f} ms")
    for seconds, step in sorted(rows, key=lambda row: -row[0])[:25]:
        rate = f"{step.flops / seconds * 1e-12:5.1f} TFLOP/s" if step.flops else ""
        print(
            f"  {seconds * 1e6:8.1f} us {seconds / total:5.1%}  {step.kernel.name:24} {step.node[:30]:30} {rate}"
        )
    executor.close()


def _table(rows: dict[int, dict[str, float]]) -> None:
    names = list(next(iter(rows.values())))
    print("batch " + " ".join(f"{name:>11}" for name in names) + "   of best PyTorch")
    for batch, row in rows.items():
        best = min(row[name] for name in TIMED[:3] if name in row)
        cells = [row[name] * 1e3 if name in TIMED else row[name] for name in names]
        print(f"{batch:5} " + " ".join(f"{cell:11.4g}" for cell in cells) + f"   {row['native'] / best:.2f}")


if __name__ == "__main__":
    main()
