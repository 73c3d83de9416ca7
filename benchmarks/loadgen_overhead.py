"""What MLPerf LoadGen and wavefit's scenarios cost: a session that does nothing, through them and in a bare loop.

    python benchmarks/loadgen_overhead.py

Prints microseconds, and their ratios to the latency of the demo's model and of ResNet-50 (batch 1, bare ONNX Runtime on
the CPU, measured here).
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median

import numpy as np
from _models import resnet50

import wavefit
from wavefit.bench import scenarios
from wavefit.bench.system import Subject
from wavefit.routes.session import Arrays, Session
from wavefit.schema import Load, ScenarioName, TensorSpec

DEMO = Path(wavefit.__file__).parent / "demo" / "digits.onnx"
ROUNDS = 5
LOAD = Load(duration_s=1.0)


class Nothing(Session):
    """Answers at once."""

    def __init__(self) -> None:
        super().__init__((TensorSpec(name="x", dtype="float32", shape=("N", 1)),), ())

    def _run_impl(self, inputs: Mapping[str, np.ndarray]) -> Arrays:
        return {}


def bare_loop_s(run: Callable[[Arrays], object], inputs: Arrays, most_s: float = 1.0) -> float:
    """Seconds a call, in a loop that does nothing else."""
    calls, start = 0, time.perf_counter()
    while (spent := time.perf_counter() - start) < most_s:
        for _ in range(1000):
            run(inputs)
        calls += 1000
    return spent / calls


def scenario_s(name: ScenarioName, subject: Subject) -> tuple[float, float]:
    """Seconds a run as LoadGen drives it (wall clock), and the median that the scenario reports as latency."""
    result = scenarios.run(name, subject, LOAD)
    return result.duration_s / (result.samples / subject.batch), result.latency.p50_s


def model_latency_s(path: Path) -> float:
    """The best of 30 runs of batch 1 in bare ONNX Runtime on the CPU."""
    import onnxruntime as ort

    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    random = np.random.default_rng(0)
    inputs = {}
    for spec in session.get_inputs():
        shape = [dim if isinstance(dim, int) else 1 for dim in spec.shape]
        inputs[spec.name] = random.random(shape, dtype=np.float32)
    for _ in range(10):
        session.run(None, inputs)
    times = []
    for _ in range(30):
        start = time.perf_counter()
        session.run(None, inputs)
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    session, inputs = Nothing(), {"x": np.ones((1, 1), dtype=np.float32)}
    subject = Subject(session, [inputs], batch=1, batch_s=5e-6)
    rows: dict[str, list[float]] = {
        "bare loop": [],
        "SingleStream": [],
        "its reported p50": [],
        "Offline": [],
    }
    for _ in range(ROUNDS):  # side by side: a slower minute slows them all
        rows["bare loop"].append(bare_loop_s(session.run, inputs))
        wall, reported = scenario_s("SingleStream", subject)
        rows["SingleStream"].append(wall)
        rows["its reported p50"].append(reported)
        rows["Offline"].append(scenario_s("Offline", subject)[0])
    bare = min(rows["bare loop"])  # the best round of each: other work on the machine only ever adds
    with tempfile.TemporaryDirectory() as folder:
        latencies = {path.stem: model_latency_s(path) for path in (DEMO, resnet50(Path(folder)))}
    for name, latency in latencies.items():
        print(f"{name}: {latency * 1e6:,.1f} us at batch 1")
    print(
        f"bare loop over a session that does nothing: {bare * 1e6:.2f} us a call; above it, best of {ROUNDS}:"
    )
    for name in list(rows)[1:]:
        over = min(rows[name]) - bare
        ratios = ", ".join(f"{over / latency:.3%} of {model}" for model, latency in latencies.items())
        print(
            f"  {name:18} {over * 1e6:6.2f} us: {ratios} (median {(median(rows[name]) - bare) * 1e6:.2f} us)"
        )


if __name__ == "__main__":
    main()
