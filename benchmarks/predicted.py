"""Predicted against measured: peak memory and time of the planner, over ten models and batches.

On the CPU (the real trial of the route ort_cpu, each in a process of its own), about eight minutes on two cores:

    python benchmarks/predicted.py [--only NAME] [--batches 1,8] [--base]

On a GPU with PyTorch's CUDA or ROCm build, or from what _torch_points.py measured on another machine:

    python benchmarks/predicted.py --route torch_gpu [--batches 1,32] [--points POINTS.json]

Memory is the whole process on the CPU (Measurement.host_peak_bytes), all that PyTorch's allocator reserved on a GPU
(Measurement.device_peak_bytes). Time is compared with the roofline from peaks measured on the same device.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path

import msgspec

sys.path.insert(0, str(Path(__file__).parent))

import _zoo

from wavefit.device.measure import measure
from wavefit.device.probe import probe
from wavefit.pipeline import Order, bench
from wavefit.plan.predict import Planner
from wavefit.schema import Device, Figure, Load, Record, Request

_LOAD = Load(scenarios=("SingleStream",), duration_s=1.0)
_CACHE = Path(__file__).parents[1] / ".cache" / "predicted"


class Quiet:
    """Progress on standard error."""

    def say(self, text: str) -> None:
        print(f"\r{text[:78]:<78}", end="", file=sys.stderr, flush=True)

    def done(self, record: Record, again: bool) -> None:
        if record.why_not:
            print(f"\n{record.model.name} {record.plan.label}: {record.why_not}", file=sys.stderr)


def main() -> None:
    options = _options()
    batches = tuple(int(part) for part in options.batches.split(","))
    if options.route == "torch_gpu":
        import _predicted_torch

        _predicted_torch.main(batches, options.only, options.points, options.folder)
        return
    if options.base:
        base = measured_base(options.folder)
        print(f"process without a model: {base / 2**20:.1f} MiB (VmHWM after the first run of 20 parameters)")
        return
    peaks = measured_cpu(options.folder).peaks
    for name, figure in peaks.items():
        print(f"{name}: {figure.value:.4g} {figure.unit} ({figure.source})")
    print(f"\n{'model':14} {'batch':>5} {'measured':>9} {'predicted':>9} {'error':>7}", end="")
    print(f" {'measured':>9} {'predicted':>9} {'ratio':>6}")
    print(f"{'':20} {'MiB, whole process':>27} {'ms a batch':>27}")
    errors, ratios = [], []
    for name, path in _zoo.models(options.folder).items():
        if options.only and name not in options.only.split(","):
            continue
        for record in records(path, batches):
            error, ratio = compare(name, record, peaks)
            errors.append(error)
            ratios.append(ratio)
    summary(errors, ratios)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--route", choices=("ort_cpu", "torch_gpu"), default="ort_cpu")
    parser.add_argument("--batches", default="1,8")
    parser.add_argument("--only", help="names, comma between them")
    parser.add_argument("--base", action="store_true", help="measure the process without a model, and stop")
    parser.add_argument("--points", type=Path, help="what _torch_points.py wrote")
    parser.add_argument("--folder", type=Path, default=_CACHE, help="where the models are written")
    return parser.parse_args()


def records(path: Path, batches: tuple[int, ...]) -> list[Record]:
    """The records of a real trial at every batch; those that failed are said and left out."""
    request = Request(batches=batches, routes=("ort_cpu",), devices=("cpu",), load=_LOAD)
    found, _ = bench(Order(model=str(path), request=request, folder="", command=""), Quiet())
    print("\r", end="", file=sys.stderr)
    return [record for record in found if record.measurement is not None]


def measured_base(folder: Path) -> int:
    (record,) = records(_zoo.tiny(folder), (1,))
    assert record.measurement is not None
    assert record.measurement.host_peak_bytes is not None
    return record.measurement.host_peak_bytes


def compare(name: str, record: Record, peaks: dict[str, Figure]) -> tuple[float, float]:
    """Prints one line; returns the relative error of memory and predicted over measured time."""
    assert record.measurement is not None
    assert record.measurement.host_peak_bytes is not None
    device = msgspec.structs.replace(record.device, peaks=peaks)
    said = Planner(record.model).predict(device, record.plan)
    assert said is not None
    assert said.peak_bytes is not None
    assert said.total_s is not None
    measured, predicted = record.measurement.host_peak_bytes, said.peak_bytes
    latency = record.measurement.scenarios[0].latency.p50_s
    error, ratio = predicted / measured - 1, said.total_s / latency
    print(
        f"{name:14} {record.plan.batch:5} {measured / 2**20:9.1f} {predicted / 2**20:9.1f} {100 * error:+6.1f}%"
        f" {1e3 * latency:9.2f} {1e3 * said.total_s:9.2f} {ratio:6.2f}",
        flush=True,
    )
    return error, ratio


def summary(errors: list[float], ratios: list[float]) -> None:
    sizes = [abs(error) for error in errors]
    print(f"\nmemory: {len(errors)} points, median error {100 * statistics.median(sizes):.1f} %, ", end="")
    print(f"largest over {100 * max(errors):+.1f} %, largest under {100 * min(errors):+.1f} %")
    if not ratios:
        return
    print(f"time: predicted / measured, median {statistics.median(ratios):.2f}, ", end="")
    print(f"from {min(ratios):.2f} to {max(ratios):.2f}")


def measured_cpu(folder: Path) -> Device:
    """This CPU with what `wavefit devices --measure` measures of it."""
    answer = measure(probe()[0], Quiet().say, folder)
    if not isinstance(answer, Device):
        sys.exit(f"the CPU could not be measured: {answer.reason}")
    return answer


if __name__ == "__main__":
    main()
