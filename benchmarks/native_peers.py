"""tinygrad on the GPU that benchmarks/native_opencl.py measures: ResNet-50 fp32, inputs on the device, TinyJit.

    DEV=CUDA BEAM=0 python benchmarks/native_peers.py resnet50.onnx [--batches 1,32]    (or DEV=CL; BEAM=2 searches)

Prints the least of rounds, in milliseconds, and the relative L2 of its answers to ONNX Runtime's. Run it right before
or after native_opencl.py on the same machine. Needs the package tinygrad. On a CPU: DEV=CPU with clang in the path, or
DEV=CL on PoCL, which wants a system's loader (ocl-icd-libopencl1; pyopencl's own crashes under tinygrad 0.14) and
OCL_ICD_VENDORS, a folder with an .icd file that names PoCL's library.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import numpy as np
from tinygrad import Device, Tensor, TinyJit
from tinygrad.nn.onnx import OnnxRunner

ROUNDS, RUNS = 5, 5


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("--batches", default="1,32")
    options = parser.parse_args()
    for batch in map(int, options.batches.split(",")):
        print(_row(options.model, batch), flush=True)


def _row(path: Path, batch: int) -> str:
    runner = OnnxRunner(path)
    (name,) = runner.graph_inputs
    data = np.random.default_rng(batch).standard_normal((batch, 3, 224, 224), np.float32)
    run = TinyJit(lambda x: next(iter(runner({name: x}).values())).realize())
    x = Tensor(data).realize()
    started = time.perf_counter()
    for _ in range(3):
        got = run(x).numpy()
    built = time.perf_counter() - started
    best = float("inf")
    for _ in range(ROUNDS):
        Device[Device.DEFAULT].synchronize()
        started = time.perf_counter()
        for _ in range(RUNS):
            run(x)
        Device[Device.DEFAULT].synchronize()
        best = min(best, (time.perf_counter() - started) / RUNS)
    return (
        f"tinygrad {Device.DEFAULT} BEAM={os.environ.get('BEAM', '0')} batch {batch}: {best * 1e3:.2f} ms, "
        f"built in {built:.0f} s, relative L2 {_error(path, name, data, got):.1e}"
    )


def _error(path: Path, name: str, data: np.ndarray, got: np.ndarray) -> float:
    import onnxruntime as ort

    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (want,) = session.run(None, {name: data})
    return float(np.linalg.norm(got - want) / np.linalg.norm(want))


if __name__ == "__main__":
    main()
