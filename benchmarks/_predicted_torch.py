"""The GPU half of benchmarks/predicted.py: PyTorch's allocator, op by op, against the planner."""

from __future__ import annotations

import gc
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import torch
from torch import nn

from wavefit import routes
from wavefit.device.catalogue import fill
from wavefit.device.probe import probe
from wavefit.model.load import load
from wavefit.model.shapes import bind
from wavefit.model.source import resolve
from wavefit.plan.predict import Planner
from wavefit.schema import Device, Figure, Model, Plan, TensorSpec

_HERE = Path(__file__).parent
_IMAGE = (2, 3, 224, 224)
_TIMED = 20


def _nets() -> dict[str, tuple[str, tuple[int, ...]]]:
    """Factories in this file and the example, and the shape of their input."""
    own = ("mlp_small", "mlp_large", "encoder_small", "encoder_large", "vgg", "wide", "resnet34", "resnet101")
    shapes = {"mlp_small": (2, 1024), "mlp_large": (2, 4096), "encoder_small": (2, 128, 512)}
    shapes |= {"encoder_large": (2, 256, 1024)}
    found = {name: (f"_predicted_torch:{name}", shapes.get(name, _IMAGE)) for name in own}
    return found | {name: (f"resnet50:{name}", _IMAGE) for name in ("resnet18", "resnet50")}


def main(batches: tuple[int, ...], only: str | None) -> None:
    sys.path.insert(0, str(_HERE.parent / "examples/resnet50"))
    gpu = next((fill(device) for device in probe() if device.kind == "gpu"), None)
    if gpu is None or not torch.cuda.is_available():
        sys.exit("no GPU that PyTorch can use")
    gpu = msgspec.structs.replace(gpu, peaks=gpu.peaks | measured_peaks())
    for name, figure in gpu.peaks.items():
        print(f"{name}: {figure.value:.4g} {figure.unit} ({figure.source})")
    print(
        f"\n{'model':14} {'batch':>5} {'MiB':>9} {'predicted':>9} {'error':>7} {'ms':>9} {'predicted':>9} ratio"
    )
    errors, ratios = [], []
    with tempfile.TemporaryDirectory() as folder:
        for name, (spec, shape) in _nets().items():
            if only and name not in only.split(","):
                continue
            inputs = (TensorSpec(name="x", dtype="float32", shape=shape),)
            model = resolve(spec, inputs, Path(folder) / name, lambda text: None)
            for batch in batches:
                error, ratio = compare(name, model, gpu, batch, Path(folder))
                errors.append(error)
                ratios.append(ratio)
    from predicted import summary

    summary(errors, ratios)


def compare(name: str, model: Model, gpu: Device, batch: int, folder: Path) -> tuple[float, float]:
    """Prints one line; returns the relative error of memory and predicted over measured time."""
    plan = Plan(
        route="torch_gpu", device=gpu.id, batch=batch, shapes=bind(model, batch), options={"mode": "eager"}
    )
    said = Planner(load(Path(model.path))).predict(gpu, plan)
    gc.collect()
    torch.cuda.empty_cache()
    session = routes.get("torch_gpu").open(plan, model, gpu, folder)
    rng = np.random.default_rng(0)
    inputs = {key: rng.standard_normal(shape).astype(np.float32) for key, shape in plan.shapes.items()}
    seconds = [_timed(lambda: session.run(inputs)) for _ in range(3 + _TIMED)][3:]
    measured, latency = session.device_peak_bytes() or 0, float(np.median(seconds))
    session.close()
    peak = said.peak_bytes if said and said.peak_bytes else 0
    total = said.total_s if said and said.total_s else float("nan")
    error, ratio = peak / measured - 1, total / latency
    print(
        f"{name:14} {batch:5} {measured / 2**20:9.1f} {peak / 2**20:9.1f} {100 * error:+6.1f}%"
        f" {1e3 * latency:9.2f} {1e3 * total:9.2f} {ratio:5.2f}",
        flush=True,
    )
    return error, ratio


