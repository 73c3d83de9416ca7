"""The engine's matrix products and convolutions beside PyTorch's libraries on the same GPU: TFLOP/s, in one run.

    PYTHONPATH=src python benchmarks/native_gemm.py [--sizes 1024,2048,4096,1000,1537] [--convs 1,8,32,128] [--most 24]

SGEMM is timed beside cuBLAS (or rocBLAS) in fp32 without TF32, and every distinct convolution of ResNet-50 beside cuDNN
(or MIOpen). ``first`` is the configuration that is taken without tuning, ``best`` the fastest of the ``--most`` that
the model ranks first. Times are the device's own, random data, the least of rounds. Needs one GPU with PyTorch and
OpenCL.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import pyopencl as cl
import torch

from wavefit.native.limits import of_opencl
from wavefit.native.opencl import kernels
from wavefit.native.opencl.trial import Candidate, Trial
from wavefit.native.operation import Config, Limits, Operation, View, channels_last, row_major

CUDA = torch.device("cuda", 0)
RESNET50 = (  # channels in, out, kernel, stride, size in; how many
    (3, 64, 7, 2, 224, 1),
    (64, 64, 1, 1, 56, 1),
    (64, 64, 3, 1, 56, 3),
    (64, 256, 1, 1, 56, 4),
    (256, 64, 1, 1, 56, 2),
    (256, 128, 1, 1, 56, 1),
    (128, 128, 3, 2, 56, 1),
    (128, 512, 1, 1, 28, 4),
    (256, 512, 1, 2, 56, 1),
    (512, 128, 1, 1, 28, 3),
    (128, 128, 3, 1, 28, 3),
    (512, 256, 1, 1, 28, 1),
    (256, 256, 3, 2, 28, 1),
    (256, 1024, 1, 1, 14, 6),
    (512, 1024, 1, 2, 28, 1),
    (1024, 256, 1, 1, 14, 5),
    (256, 256, 3, 1, 14, 5),
    (1024, 512, 1, 1, 14, 1),
    (512, 512, 3, 2, 14, 1),
    (512, 2048, 1, 1, 7, 3),
    (1024, 2048, 1, 2, 14, 1),
    (2048, 512, 1, 1, 7, 2),
    (512, 512, 3, 1, 7, 2),
)


def main() -> None:
    options = _arguments()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    device = next(each for platform in cl.get_platforms() for each in platform.get_devices())
    context, limits = cl.Context([device]), of_opencl(device, None)
    print(limits)
    timed: list[dict[str, Any]] = []
    for size in options.sizes:
        operation = _matmul(size)
        a, b = torch.randn(size, size, device=CUDA), torch.randn(size, size, device=CUDA)
        _row(
            f"sgemm {size}",
            operation,
            context,
            limits,
            _torch_seconds(lambda a=a, b=b: a @ b),
            options.most,
            timed,
        )
    for batch in options.convs:
        totals: Counter[str] = Counter()
        for layer in (RESNET50[number] for number in options.layers):
            *sizes, count = layer
            operation = _conv(batch, *sizes)
            library = _torch_conv(batch, *sizes)
            row = _row(f"conv {batch} {sizes}", operation, context, limits, library, options.most, timed)
            for name, seconds in row.items():
                totals[name] += seconds * count
        print(
            f"batch {batch}: " + ", ".join(f"{name} {total * 1e3:.3f} ms" for name, total in totals.items()),
            flush=True,
        )
    if options.json:
        options.json.write_text(json.dumps(timed))


def _arguments() -> argparse.Namespace:
    def numbers(text: str) -> list[int]:
        return [int(each) for each in text.split(",") if each]

    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", type=numbers, default=[1024, 2048, 4096, 1000, 1537])
    parser.add_argument("--convs", type=numbers, default=[1, 8, 32, 128])
    parser.add_argument(
        "--layers", type=numbers, default=list(range(len(RESNET50))), help="of ResNet-50, by number"
    )
    parser.add_argument("--most", type=int, default=24, help="configurations of each template")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def _matmul(size: int) -> Operation:
    view = View(shape=(size, size), strides=(size, 1))
    return Operation(op="MatMul", inputs=(view, view), outputs=(view,), own=2, constant=(False, True))


def _conv(batch: int, ins: int, outs: int, kernel: int, stride: int, size: int) -> Operation:
    pad = kernel // 2
    out = (size + 2 * pad - kernel) // stride + 1
    x, y, w = (batch, ins, size, size), (batch, outs, out, out), (outs, ins, kernel, kernel)
    return Operation(
        op="Conv",
        inputs=(
            View(shape=x, strides=channels_last(x)),
            View(shape=w, strides=row_major(w)),
            View(shape=(outs,), strides=(1,)),
        ),
        outputs=(View(shape=y, strides=channels_last(y)),),
        attributes={"strides": (stride,) * 2, "pads": (pad,) * 4, "dilations": (1, 1), "group": 1},
        constant=(False, True, True),
        own=3,
    )


def _torch_conv(batch: int, ins: int, outs: int, kernel: int, stride: int, size: int) -> float:
    """The faster of both layouts."""
    x, w = (
        torch.randn(batch, ins, size, size, device=CUDA),
        torch.randn(outs, ins, kernel, kernel, device=CUDA),
    )
    b = torch.randn(outs, device=CUDA)
    found = []
    for form in (torch.contiguous_format, torch.channels_last):
        given = x.to(memory_format=form), w.to(memory_format=form)
        found.append(
            _torch_seconds(
                lambda g=given: torch.nn.functional.conv2d(*g, b, stride=stride, padding=kernel // 2)
            )
        )
    return min(found)


def _torch_seconds(run: Callable[[], Any]) -> float:
    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(10):
            run()
    best = 1.0
    for _ in range(4):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        best = min(best, start.elapsed_time(end) * 1e-4)
    return best


def _row(
    name: str,
    operation: Operation,
    context: Any,
    limits: Limits,
    library: float,
    most: int,
    timed: list[dict[str, Any]],
) -> dict[str, float]:
    trial = Trial(operation, context)
    started = time.perf_counter()
    best: tuple[float, str, Config] | None = None
    first = flops = 0.0
    with ThreadPoolExecutor(12) as pool:
        for candidate in pool.map(lambda pair: _compiled(trial, *pair), _candidates(operation, limits, most)):
            if isinstance(candidate, str):
                print("   ", candidate[:200])
                continue
            error = trial.error(candidate)
            seconds = trial.seconds(candidate, best[0] if best else None)
            flops = flops or candidate.made.flops
            cost = kernels.get(candidate.template).cost(operation, candidate.config, limits)
            entry = {
                "name": name,
                "template": candidate.template,
                **candidate.config,
                "s": seconds,
                "cost": cost,
            }
            timed.append({**entry, "error": error})
            if not error < 1e-4:
                print("    wrong:", candidate.template, candidate.config, error)
                continue
            first = first or seconds
            if best is None or seconds < best[0]:
                best = seconds, candidate.template, candidate.config
    trial.close()
    assert best is not None
    rate = flops * 1e-12
    print(
        f"{name:32} first {first * 1e6:8.1f} us {rate / first:5.1f}  best {best[0] * 1e6:8.1f} us "
        f"{rate / best[0]:5.1f}  library {library * 1e6:9.1f} us {rate / library:5.1f} TFLOP/s  "
        f"{library / best[0]:.2f}  {best[1]} "
        f"{'/'.join(map(str, best[2].values()))}  {time.perf_counter() - started:.1f} s",
        flush=True,
    )
    return {"first": first, "best": best[0], "library": library}


def _candidates(operation: Operation, limits: Limits, most: int) -> Iterator[tuple[str, Config]]:
    for template in kernels.claiming(operation):
        if template != "conv_any":
            for config in islice(kernels.get(template).configurations(operation, limits), most):
                yield template, config


def _compiled(trial: Trial, template: str, config: Config) -> Candidate | str:
    try:
        return trial.compile(template, config)
    except cl.Error as error:
        return f"{template} {config}: {error}"


if __name__ == "__main__":
    main()
