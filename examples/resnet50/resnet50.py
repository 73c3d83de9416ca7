"""ResNet-18 and ResNet-50 (v1.5: the stride of a bottleneck sits in its 3x3 convolution) in plain PyTorch.

Architecture: He et al., "Deep Residual Learning for Image Recognition", https://arxiv.org/abs/1512.03385, table 1.
The weights are random but seeded, and the batch normalisations are calibrated on seeded random images, so that
activations keep their size through all layers and different images give different answers. The nets know nothing;
load trained weights in your own factory: ``net = resnet50(); net.load_state_dict(...); return net``.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Basic(nn.Module):
    """Two 3x3 convolutions and a shortcut: the block of ResNet-18."""

    expansion = 1

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            conv(channels, width, 3, stride),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            conv(width, width, 3),
            nn.BatchNorm2d(width),
        )
        self.shortcut = shortcut(channels, width, stride)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions and a shortcut: the block of ResNet-50."""

    expansion = 4

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        out = width * self.expansion
        self.body = nn.Sequential(
            conv(channels, width, 1),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            conv(width, width, 3, stride),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            conv(width, out, 1),
            nn.BatchNorm2d(out),
        )
        self.shortcut = shortcut(channels, out, stride)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


class ResNet(nn.Module):
    """Images Nx3xHxW, normalised to mean 0 and standard deviation 1, to logits NxC."""

    def __init__(self, block: type[Basic] | type[Bottleneck], depths: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            conv(3, 64, 7, 2), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, padding=1)
        )
        channels, stages = 64, []
        for stage, depth in enumerate(depths):
            width = 64 << stage
            for index in range(depth):
                stages.append(block(channels, width, 2 if stage and not index else 1))
                channels = width * block.expansion
        self.stages = nn.Sequential(*stages)
        self.classify = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.classify(self.features(x))

    def features(self, x: Tensor) -> Tensor:
        return self.stages(self.stem(x)).mean(dim=(2, 3))


def conv(channels: int, out: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(channels, out, kernel, stride, padding=kernel // 2, bias=False)


def shortcut(channels: int, out: int, stride: int) -> nn.Module:
    if stride == 1 and channels == out:
        return nn.Identity()
    return nn.Sequential(conv(channels, out, 1, stride), nn.BatchNorm2d(out))


def resnet18(classes: int = 1000) -> nn.Module:
    """ResNet-18: 11.7 million parameters, 1.8 billion multiply-adds at 224x224."""
    return calibrated(Basic, (2, 2, 2, 2), classes)


def resnet50(classes: int = 1000) -> nn.Module:
    """ResNet-50 v1.5: 25.6 million parameters, 4.1 billion multiply-adds at 224x224."""
    return calibrated(Bottleneck, (3, 4, 6, 3), classes)


def calibrated(block: type[Basic] | type[Bottleneck], depths: tuple[int, ...], classes: int) -> nn.Module:
    """A net in eval mode. Its weights come from the seed; its statistics too, to the rounding of this machine."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        net = ResNet(block, depths, classes)
        for module in net.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
            elif isinstance(module, nn.BatchNorm2d):
                module.momentum = None  # the plain mean of all batches seen, no decaying one
            elif isinstance(module, Basic | Bottleneck):
                nn.init.constant_(
                    module.body[-1].weight, 0.3
                )  # as in trained nets, a block changes its input a little
        nn.init.normal_(net.classify.weight, std=0.05)
        net.train()
        features = net.features(images(16))
        # A random net sees much the same in all images: without this, one class would win for every image.
        net.classify.bias.copy_(-net.classify.weight @ features.mean(0))
        for module in net.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.momentum = 0.1
        return net.eval()


def images(count: int, size: int = 96) -> Tensor:
    """Random pictures with coarse structure and fine noise, each of its own brightness and colour."""
    coarse = nn.functional.interpolate(torch.randn(count, 3, 6, 6), size=(size, size), mode="bilinear")
    return 0.5 * torch.randn(count, 3, 1, 1) + 0.7 * coarse + 0.7 * torch.randn(count, 3, size, size)
