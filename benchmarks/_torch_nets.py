"""Nets for the GPU half of benchmarks/predicted.py, with random weights: ten, _torch_more_nets, _torch_held_out."""

from __future__ import annotations

import _torch_held_out
import _torch_more_nets
import torch
from torch import nn

_IMAGE = (2, 3, 224, 224)


def nets() -> dict[str, tuple[str, tuple[int, ...]]]:
    """Factories in this file and the example, and the shape of their input."""
    shapes = {"mlp_small": (2, 1024), "mlp_large": (2, 4096), "encoder_small": (2, 128, 512)}
    shapes |= {"encoder_large": (2, 256, 1024)}
    own = ("mlp_small", "mlp_large", "encoder_small", "encoder_large", "vgg", "wide", "resnet34", "resnet101")
    found = {name: (f"_torch_nets:{name}", shapes.get(name, _IMAGE)) for name in own}
    found |= {name: (f"resnet50:{name}", _IMAGE) for name in ("resnet18", "resnet50")}
    for file in (_torch_more_nets, _torch_held_out):
        found |= {name: (f"{file.__name__}:{name}", shape) for name, shape in file.SHAPES.items()}
    return found


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
