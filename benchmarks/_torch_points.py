"""Measures the torch_gpu route's peak memory and time for the nets of _torch_nets, each point in a process of its own.

    PYTHONPATH=src python benchmarks/_torch_points.py OUT.json [--seconds 80] [--batches 1,32] [--only NAME]

Memory first, many points at once; then times, one at a time. What is not done within the seconds is left out. The
answer also has every allocation of each point up to the end of its first run, which is how the planner's rules for
PyTorch were found. A process is forked before CUDA starts, as it would be in a trial: nothing is left of another plan.
"""

from __future__ import annotations

import argparse
import fcntl
import importlib
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_HERE = Path(__file__).parent
sys.path[:0] = [str(_HERE), str(_HERE.parent / "examples/resnet50")]

_FORMS = (
    *("eager fp32", "graph fp32", "compile fp32"),
    *("eager fp16", "graph fp16", "graph fp16 channels_last", "compile fp16"),
)
_TIMED = (
    "eager fp32",
    "graph fp32",
    "compile fp32",
    "graph fp16",
    "graph fp16 channels_last",
    "compile fp16",
)
_TIMED_LARGE = ("graph fp32", "compile fp32", "graph fp16", "graph fp16 channels_last", "compile fp16")
_LARGE = 8  # from this batch on the host's part hardly counts
_MOST_HELD = 1 << 30  # of a point that waits to be timed
_SIDE_BY_SIDE = 3  # points of a net; one of the net whose convolutions ask for 18 GiB of scratch
_SHOWN_BYTES = 1 << 20  # of an allocation whose place in the code is kept
_RUNS = 20
_FORK = multiprocessing.get_context("fork")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--batches", default="1,32")
    parser.add_argument("--only")
    parser.add_argument("--net", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--export", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--point", help=argparse.SUPPRESS)
    options = parser.parse_args()
    batches = [int(part) for part in options.batches.split(",")]
    os.environ.setdefault(
        "PYTORCH_NVML_BASED_CUDA_CHECK", "1"
    )  # asking for GPUs must not start CUDA before a fork
    if options.export:
        export(options.net, options.folder)
    elif options.point:
        _one(options.net, options.point, options.folder)
    elif options.net:
        _net(options.net, batches, options.folder)
    else:
        _all(options, batches)


def _all(options: argparse.Namespace, batches: list[int]) -> None:
    until = time.monotonic() + options.seconds
    from _torch_nets import nets

    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        names = [name for name in nets() if not options.only or name in options.only.split(",")]
        command = [sys.executable, __file__, str(options.out), "--folder", text, "--batches", options.batches]
        # Each net in a session of its own, so that what is still running at the end can be stopped with its children.
        running = [
            subprocess.Popen(
                [*command, "--net", name], start_new_session=True, env=_own_caches(folder / name)
            )
            for name in names
        ]
        while time.monotonic() < until and any(process.poll() is None for process in running):
            time.sleep(0.2)
            ready = [(folder / f"{name}.memory").exists() for name in names]
            ended = [process.poll() is not None for process in running]
            if all(map(max, ready, ended)) or time.monotonic() > until - 25:
                (folder / "go").touch()
        for process in running:
            if process.poll() is None:
                os.killpg(process.pid, 9)
            process.wait()
        found = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
        options.out.write_text(json.dumps(found))
        for point in found:
            print({key: value for key, value in point.items() if key != "events"}, flush=True)


def _own_caches(folder: Path) -> dict[str, str]:
    """What torch.compile has timed for one net is not there for another."""
    caches = {"TORCHINDUCTOR_CACHE_DIR": f"{folder}-inductor", "TRITON_CACHE_DIR": f"{folder}-triton"}
    return {**os.environ, **caches}


