"""The engine's attention beside its own MatMul, Softmax and MatMul, and PyTorch's on the same GPU, fp32, in one run.

    PYTHONPATH=src python benchmarks/native_attention.py [--tokens 128,197,384,512,1024] [--heads 12] [--depth 64]

``first`` is the configuration that is taken without tuning, ``best`` the fastest of all; ``apart`` is what the three
kernels take in their first configurations, with the gaps between them. PyTorch's is scaled_dot_product_attention
without TF32, by each of its ways. Times are the device's own in microseconds, of random data, the least of rounds;
"off" is the largest relative L2 from float64. Needs one GPU with PyTorch and OpenCL.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from wavefit.native.limits import of_opencl
from wavefit.native.opencl import kernels
from wavefit.native.opencl.trial import Trial
from wavefit.native.operation import Limits, Operation
from wavefit.native.reference import compute
from wavefit.native.specimens import attention, matmul, rows, softmax, turned

CUDA = torch.device("cuda", 0)
GAP_S = 2e-6  # from one kernel's end to the next one's start
MOST_ELEMENTS = 1 << 27  # of the scores, for a float64 reference


def main() -> None:
    options = _arguments()
    torch.backends.cuda.matmul.allow_tf32 = False
    device = next(each for platform in cl.get_platforms() for each in platform.get_devices())
    context, limits = cl.Context([device]), of_opencl(device, None)
    print(limits)
    found = []
    for tokens in options.tokens:
        row = _row(options.heads, tokens, options.depth, context, limits, options.all)
        found.append(row)
        print({name: value for name, value in row.items() if name != "all"}, flush=True)
    if options.json:
        options.json.write_text(json.dumps(found))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--tokens",
        type=lambda text: [int(each) for each in text.split(",")],
        default=[128, 197, 384, 512, 1024],
    )
    parser.add_argument("--heads", type=int, default=12, help="of all of a batch")
    parser.add_argument("--depth", type=int, default=64, help="elements of a head")
    parser.add_argument("--all", action="store_true", help="print every configuration")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def _row(heads: int, tokens: int, depth: int, context: Any, limits: Limits, every: bool) -> dict[str, Any]:
    operation = attention(heads, tokens, tokens, depth)
    trial = Trial(operation, context)
    if heads * tokens**2 <= MOST_ELEMENTS:
        trial.reference = compute(operation, trial.logical())
    template = kernels.get("attention")
    timed: dict[str, float] = {}
    off = []
    for config in template.configurations(operation, limits):
        candidate = trial.compile("attention", config)
        off.append(trial.error(candidate))
        timed[json.dumps(config)] = trial.seconds(candidate) * 1e6
        if every:
            print(config, f"{timed[json.dumps(config)]:.1f} us, predicted", end=" ")
            print(f"{template.cost(operation, config, limits) * 1e6:.1f}", flush=True)
    trial.close()
    best = min(timed, key=timed.__getitem__)
    flops = 4 * heads * tokens**2 * depth
    return {
        "tokens": tokens,
        "first": round(next(iter(timed.values())), 1),
        "best": round(timed[best], 1),
        "config": best,
        "tflops": round(flops / timed[best] / 1e6, 1),
        "apart": round(_apart(heads, tokens, depth, context, limits), 1),
        "torch": {name: round(us, 1) for name, us in _torch(heads, tokens, depth).items()},
        "off": float(np.max(off)),
        "all": timed,
    }


def _apart(heads: int, tokens: int, depth: int, context: Any, limits: Limits) -> float:
    """Microseconds of the three kernels."""
    q, scores = rows(heads, tokens, depth), rows(heads, tokens, tokens)
    parts = [
        matmul(q, turned(q), constant=False),
        softmax(scores, -1),
        matmul(scores, q, constant=False),
    ]
    return (sum(_first(part, context, limits) for part in parts) + 2 * GAP_S) * 1e6


def _first(operation: Operation, context: Any, limits: Limits) -> float:
    name = kernels.claiming(operation)[0]
    config = next(iter(kernels.get(name).configurations(operation, limits)))
    trial = Trial(operation, context)
    candidate = trial.compile(name, config)
    trial.error(candidate)
    seconds = trial.seconds(candidate)
    trial.close()
    return seconds


def _torch(heads: int, tokens: int, depth: int) -> dict[str, float]:
    """Microseconds of each of PyTorch's ways that takes float32."""
    q, k, v = (torch.randn(1, heads, tokens, depth, device=CUDA) for _ in range(3))
    found = {}
    for way in (SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH):
        with sdpa_kernel(way):
            found[way.name.lower()] = _seconds(
                lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v)
            )
    return found


def _seconds(run: Callable[[], Any]) -> float:
    """Microseconds of one run, of ten in a graph."""
    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(10):
            run()
    best = 1e9
    for _ in range(5):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        best = min(best, start.elapsed_time(end) * 100)
    return best


if __name__ == "__main__":
    main()
