"""The GPU half of benchmarks/predicted.py: what PyTorch's allocator reserved, against the planner."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import _torch_held_out
import msgspec

from wavefit.device.probe import probe
from wavefit.model.shapes import bind
from wavefit.model.source import resolve
from wavefit.plan.predict import Planner
from wavefit.schema import Device, Figure, Model, Plan, TensorSpec

_HERE = Path(__file__).parent
_CAUSES = """known causes
 memory  which FFTs cuDNN tries for transposed convolutions in fp32 (autoencoder), and how it splits sums in fp16,
         is not followed exactly;
         buffers that torch.compile clears between timings fall into other blocks (vit_small, encoder_small);
         resnet101's compiled points were measured where resnet50's kernels had been timed: they took less;
         which kernel wins may change from run to run
 time    convolutions by channel and thin products reach less of the peak than a large product; what a caller's
         threads need to copy arrays depends on what else runs
 absent  gru: PyTorch 2.11 cannot trace its exported program once it lies on the GPU"""
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
    wanted = [
        point
        for point in found
        if "net" in point and (not only or point["net"] in only.split(",")) and point["batch"] in batches
    ]
    planners: dict[str, Planner] = {}
    for held_out, title in ((False, "nets that the rules were found from"), (True, "nets held out at first")):
        print(
            f"\n{title}\n{'net':14} batch  {'form':26} {'MiB':>8} {'predicted':>9} {'error':>7}   ms, predicted, ratio"
        )
        rows = [
            compare(point, planners.setdefault(point["net"], Planner(onnx_twin(point["net"], folder))), gpu)
            for point in wanted
            if (point["net"] in _torch_held_out.SHAPES) == held_out
        ]
        if rows:
            conclude(rows)


def conclude(rows: list[Row]) -> None:
    """The summary, and the largest residuals with what is known of their causes."""
    from predicted import summary

    summary([row.error for row in rows], [row.ratio for row in rows if row.ratio])
    worst = sorted(rows, key=lambda row: -abs(row.error))[:5]
    print("largest errors of memory: " + ", ".join(f"{row.label} {100 * row.error:+.0f} %" for row in worst))
    timed = [(row.ratio, row.label) for row in rows if row.ratio]
    worst_times = sorted(timed, key=lambda pair: -abs(math.log(pair[0])))[:5]
    print("largest errors of time: " + ", ".join(f"{label} {ratio:.2f}" for ratio, label in worst_times))
    print(_CAUSES)


def measured_gpu(found: list[dict[str, Any]]) -> Device:
    """The GPU of the points, with its peaks as they were measured beside them."""
    here = next((device for device in probe() if device.kind == "gpu"), None)
    gpu = here or Device(id="gpu0", kind="gpu", vendor="nvidia", name="NVIDIA H200", compute_units=132)
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


class Row(NamedTuple):
    label: str
    error: float  # of memory, relative
    ratio: float | None  # predicted over measured time


def compare(point: dict[str, Any], planner: Planner, gpu: Device) -> Row:
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
        p50_s = min(point["p50_s"], point.get("one_thread_p50_s", point["p50_s"]))
        ratio = said.total_s / p50_s
        print(f"   {1e3 * p50_s:.2f} {1e3 * said.total_s:.2f} {ratio:.2f}", end="")
    print(flush=True)
    return Row(f"{net} {batch} {' '.join(form).strip()}", error, ratio)
