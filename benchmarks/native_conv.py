"""The engine's convolutions beside PyTorch's library on the same GPU, one row a layer: where each template is fastest.

    PYTHONPATH=src python benchmarks/native_conv.py [--layers resnet,mobile,other] [--batches 128,8] [--most 8]

For each layer, every configuration among the first ``--most`` of every template that claims it is checked at batch 2
against PyTorch in float64, then timed at the batch by the device's own clock, least of rounds, random data, beside
cuDNN (or MIOpen) in fp32 without TF32, the faster of both layouts. TFLOP/s count the direct algorithm's operations, for
Winograd too; GB/s count every input and output once. Needs one GPU with PyTorch and OpenCL.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl
import torch
from native_gemm import _torch_seconds  # type: ignore[import-not-found]

from wavefit.native.limits import of_opencl
from wavefit.native.opencl import kernels
from wavefit.native.opencl.kernels import _conv
from wavefit.native.opencl.trial import Trial
from wavefit.native.operation import Config, Operation, View, channels_last, row_major

LAYERS = {  # operator, channels in, out, kernel, stride, size in, groups
    "resnet": (
        ("Conv", 3, 64, 7, 2, 224, 1),
        ("Conv", 64, 64, 3, 1, 56, 1),
        ("Conv", 128, 128, 3, 1, 28, 1),
        ("Conv", 256, 256, 3, 1, 14, 1),
        ("Conv", 512, 512, 3, 1, 7, 1),
    ),
    "mobile": (
        ("Conv", 3, 32, 3, 2, 224, 1),
        ("Conv", 32, 32, 3, 1, 112, 32),
        ("Conv", 96, 96, 3, 2, 112, 96),
        ("Conv", 144, 144, 3, 1, 56, 144),
        ("Conv", 192, 192, 3, 1, 28, 192),
        ("Conv", 576, 576, 3, 1, 14, 576),
        ("Conv", 576, 576, 3, 2, 14, 576),
        ("Conv", 960, 960, 3, 1, 7, 960),
    ),
    "other": (
        ("Conv", 240, 240, 5, 1, 28, 240),
        ("Conv", 128, 128, 3, 1, 56, 32),
        ("Conv", 512, 512, 3, 1, 14, 32),
        ("Conv", 240, 240, 1, 1, 28, 3),
        ("ConvTranspose", 256, 128, 2, 2, 28, 1),
        ("Conv", 64, 128, 3, 1, 112, 1),
    ),
}
Layer = tuple[str, int, int, int, int, int, int]


def main() -> None:
    options = _arguments()
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    device = next(each for platform in cl.get_platforms() for each in platform.get_devices())
    context = cl.Context([device])
    timed: list[dict[str, Any]] = []
    for batch in options.batches:
        for group in options.layers:
            for layer in LAYERS[group]:
                _layer(context, batch, layer, options, timed)
    if options.json:
        options.json.write_text(json.dumps(timed))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=lambda text: text.split(","), default=list(LAYERS))
    parser.add_argument(
        "--batches", type=lambda text: [int(each) for each in text.split(",")], default=[128, 8]
    )
    parser.add_argument("--most", type=int, default=8, help="configurations of each template")
    parser.add_argument("--threads", type=int, default=12)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def _layer(
    context: Any, batch: int, layer: Layer, options: argparse.Namespace, timed: list[dict[str, Any]]
) -> None:
    """Checks and times one layer, and prints the best of each template beside the library."""
    limits = of_opencl(context.devices[0], None)
    operation, small = _operation(batch, layer), _operation(2, layer)
    checked, trial = Trial(small, context), Trial(operation, context)
    checked.reference = _reference(layer, checked)
    library = _library(batch, layer)
    best: dict[str, tuple[float, Config, float]] = {}

    def compiled(pair: tuple[str, Config]) -> tuple[str, Config, Any, Any]:
        return (*pair, checked.compile(*pair), trial.compile(*pair))

    with ThreadPoolExecutor(options.threads) as pool:
        for template, config, at_two, candidate in pool.map(
            compiled, _candidates(operation, limits, options.most)
        ):
            try:
                error = checked.error(at_two)
            except cl.Error as refused:
                print("    REFUSED:", template, config, refused)
                continue
            if not error < 1e-5:
                print("    WRONG:", template, config, error)
                continue
            kept = best.get(template)
            seconds = trial.seconds(candidate, kept[0] if kept else None)
            cost = kernels.get(template).cost(operation, config, limits)
            timed.append(
                {
                    "batch": batch,
                    "layer": layer,
                    "template": template,
                    **config,
                    "s": seconds,
                    "cost": cost,
                    "e": error,
                }
            )
            if kept is None or seconds < kept[0]:
                best[template] = seconds, config, error
    shape = _conv.conv(operation)
    flops = 2 * shape.x.size * shape.outs * shape.taps if layer[0] == "ConvTranspose" else shape.flops
    print(
        f"{batch} {layer}: library {library * 1e6:.1f} us, {flops / library * 1e-12:.1f} TFLOP/s", flush=True
    )
    for template, (seconds, config, error) in sorted(best.items(), key=lambda pair: pair[1][0]):
        rates = f"{flops / seconds * 1e-12:5.1f} TFLOP/s {shape.bytes / seconds * 1e-9:6.0f} GB/s"
        values = "/".join(map(str, config.values()))
        print(
            f"    {template:15} {seconds * 1e6:8.1f} us {rates} {library / seconds:5.2f}x {values} {error:.1e}"
        )
    checked.close()
    trial.close()


def _candidates(operation: Operation, limits: Any, most: int) -> Iterator[tuple[str, Config]]:
    claiming = kernels.claiming(operation)
    for template in claiming:
        if template != "conv_any" or len(claiming) == 1:
            for config in islice(kernels.get(template).configurations(operation, limits), most):
                yield template, config


def _operation(batch: int, layer: Layer) -> Operation:
    """A first layer reads the picture as it lies; everything else is channels-last."""
    op, ins, outs, kernel, stride, size, group = layer
    pad = kernel // 2 if op == "Conv" else 0
    out = (size + 2 * pad - kernel) // stride + 1 if op == "Conv" else (size - 1) * stride + kernel
    x, y = (batch, ins, size, size), (batch, outs, out, out)
    w = (outs, ins // group, kernel, kernel) if op == "Conv" else (ins, outs // group, kernel, kernel)
    return Operation(
        op=op,
        inputs=(
            View(shape=x, strides=row_major(x) if ins == 3 else channels_last(x)),
            View(shape=w, strides=row_major(w)),
            View(shape=(outs,), strides=(1,)),
        ),
        outputs=(View(shape=y, strides=channels_last(y)),),
        attributes={"strides": (stride,) * 2, "pads": (pad,) * 4, "dilations": (1, 1), "group": group},
        constant=(False, True, True),
        own=3,
    )


def _run(layer: Layer, x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    op, _, _, kernel, stride, _, group = layer
    if op == "ConvTranspose":
        return torch.nn.functional.conv_transpose2d(x, w, b, stride=stride, groups=group)
    return torch.nn.functional.conv2d(x, w, b, stride=stride, padding=kernel // 2, groups=group)


def _reference(layer: Layer, trial: Trial) -> np.ndarray:
    """In float64, of the trial's own data."""
    given = []
    for view, array in zip(trial.operation.inputs, trial._arrays, strict=True):
        assert view is not None
        assert array is not None
        steps = tuple(stride * array.itemsize for stride in view.strides)
        given.append(
            torch.tensor(np.lib.stride_tricks.as_strided(array, view.shape, steps).astype(np.float64))
        )
    return _run(layer, *given).numpy()


def _library(batch: int, layer: Layer) -> float:
    """The faster of both layouts."""
    operation = _operation(batch, layer)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    x, w, b = (torch.randn(view.shape, device=device) for view in operation.inputs if view is not None)
    if device == "cpu":
        return float("nan")
    found = []
    for form in (torch.contiguous_format, torch.channels_last):
        given = x.to(memory_format=form), w.to(memory_format=form), b
        found.append(float(_torch_seconds(lambda given=given: _run(layer, *given))))
    return min(found)


if __name__ == "__main__":
    main()