def _net(name: str, batches: list[int], folder: Path) -> None:
    """One net: exported in a process, then a process for every point."""
    started = time.monotonic()
    exporting = subprocess.Popen([*_command(folder, name), "--export"])
    import torch
    import torch._dynamo

    from wavefit.routes import _torch  # noqa: F401

    torch.set_num_threads(1)  # no threads that a fork would lose
    exporting.wait()
    model = _model(name, folder)
    conv = "Conv" in model.nodes_by_type
    start = _forked if _can_fork() else _spawned
    print(f"{name}: exported in {time.monotonic() - started:.1f} s, {start.__name__}", flush=True)
    done: list[Callable[[], bool]] = []
    started_points: list[tuple[Path, Callable[[], bool]]] = []
    for batch in reversed(batches):
        for form in _FORMS:
            if "channels_last" in form and not conv:
                continue
            stem = folder / f"{name} {batch} {form}"
            started_points.append((stem.with_suffix(".json"), start(name, f"{batch} {form}", folder)))
            _wait(started_points, 1 if name == "wide" else _SIDE_BY_SIDE)
    _wait(started_points, 1)
    done += [ended for _, ended in started_points]
    (folder / f"{name}.memory").touch()
    print(f"{name}: memory done in {time.monotonic() - started:.1f} s", flush=True)
    if name == "mlp_small":
        done.append(start(name, "peaks", folder))
    while not all(ended() for ended in done):
        time.sleep(0.1)


def _wait(points: list[tuple[Path, Callable[[], bool]]], most: int) -> None:
    """Until fewer than ``most`` points are still without their memory."""
    while sum(not path.exists() and not ended() for path, ended in points) >= most:
        time.sleep(0.05)


def _command(folder: Path, name: str) -> list[str]:
    return [sys.executable, __file__, "-", "--folder", str(folder), "--net", name]


def _can_fork() -> bool:
    import torch

    process = _FORK.Process(target=torch.cuda.init)
    process.start()
    process.join()
    return process.exitcode == 0


def _spawned(name: str, point: str, folder: Path) -> Callable[[], bool]:
    process = subprocess.Popen([*_command(folder, name), "--point", point])
    return lambda: process.poll() is not None


def _forked(name: str, point: str, folder: Path) -> Callable[[], bool]:
    process = _FORK.Process(target=_one, args=(name, point, folder))
    process.start()
    return lambda: not process.is_alive()


def _one(name: str, point: str, folder: Path) -> None:
    import torch

    torch.set_num_threads(os.cpu_count() or 1)
    if point == "peaks":
        _waited(folder, lambda: _peaks(folder), delay_s=0.0)
        return
    number, form = point.split(" ", 1)
    model = _model(name, folder)
    forms = _TIMED if int(number) < _LARGE else _TIMED_LARGE
    timed = form in forms and not ("Conv" in model.nodes_by_type and form == "graph fp16")
    _point(model, name, int(number), form, folder / f"{name} {point}", timed)


def export(name: str, folder: Path) -> None:
    """The exported program, its batch dynamic, beside what the route needs to know of its ONNX twin."""
    import msgspec
    import torch
    from _torch_nets import nets

    from wavefit.schema import Model, TensorSpec

    spec, shape = nets()[name]
    module, factory = spec.split(":")
    net = getattr(importlib.import_module(module), factory)().eval()
    dynamic = ({0: torch.export.Dim("batch", max=1024)},)
    program = torch.export.export(net, (torch.randn(shape),), dynamic_shapes=dynamic)
    path = folder / f"{name}.pt2"
    torch.export.save(program, path)
    conv = any(isinstance(each, torch.nn.Conv2d) for each in net.modules())
    model = Model(
        name=name,
        path=str(folder / f"{name}.onnx"),
        sha256="",
        opset=20,
        ir_version=10,
        inputs=(TensorSpec(name="x", dtype="float32", shape=("batch", *shape[1:])),),
        outputs=(TensorSpec(name="y", dtype="float32", shape=None),),
        nodes=1,
        nodes_by_type={"Conv": 1} if conv else {},
        parameters=0,
        weight_bytes=0,
        dynamic=("batch",),
        batch="batch",
        exported_program=str(path),
    )
    (folder / f"{name}.model").write_bytes(msgspec.json.encode(model))


def _model(name: str, folder: Path) -> Any:
    from wavefit.schema import Model, decode

    return decode((folder / f"{name}.model").read_bytes(), Model, name)


