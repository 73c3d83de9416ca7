"""The demo's classifier as PyTorch modules: what ``wavefit recover digits:uneven`` finds in this folder."""

from __future__ import annotations

from pathlib import Path

import onnx
import torch
from onnx import numpy_helper
from torch import nn

import wavefit.demo

SPREAD = 1000.0


def digits() -> nn.Module:
    """As train.py made it, its normalisations folded: image [N,1,8,8] to scores [N,10]."""
    graph = onnx.load(Path(wavefit.demo.__file__).parent / "digits.onnx").graph
    weights = {item.name: numpy_helper.to_array(item).copy() for item in graph.initializer}
    module = nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1, groups=32), nn.ReLU(),
        nn.Conv2d(32, 48, 3, padding=1, stride=2), nn.ReLU(),
        nn.Flatten(), nn.Linear(48 * 4 * 4, 32), nn.ReLU(), nn.Linear(32, 10),
    )  # fmt: skip
    layers = [layer for layer in module if isinstance(layer, nn.Conv2d | nn.Linear)]
    heavy = [node.input for node in graph.node if node.op_type in ("Conv", "Gemm")]
    with torch.no_grad():
        for layer, names in zip(layers, heavy, strict=True):
            layer.weight.copy_(torch.from_numpy(weights[names[1]]))
            layer.bias.copy_(torch.from_numpy(weights[names[2]]))
    return module.eval()


def uneven() -> nn.Module:
    """The same answers in fp32, its first channels of sizes that differ by 1,000: int8 loses accuracy on it.

    A ReLU passes positive factors on, so the depthwise convolution behind it takes them out again.
    """
    module = digits()
    factors = SPREAD ** torch.rand(32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        module[0].weight.mul_(factors[:, None, None, None])
        module[0].bias.mul_(factors)
        module[2].weight.div_(factors[:, None, None, None])
    return module
