"""The demo's trained classifier as PyTorch modules, named by tests as ``fakes.recover_nets:spread``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch import nn

import wavefit.demo

_DEMO = Path(wavefit.demo.__file__).parent


class Digits(nn.Module):
    """The net of examples/digits/train.py with its normalisations folded, as the demo's ONNX file has it."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *(nn.Conv2d(1, 32, 3, padding=1), nn.ReLU()),
            *(nn.Conv2d(32, 32, 3, padding=1, groups=32), nn.ReLU()),
            *(nn.Conv2d(32, 48, 3, padding=1, stride=2), nn.ReLU()),
        )
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(48 * 4 * 4, 32), nn.ReLU(), nn.Linear(32, 10))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(image))


def trained() -> Digits:
    graph = onnx.load(_DEMO / "digits.onnx").graph
    weights = {item.name: numpy_helper.to_array(item) for item in graph.initializer}
    heavy = [node.input for node in graph.node if node.op_type in ("Conv", "Gemm")]
    module = Digits().eval()
    layers = [layer for layer in module.modules() if isinstance(layer, nn.Conv2d | nn.Linear)]
    with torch.no_grad():
        for layer, names in zip(layers, heavy, strict=True):
            layer.weight.copy_(torch.from_numpy(weights[names[1]].copy()))
            layer.bias.copy_(torch.from_numpy(weights[names[2]].copy()))
    return module


def _spread() -> Digits:
    """The same answers in fp32, with the ranges of the first channels spread by up to 1,000.

    A ReLU passes positive factors through, so the depthwise convolution behind it takes them out again.
    """
    module = trained()
    first, second = module.features[0], module.features[2]
    factors = 1000 ** torch.rand(32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        first.weight.mul_(factors[:, None, None, None])
        first.bias.mul_(factors)
        second.weight.div_(factors[:, None, None, None])
    return module


spread = _spread()
"""A module and no factory: who trains it in place is found out."""


class Loud(nn.Module):
    """Its hidden values pass half's largest number, 65504, on most items."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(64, 16)
        self.down = nn.Linear(16, 10)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.down(torch.relu(self.up(image.flatten(1))) * 1e-5)


def loud() -> Loud:
    torch.manual_seed(0)
    module = Loud().eval()
    with torch.no_grad():
        module.up.weight.mul_(2e5)
    return module


class Count(nn.Module):
    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return image.flatten(1).sum(1)


def number() -> int:
    return 3


def digits() -> tuple[np.ndarray, np.ndarray]:
    """500 images of 1x8x8, which the net was not trained on, and their classes."""
    with np.load(_DEMO / "digits.npz") as data:
        return data["image"], data["labels"]