def _point(model: Any, name: str, batch: int, form: str, stem: Path, timed: bool) -> None:
    import numpy as np
    import torch

    from wavefit.routes import torch_gpu
    from wavefit.schema import Device, Plan

    mode, precision, *layout = form.split()
    context = "alloc" if mode == "compile" else None
    torch.cuda.memory._record_memory_history(
        enabled="all", context=context, stacks="python", max_entries=200_000
    )
    options: dict[str, Any] = {"mode": mode} | ({"layout": layout[0]} if layout else {})
    shape = (batch, *(int(size) for size in model.inputs[0].shape[1:]))
    plan = Plan(
        route="torch_gpu",
        device="gpu0",
        precision=precision,
        batch=batch,
        shapes={"x": shape},
        options=options,
    )
    session: Any = torch_gpu.open(plan, model, Device(id="gpu0", kind="gpu", vendor="nvidia"), stem.parent)
    point = {"net": name, "batch": batch, "mode": mode, "precision": precision, "layout": " ".join(layout)}
    point["opened"] = torch.cuda.max_memory_reserved()
    x = {"x": np.random.default_rng(0).standard_normal(shape, dtype=np.float32)}
    session.run(x)
    point["first_run"] = session.device_peak_bytes()
    events = torch.cuda.memory._snapshot()["device_traces"][0]
    point["events"] = _compact(events)
    torch.cuda.memory._record_memory_history(enabled=None)
    for _ in range(3):
        session.run(x)
    point["peak"] = session.device_peak_bytes()
    point["allocated"] = torch.cuda.max_memory_allocated()
    point["now"] = torch.cuda.memory_reserved()
    point["ops"] = sum(share.nodes for share in session.placement().providers)
    _write(stem, point)
    torch.cuda.empty_cache()  # many points wait side by side
    if timed and torch.cuda.memory_reserved() < _MOST_HELD:
        _waited(stem.parent, lambda: _write(stem, point | _times(session, x)))


def _times(session: Any, x: Any) -> dict[str, float]:
    """Host to host with all threads and with one, and on the device alone."""
    import torch

    found = {"p50_s": _median(session, x)}
    torch.set_num_threads(1)
    found["one_thread_p50_s"] = _median(session, x)
    return found | {"device_s": session.device_time_s()}


def _median(session: Any, x: Any) -> float:
    for _ in range(5):
        session.run(x)
    seconds = []
    for _ in range(_RUNS):
        start = time.perf_counter()
        session.run(x)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def _peaks(folder: Path) -> None:
    import msgspec

    from wavefit.child.main import Reporter  # noqa: F401
    from wavefit.device.measure import on_torch
    from wavefit.device.measure.order import Order
    from wavefit.schema import Device, Runtime

    class Silent:
        def stage(self, text: str) -> None: ...

        def __call__(self, text: str) -> None: ...

    order = Order(
        device=Device(id="gpu0", kind="gpu", vendor="nvidia"), runtime=Runtime(name="torch", index=0)
    )
    readings = on_torch.measure(order, Silent())  # type: ignore[arg-type]
    _write(folder / "peaks", {"peaks": msgspec.to_builtins(readings)})


def _waited(folder: Path, work: Callable[[], None], delay_s: float = 0.5) -> None:
    """Waits for the go, then does it alone."""
    while not (folder / "go").exists():
        time.sleep(0.05)
    time.sleep(delay_s)  # the peaks are first
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        work()


def _write(stem: Path, found: dict[str, Any]) -> None:
    partial = stem.with_suffix(".partial")
    partial.write_text(json.dumps(found))
    partial.replace(stem.with_suffix(".json"))


def _compact(events: list[dict[str, Any]]) -> list[list[Any]]:
    """[action, address's number, bytes, stream's number, callers] of every event."""
    addresses: dict[int, int] = {}
    streams: dict[int, int] = {}
    return [
        [
            event["action"],
            addresses.setdefault(event.get("addr", 0), len(addresses)),
            event["size"],
            streams.setdefault(event["stream"], len(streams)),
            *(_callers(event) if event["size"] >= _SHOWN_BYTES else ()),
        ]
        for event in events
    ]


def _callers(event: dict[str, Any]) -> list[str]:
    """The innermost five functions in Python, where they were recorded."""
    frames = [frame for frame in event.get("frames", ()) if frame["filename"].endswith(".py")]
    return [f"{Path(frame['filename']).name}:{frame['name']}:{frame['line']}" for frame in frames[:5]]


if __name__ == "__main__":
    main()
