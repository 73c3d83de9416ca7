"""What a wavefit Session adds to bare ONNX Runtime: ResNet-50 fp32, batch 1, on the CPU, in one process.

Both ways run the same opened session, in turns, so that only wavefit's own code differs; that code alone is timed
as well, which no noise of the machine hides:

    python benchmarks/session_overhead.py [--rounds 200]

A second comparison runs two sessions, one opened by wavefit and one bare, which adds what differs in how they are
opened; two sessions share the cores, so its noise is larger.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from _models import resnet50

from wavefit import routes
from wavefit.model.load import load
from wavefit.schema import Device, Plan

TARGET = 1.01


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--models", type=Path, default=Path(tempfile.gettempdir()) / "wavefit-benchmarks")
    args = parser.parse_args()
    model = load(resnet50(args.models))
    inputs = {"data": np.random.default_rng(0).standard_normal((1, 3, 224, 224)).astype(np.float32)}
    plan = Plan(route="ort_cpu", device="cpu", shapes={"data": (1, 3, 224, 224)})
    with tempfile.TemporaryDirectory() as workdir:
        session = routes.get("ort_cpu").open(plan, model, Device(id="cpu", kind="cpu"), Path(workdir))
        inner: Any = session._session  # type: ignore[attr-defined]
        report("same session", lambda: inner.run(None, inputs), lambda: session.run(inputs), args.rounds)
        bare = ort.InferenceSession(model.path, providers=["CPUExecutionProvider"])
        own_code(session, inputs)
        report("two sessions", lambda: bare.run(None, inputs), lambda: session.run(inputs), args.rounds)
        np.testing.assert_array_equal(bare.run(None, inputs)[0], session.run(inputs)["probabilities"])
    print(f"onnxruntime {ort.__version__}; the target is a ratio of at most {TARGET} for the same session")


def own_code(session: Any, inputs: dict[str, np.ndarray]) -> None:
    """The time of wavefit's own lines alone: the runtime is replaced by one that answers at once."""

    class Instant:
        outputs = tuple(session.run(inputs).values())

        def run(self, *_: object) -> tuple[np.ndarray, ...]:
            return self.outputs

    kept, session._session = session._session, Instant()
    spent, calls = time.perf_counter(), 20_000
    for _ in range(calls):
        session.run(inputs)
    print(f"wavefit's own code: {(time.perf_counter() - spent) / calls * 1e6:.2f} µs a call")
    session._session = kept


def report(what: str, bare: Callable[[], object], wavefit: Callable[[], object], rounds: int) -> None:
    bare_s, wavefit_s = interleave(bare, wavefit, rounds)
    a, b = statistics.median(bare_s), statistics.median(wavefit_s)
    paired = statistics.median(y / x for x, y in zip(bare_s, wavefit_s, strict=True))
    print(
        f"{what}: bare {a * 1e3:.3f} ms, Session {b * 1e3:.3f} ms (medians of {rounds}), "
        f"ratio {b / a:.4f}, median of paired ratios {paired:.4f}"
    )


def interleave(
    first: Callable[[], object], second: Callable[[], object], rounds: int
) -> tuple[list[float], list[float]]:
    """Times both in turns, the order changing each round: a drift of the machine hits both alike."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(10):
        first(), second()
    for turn in range(rounds):
        order = ((0, first), (1, second)) if turn % 2 == 0 else ((1, second), (0, first))
        for place, call in order:
            start = time.perf_counter()
            call()
            times[place].append(time.perf_counter() - start)
    return times


if __name__ == "__main__":
    main()
