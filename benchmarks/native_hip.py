"""The engine in Triton beside PyTorch on the same GPU, in fp16, in one run; prints ratios.

    PYTHONPATH=src:examples/resnet50 python benchmarks/native_hip.py [--net resnet50] [--batches 1,8,32,128]
        [--tune 60] [--layers] [--modes eager,graph,compile,max-autotune]

PyTorch runs as an experienced user has it: half, channels-last, eager, as a CUDA graph, and torch.compile with frozen
weights (reduce-overhead; max-autotune where asked for: it takes minutes). Inputs lie on the device; a time is the
median over rounds of the mean of runs back to back, the contenders taking turns. The engine keeps tensors in half and
takes and gives the file's float32. Floors: FLOPs over a measured matrix product's rate, and the bytes that the fused
program moves at least over a measured copy's. Errors are relative L2 against float64. ``--device cpu`` tries the script
by Triton's interpreter on the small network, which takes minutes.

"resnet50_int8" is ResNet-50 with QuantizeLinear and DequantizeLinear pairs; PyTorch has no contender there. MLPerf
Inference v4.1's offline record for ResNet-50 on one such GPU is about 94,600 images a second, in int8.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import _networks
import numpy as np

Run = tuple[Callable[[], Any], Callable[[], Any]]
"""What enqueues one run, and what waits for all that were enqueued."""
ROUNDS, SECONDS = 7, 0.15


def main() -> None:
    options = _arguments()
    if options.device == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"
    rows: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        rates = _rates() if options.device == "cuda" else {"flops": 1e12, "bandwidth": 1e11}
        print(
            f"matrix {rates['flops'] / 1e12:.0f} TFLOP/s, copy {rates['bandwidth'] / 1e12:.2f} TB/s",
            flush=True,
        )
        for net in options.net.split(","):
            path = _file(net, Path(folder), options.device == "cpu")
            for batch in options.batches:
                row = _compare(net, path, batch, options, rates)
                rows[f"{net} {batch}"] = row
                print(f"{net} {batch}: " + ", ".join(f"{k} {v:.4g}" for k, v in row.items()), flush=True)
                if options.json:
                    options.json.write_text(json.dumps(rows, indent=1))


def _file(net: str, folder: Path, small: bool) -> Path:
    """A network's ONNX file; "_int8" at the end of its name quantises it, on pictures as they are measured with."""
    plain = _networks.file(net.removesuffix("_int8"), folder, small)
    if not net.endswith("_int8"):
        return plain
    import onnxruntime.quantization as ort

    class Pictures(ort.CalibrationDataReader):
        def __init__(self) -> None:
            self._left = iter([_networks.feeds(plain, 4, seed=7)])

        def get_next(self) -> Any:
            return next(self._left, None)

    path = folder / f"{net}.onnx"
    symmetric = {"ActivationSymmetric": True, "WeightSymmetric": True}
    kinds = {"activation_type": ort.QuantType.QInt8, "weight_type": ort.QuantType.QInt8}
    ort.quantize_static(str(plain), str(path), Pictures(), per_channel=True, extra_options=symmetric, **kinds)
    return path


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--net", default="resnet50")
    parser.add_argument(
        "--batches", type=lambda text: [int(each) for each in text.split(",")], default=[1, 8, 32, 128]
    )
    parser.add_argument("--tune", type=float, default=0.0, help="seconds for tuning, of each batch")
    parser.add_argument("--layers", action="store_true", help="print every launch beside its floor")
    parser.add_argument("--modes", default="eager,graph,compile")
    parser.add_argument("--storage", default="float16", choices=("float16", "bfloat16"))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "wavefit-triton")
    parser.add_argument("--tuned", type=Path, help="folder in which choices are kept")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def _rates() -> dict[str, float]:
    """What this GPU gives: a product of 8192 cubed in half, and a copy of 4 GiB, bytes read and written."""
    import torch

    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.float16) for _ in range(2))
    source = torch.empty(1 << 32, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    product = _seconds(lambda: torch.mm(a, b), torch.cuda.synchronize)
    moved = _seconds(lambda: target.copy_(source), torch.cuda.synchronize)
    return {"flops": 2 * 8192**3 / product, "bandwidth": 2 * source.numel() / moved}


def _compare(
    net: str, path: Path, batch: int, options: argparse.Namespace, rates: dict[str, float]
) -> dict[str, float]:
    import torch

    from wavefit.native.triton.executor import Executor

    device = torch.device(options.device)
    feeds = _networks.feeds(path, batch, seed=batch)
    shapes = {name: array.shape for name, array in feeds.items()}
    program = _prepare(path, shapes, device, options)
    started = time.perf_counter()
    executor = Executor(program, device, options.cache, print)
    row = {
        "launches": float(len(program.steps)),
        "compiled": float(executor.compiled.made),
        "compile s": executor.compiled.seconds,
        "start s": time.perf_counter() - started,
    }
    executor.close()
    started = time.perf_counter()
    executor = Executor(program, device, options.cache)
    row["start again s"] = time.perf_counter() - started
    got = executor.run(feeds)
    small = options.device == "cpu"
    module = _networks.module(net.removesuffix("_int8"), small)
    given = [torch.from_numpy(array).to(device) for array in feeds.values()]
    with torch.inference_mode():
        doubled = copy.deepcopy(module).double().to(device)
        exact = doubled(*(each.double() if each.is_floating_point() else each for each in given))
        del doubled
        halved = copy.deepcopy(module).to(device).half()
        if all(each.dim() == 4 for each in given):
            halved = halved.to(memory_format=torch.channels_last)
            given = [each.half().contiguous(memory_format=torch.channels_last) for each in given]
        row["error"] = _error(list(got.values()), exact)
        row["error of PyTorch"] = _error(None, exact, halved(*given))
        alone = small or net.endswith("_int8")
        runs = {} if alone else _torch_runs(halved, given, options.modes.split(","))
        runs["native"] = (executor.launch, executor.wait)
        row |= {name: seconds * 1e3 for name, seconds in _in_turns(runs).items()}
    best = min((row[name] for name in runs if name != "native"), default=float("nan"))
    row["ratio"] = row["native"] / best
    row["images/s"] = batch / row["native"] * 1e3
    row["floor flops"] = sum(step.flops for step in program.steps) / rates["flops"] * 1e3
    row["floor bytes"] = sum(step.bytes for step in program.steps) / rates["bandwidth"] * 1e3
    if not small:
        row["host"] = _seconds(lambda: executor.run(feeds), lambda: None) * 1e3
        row["stream"] = _streamed(executor, feeds) * 1e3
    if options.layers:
        _layers(executor, rates)
    row["MiB"] = executor.device_bytes / 2**20
    executor.close()
    return row


def _prepare(path: Path, shapes: dict[str, tuple[int, ...]], device: Any, options: argparse.Namespace) -> Any:
    from wavefit.native import engine
    from wavefit.native.limits import of_torch
    from wavefit.native.triton import tune
    from wavefit.native.triton.chooser import Chooser

    plain = Chooser(of_torch(device))
    storage = None if path.stem.endswith("_int8") else options.storage  # scales stay float32
    if options.tune:
        operations = tune.of_model(path, shapes, plain, storage)
        started = time.perf_counter()
        found = tune.tune(operations, device, options.cache, options.tune, print, options.tuned)
        won = sum(each.source == "tuned" for each in found.values())
        print(f"tuned {won} of {len(found)} operations in {time.perf_counter() - started:.0f} s", flush=True)
    known = options.tune or options.tuned
    chooser = tune.chooser(device, folder=options.tuned) if known else plain
    program = engine.prepare(path, shapes, chooser, storage)
    assert not isinstance(program, tuple), program
    return program


def _torch_runs(net: Any, given: list[Any], modes: list[str]) -> dict[str, Run]:
    import torch
    import torch._inductor.config

    runs: dict[str, Run] = {}
    if "eager" in modes:
        runs["eager"] = (lambda: net(*given), torch.cuda.synchronize)
    if "graph" in modes:
        runs["graph"] = (_graph(net, given).replay, torch.cuda.synchronize)
    for name, mode in (("compile", "reduce-overhead"), ("max-autotune", "max-autotune")):
        if name in modes:
            torch._inductor.config.freezing = True
            torch._dynamo.reset()
            started = time.perf_counter()
            compiled = torch.compile(net, mode=mode)
            for _ in range(3):
                compiled(*given)
            torch.cuda.synchronize()
            print(f"torch.compile {mode}: {time.perf_counter() - started:.0f} s", flush=True)
            runs[name] = (lambda compiled=compiled: compiled(*given), torch.cuda.synchronize)
    return runs


def _graph(net: Any, given: list[Any]) -> Any:
    import torch

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            net(*given)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        net(*given)
    return graph


def _error(got: list[np.ndarray] | None, exact: Any, made: Any = None) -> float:
    """The largest relative L2 of any output."""
    wanted = [each.double().cpu().numpy() for each in (exact if isinstance(exact, tuple) else (exact,))]
    if got is None:
        got = [each.double().cpu().numpy() for each in (made if isinstance(made, tuple) else (made,))]
    return max(
        float(np.linalg.norm(a.astype(np.float64) - b) / np.linalg.norm(b))
        for a, b in zip(got, wanted, strict=True)
    )


def _in_turns(runs: dict[str, Run]) -> dict[str, float]:
    found: dict[str, list[float]] = defaultdict(list)
    for _ in range(ROUNDS):
        for name, run in runs.items():
            found[name].append(_mean(*run, 0.02 if len(found[name]) == 0 else SECONDS))
    return {name: statistics.median(seconds[1:]) for name, seconds in found.items()}


def _seconds(work: Callable[[], Any], wait: Callable[[], Any]) -> float:
    return statistics.median([_mean(work, wait, SECONDS) for _ in range(3)])


def _mean(work: Callable[[], Any], wait: Callable[[], Any], seconds: float) -> float:
    work()
    wait()
    started = time.perf_counter()
    work()
    wait()
    count = max(3, int(seconds / max(time.perf_counter() - started, 1e-6)))
    started = time.perf_counter()
    for _ in range(count):
        work()
    wait()
    return (time.perf_counter() - started) / count


def _streamed(executor: Any, feeds: dict[str, np.ndarray], count: int = 20) -> float:
    """Seconds of a batch among successive ones, host to host."""
    for _ in executor.stream(feeds for _ in range(3)):
        pass
    started = time.perf_counter()
    for _ in executor.stream(feeds for _ in range(count)):
        pass
    return (time.perf_counter() - started) / count


def _layers(executor: Any, rates: dict[str, float]) -> None:
    """Every launch: its time alone in a graph of repeats, its floor, and the share of it."""
    total = 0.0
    for step, seconds in executor.times():
        floor = max(step.flops / rates["flops"], step.bytes / rates["bandwidth"])
        total += seconds
        print(
            f"  {step.op:12s} {step.kernel.name:12s} {seconds * 1e6:8.1f} us, floor {floor * 1e6:7.1f}, "
            f"{floor / seconds:4.0%} {step.node[-60:]}"
        )
    print(f"  sum {total * 1e3:.3f} ms", flush=True)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main()
