"""Five more nets, with random weights; held out until what the planner said of them showed what it lacked."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

SHAPES = {
    "unet": (2, 3, 256, 256),
    "vit_small": (2, 3, 224, 224),
    "mobilenet": (2, 3, 224, 224),
    "densenet": (2, 3, 224, 224),
    "gru": (2, 64, 256),
}


def _pair(taken: int, made: int) -> nn.Module:
    layers: list[nn.Module] = []
    for channels in (taken, made):
        layers += [nn.Conv2d(channels, made, 3, padding=1, bias=False), nn.BatchNorm2d(made), nn.ReLU()]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """Four levels; every level's tensor waits for the way back up."""

    def __init__(self, width: int = 64, levels: int = 4) -> None:
        super().__init__()
        widths = [width << level for level in range(levels)]
        self.downs = nn.ModuleList(map(_pair, [3, *widths[:-1]], widths))
        self.rises = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, 2) for w in reversed(widths[:-1]))
        self.ups = nn.ModuleList(_pair(2 * w, w) for w in reversed(widths[:-1]))
        self.head = nn.Conv2d(width, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = []
        for down in self.downs[:-1]:
            kept.append(down(x))
            x = functional.max_pool2d(kept[-1], 2)
        x = self.downs[-1](x)
        for rise, up in zip(self.rises, self.ups, strict=True):
            x = up(torch.cat([kept.pop(), rise(x)], 1))
        return self.head(x)


def unet() -> nn.Module:
    return UNet()


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.mix(self.norms[0](x)).chunk(3, -1)
        q, k, v = (part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in parts)
        mixed = functional.scaled_dot_product_attention(q, k, v)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(functional.gelu(self.up(self.norms[1](x))))


class ViT(nn.Module):
    """A vision transformer, small: 384 wide, 12 blocks, patches of 16 x 16."""

    def __init__(self, width: int = 384, heads: int = 6, blocks: int = 12) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.places = nn.Parameter(torch.randn(1, 196, width) * 0.02)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(blocks)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2) + self.places
        return self.head(self.norm(self.blocks(x)).mean(1))


def vit_small() -> nn.Module:
    return ViT()


class Inverted(nn.Module):
    """MobileNetV2's block: widen, filter every channel by itself, narrow."""

    def __init__(self, taken: int, made: int, stride: int, widen: int) -> None:
        super().__init__()
        inner = taken * widen
        self.adds = stride == 1 and taken == made
        steps = [(taken, inner, 1, 1, 1)] * (widen > 1) + [(inner, inner, 3, stride, inner)]
        layers: list[nn.Module] = []
        for given, wide, side, step, groups in steps:
            conv = nn.Conv2d(given, wide, side, step, side // 2, groups=groups, bias=False)
            layers += [conv, nn.BatchNorm2d(wide), nn.ReLU6()]
        self.layers = nn.Sequential(*layers, nn.Conv2d(inner, made, 1, bias=False), nn.BatchNorm2d(made))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.layers(x) if self.adds else self.layers(x)


_MOBILE = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def mobilenet(divide: int = 1, most: int = 4, classes: int = 1000) -> nn.Module:
    """MobileNet v2; its widths divided, and at most so many blocks of one width."""
    channels, last = 32 // divide, 1280 // divide
    layers: list[nn.Module] = [
        nn.Conv2d(3, channels, 3, 2, 1, bias=False),
        nn.BatchNorm2d(channels),
        nn.ReLU6(),
    ]
    for widen, width, count, stride in _MOBILE:
        for index in range(min(count, most)):
            layers.append(Inverted(channels, width // divide, stride if index == 0 else 1, widen))
            channels = width // divide
    layers += [
        nn.Conv2d(channels, last, 1, bias=False),
        nn.BatchNorm2d(last),
        nn.ReLU6(),
        nn.AdaptiveAvgPool2d(1),
    ]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(last, classes))


class Dense(nn.Module):
    """DenseNet's layer: normalisation first, its output put beside its input."""

    def __init__(self, taken: int, growth: int) -> None:
        super().__init__()
        narrow = 4 * growth
        self.layers = nn.Sequential(
            *(nn.BatchNorm2d(taken), nn.ReLU(), nn.Conv2d(taken, narrow, 1, bias=False)),
            *(nn.BatchNorm2d(narrow), nn.ReLU(), nn.Conv2d(narrow, growth, 3, padding=1, bias=False)),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, self.layers(x)], 1)


def densenet(counts: tuple[int, ...] = (6, 12, 24, 16), growth: int = 32, classes: int = 1000) -> nn.Module:
    """DenseNet-121, or one of other depths and widths."""
    channels = 2 * growth
    layers: list[nn.Module] = [
        nn.Conv2d(3, channels, 7, 2, 3, bias=False),
        nn.BatchNorm2d(channels),
        nn.ReLU(),
    ]
    layers.append(nn.MaxPool2d(3, 2, 1))
    for number, count in enumerate(counts):
        if number:
            layers += [nn.BatchNorm2d(channels), nn.ReLU(), nn.Conv2d(channels, channels // 2, 1, bias=False)]
            layers.append(nn.AvgPool2d(2))
            channels //= 2
        for _ in range(count):
            layers.append(Dense(channels, growth))
            channels += growth
    layers += [nn.BatchNorm2d(channels), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(channels, classes))


class Recurrent(nn.Module):
    """Two layers of gated recurrent units over 64 steps."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = nn.GRU(256, 512, 2, batch_first=True)
        self.head = nn.Linear(512, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.steps(x)[0][:, -1])


def gru() -> nn.Module:
    return Recurrent()
