"""The GPU half of benchmarks/predicted.py: what PyTorch's allocator reserved, against the planner."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

from wavefit.device.probe import probe
from wavefit.model.shapes import bind
from wavefit.model.source import resolve
from wavefit.plan.predict import Planner
from wavefit.schema import Device, Figure, Model, Plan, TensorSpec

_HERE = Path(__file__).parent
_SHOWN = "net", "batch", "mode", "precision", "layout"


def main(batches: tuple[int, ...], only: str | None, points: Path | None, folder: Path) -> None:
    """Prints a line for every point that was measured; without ``points`` they are measured here."""
    sys.path.insert(0, str(_HERE.parent / "examples/resnet50"))
    folder.mkdir(parents=True, exist_ok=True)
    if points is None:
        points = folder / "points.json"
        command = [sys.executable, str(_HERE / "_torch_points.py"), str(points)]
        wanted = ["--batches", ",".join(map(str, batches)), *(("--only", only) if only else ())]
        subprocess.run([*command, *wanted], check=True)
    found = json.loads(points.read_text())
    gpu = measured_gpu(found)
    print(f"{'net':14} batch  {'form':26} {'MiB':>8} {'predicted':>9} {'error':>7}   ms, predicted, ratio")
    errors, ratios = [], []
    planners: dict[str, Planner] = {}
    for point in found:
        name = point.get("net")
        if name is None or (only and name not in only.split(",")) or point["batch"] not in batches:
            continue
        if name not in planners:
            planners[name] = Planner(onnx_twin(name, folder))
        error, ratio = compare(point, planners[name], gpu)
        errors.append(error)
        ratios += [ratio] if ratio else []
    from predicted import summary

    summary(errors, ratios)


def measured_gpu(found: list[dict[str, Any]]) -> Device:
    """The GPU of the points, with its peaks as they were measured beside them."""
    here = next((device for device in probe() if device.kind == "gpu"), None)
    gpu = here or Device(id="gpu0", kind="gpu", vendor="nvidia", name="NVIDIA H200")
    readings = next((point["peaks"]["readings"] for point in found if "peaks" in point), {})
    peaks = {
        name: Figure(value=each["value"], unit=each["unit"], source=f"measured: {each['how']}")
        for name, each in readings.items()
    }
    for name, figure in peaks.items():
        print(f"{name}: {figure.value:.4g} {figure.unit} ({figure.source})")
    return msgspec.structs.replace(gpu, peaks=gpu.peaks | peaks)


def onnx_twin(name: str, folder: Path) -> Model:
    """The net as ONNX, exported where that was not done before."""
    from _torch_nets import nets

    place = folder / name
    kept = place / "model.json"
    if not kept.exists():
        place.mkdir(exist_ok=True)
        spec, shape = nets()[name]
        inputs = (TensorSpec(name="x", dtype="float32", shape=shape),)
        kept.write_bytes(msgspec.json.encode(resolve(spec, inputs, place, lambda text: None)))
    return msgspec.json.decode(kept.read_bytes(), type=Model)


def compare(point: dict[str, Any], planner: Planner, gpu: Device) -> tuple[float, float | None]:
    """Prints one line; returns the relative error of memory, and predicted over measured time where there is one."""
    plan = Plan(
        route="torch_gpu",
        device=gpu.id,
        precision=point["precision"],
        batch=point["batch"],
        shapes=bind(planner.model, point["batch"]),
        options={"mode": point["mode"]} | ({"layout": point["layout"]} if point["layout"] else {}),
    )
    said = planner.predict(gpu, plan)
    peak = said.peak_bytes if said and said.peak_bytes else 0
    measured = point["peak"]
    net, batch, *form = (str(point[name]) for name in _SHOWN)
    error = peak / measured - 1
    print(f"{net:14} {batch:>5}  {' '.join(form):26} {measured / 2**20:8.0f} {peak / 2**20:9.0f}", end="")
    print(f" {100 * error:+6.1f}%", end="")
    ratio = None
    if "p50_s" in point and said and said.total_s:
        ratio = said.total_s / point["p50_s"]
        print(f"   {1e3 * point['p50_s']:.2f} {1e3 * said.total_s:.2f} {ratio:.2f}", end="")
    print(flush=True)
    return error, ratio