def measured_peaks() -> dict[str, Figure]:
    """A matrix product of 4096 in fp32 without TF32, a copy of 1 GiB on the device, to it, and an empty launch."""
    torch.backends.cuda.matmul.allow_tf32 = False
    a = torch.randn(4096, 4096, device="cuda")
    big, other = torch.ones(1 << 28, device="cuda"), torch.empty(1 << 28, device="cuda")
    pinned, one = torch.ones(1 << 26).pin_memory(), torch.ones(1, device="cuda")
    target = big[: 1 << 26]
    found = {
        "fp32": ("FLOP/s", 2 * 4096**3 / _device_time(lambda: a @ a), "measured: matmul of 4096, no TF32"),
        "bandwidth": (
            "B/s",
            2 * 4 * 2**28 / _device_time(lambda: other.copy_(big)),
            "measured: copy of 1 GiB",
        ),
        "h2d_pinned": (
            "B/s",
            4 * 2**26 / _device_time(lambda: target.copy_(pinned, non_blocking=True)),
            "measured: 256 MiB, pinned",
        ),
        "launch_s": (
            "s",
            _device_time(lambda: [one.add_(1) for _ in range(100)]) / 100,
            "measured: 100 additions",
        ),
    }
    return {
        name: Figure(value=value, unit=unit, source=source) for name, (unit, value, source) in found.items()
    }


def _device_time(work: Callable[[], object]) -> float:
    return min(_timed(work) for _ in range(10))


def _timed(work: Callable[[], object]) -> float:
    import time

    torch.cuda.synchronize()
    start = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - start


# ---- Nets -----------------------------------------------------------------------------------------------------------


def _mlp(*widths: int) -> nn.Module:
    layers: list[nn.Module] = []
    for rows, columns in zip(widths, widths[1:], strict=False):  # noqa: RUF007
        layers += [nn.Linear(rows, columns), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def mlp_small() -> nn.Module:
    return _mlp(1024, 4096, 4096, 1000)


def mlp_large() -> nn.Module:
    return _mlp(4096, 8192, 8192, 8192, 1000)


class Encoder(nn.Module):
    """Pre-norm attention written out, so that every intermediate tensor is an operator's output."""

    def __init__(self, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * layers))
        self.mixes = nn.ModuleList(nn.Linear(width, width) for _ in range(4 * layers))
        self.ups = nn.ModuleList(nn.Linear(width, 4 * width) for _ in range(layers))
        self.downs = nn.ModuleList(nn.Linear(4 * width, width) for _ in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for n, (up, down) in enumerate(zip(self.ups, self.downs, strict=True)):
            normed = self.norms[2 * n](x)
            mixes = self.mixes[4 * n : 4 * n + 3]
            q, k, v = (mix(normed).unflatten(2, (self.heads, -1)).transpose(1, 2) for mix in mixes)
            scores = torch.softmax(q @ k.transpose(2, 3) * q.shape[-1] ** -0.5, -1)
            x = x + self.mixes[4 * n + 3]((scores @ v).transpose(1, 2).flatten(2))
            x = x + down(torch.relu(up(self.norms[2 * n + 1](x))))
        return x


def encoder_small() -> nn.Module:
    return Encoder(512, 8, 6)


def encoder_large() -> nn.Module:
    return Encoder(1024, 16, 12)


def _plain(*widths: int) -> nn.Module:
    layers: list[nn.Module] = []
    channels = 3
    for width in widths:
        layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        channels = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000))


def vgg() -> nn.Module:
    return _plain(64, 128, 256, 512, 512)


def wide() -> nn.Module:
    return _plain(256, 512, 1024)


def resnet34() -> nn.Module:
    from resnet50 import Basic, ResNet

    return ResNet(Basic, (3, 4, 6, 3), 1000)


def resnet101() -> nn.Module:
    from resnet50 import Bottleneck, ResNet

    return ResNet(Bottleneck, (3, 4, 23, 3), 1000)
