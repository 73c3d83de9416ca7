"""Image networks that no other file here has: MobileNet v3, Inception v3, VGG, ViT with a class token.

Each can be made narrow and shallow, with every kind of its layers left: tests run those.
"""

from __future__ import annotations

import torch
from _torch_held_out import Squeeze
from _torch_more_nets import Block
from torch import nn
from torch.nn import functional

_LARGE = (  # filter, widened, channels, weighs channels, hard swish, stride: Howard et al., 2019, table 1
    (3, 16, 16, False, False, 1),
    (3, 64, 24, False, False, 2),
    (3, 72, 24, False, False, 1),
    (5, 72, 40, True, False, 2),
    (5, 120, 40, True, False, 1),
    (5, 120, 40, True, False, 1),
    (3, 240, 80, False, True, 2),
    (3, 200, 80, False, True, 1),
    (3, 184, 80, False, True, 1),
    (3, 184, 80, False, True, 1),
    (3, 480, 112, True, True, 1),
    (3, 672, 112, True, True, 1),
    (5, 672, 160, True, True, 2),
    (5, 960, 160, True, True, 1),
    (5, 960, 160, True, True, 1),
)


class HardSqueeze(Squeeze):
    """Weighs every channel by what all of the plane holds, with MobileNet v3's cheaper functions."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        means = functional.adaptive_avg_pool2d(x, 1)
        return x * functional.hardsigmoid(self.widen(torch.relu(self.narrow(means))))


class Bneck(nn.Module):
    """MobileNet v3's block: widen, filter every channel by itself, weigh, narrow."""

    def __init__(self, taken: int, made: int, inner: int, side: int, weighs: bool, hard: bool, stride: int):
        super().__init__()
        act = nn.Hardswish if hard else nn.ReLU
        self.adds = stride == 1 and taken == made
        steps = [(taken, inner, 1, 1, 1)] * (inner != taken) + [(inner, inner, side, stride, inner)]
        layers: list[nn.Module] = []
        for given, wide, filters, step, groups in steps:
            layers += _conv(given, wide, filters, step, groups, act)
        if weighs:
            layers.append(HardSqueeze(inner, max(1, inner // 4)))
        self.layers = nn.Sequential(*layers, nn.Conv2d(inner, made, 1, bias=False), nn.BatchNorm2d(made))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.layers(x) if self.adds else self.layers(x)


def _conv(
    taken: int, made: int, side: int, stride: int, groups: int, act: type[nn.Module]
) -> list[nn.Module]:
    conv = nn.Conv2d(taken, made, side, stride, side // 2, groups=groups, bias=False)
    return [conv, nn.BatchNorm2d(made), act()]


def mobilenet_v3(rows: tuple[int, ...] = tuple(range(15)), divide: int = 1, classes: int = 1000) -> nn.Module:
    """MobileNet v3 large; some of its ``rows`` alone, all widths divided."""
    channels = 16 // divide
    layers = _conv(3, channels, 3, 2, 1, nn.Hardswish)
    for row in rows:
        side, inner, made, weighs, hard, stride = _LARGE[row]
        layers.append(Bneck(channels, made // divide, inner // divide, side, weighs, hard, stride))
        channels = made // divide
    last, wide = 960 // divide, 1280 // divide
    layers += [*_conv(channels, last, 1, 1, 1, nn.Hardswish), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(last, wide), nn.Hardswish(), nn.Linear(wide, classes))


def vgg16(divide: int = 1, side: int = 224, classes: int = 1000) -> nn.Module:
    """Simonyan and Zisserman, 2014, table 1, column D; for images of ``side``, a multiple of 32."""
    layers: list[nn.Module] = []
    channels = 3
    for width, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            layers += [nn.Conv2d(channels, width // divide, 3, padding=1), nn.ReLU()]
            channels = width // divide
        layers.append(nn.MaxPool2d(2))
    wide = 4096 // divide
    layers += [nn.Flatten(), nn.Linear(channels * (side // 32) ** 2, wide), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(wide, wide), nn.ReLU(), nn.Linear(wide, classes))


class ViT(nn.Module):
    """Dosovitskiy et al., 2020: a class token before the patches' tokens, and the head reads it alone."""

    def __init__(
        self, width: int = 768, heads: int = 12, blocks: int = 12, side: int = 224, classes: int = 1000
    ):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.token = nn.Parameter(torch.randn(1, 1, width) * 0.02)
        self.places = nn.Parameter(torch.randn(1, (side // 16) ** 2 + 1, width) * 0.02)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(blocks)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.places
        return self.head(self.norm(self.blocks(x))[:, 0])


vit_b = ViT


class Branches(nn.Module):
    """Chains of layers that read the same image, their channels put side by side."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([branch(x) for branch in self.branches], 1)


class Inception:
    """Szegedy et al., 2015, "Rethinking the Inception Architecture": its blocks, all widths divided."""

    def __init__(self, divide: int) -> None:
        self.divide = divide

    def wide(self, width: int) -> int:
        return width // self.divide

    def chain(self, taken: int, *steps: tuple[int, int | tuple[int, int]], stride: int = 1, pad: bool = True):
        """Convolutions of (channels, filter), the last with the stride; ``taken`` channels as they are."""
        layers: list[nn.Module] = []
        for number, (made, side) in enumerate(steps):
            last = number == len(steps) - 1
            sides = (side, side) if isinstance(side, int) else side
            padding = tuple(each // 2 for each in sides) if pad or not last else 0
            step = stride if last else 1
            conv = nn.Conv2d(taken, self.wide(made), sides, step, padding, bias=False)
            layers += [conv, nn.BatchNorm2d(self.wide(made), eps=1e-3), nn.ReLU()]
            taken = self.wide(made)
        return nn.Sequential(*layers)

    def pooled(self, taken: int, made: int) -> nn.Module:
        return nn.Sequential(nn.AvgPool2d(3, 1, 1), self.chain(taken, (made, 1)))

    def a(self, taken: int, pool: int) -> nn.Module:
        return Branches(
            self.chain(taken, (64, 1)),
            self.chain(taken, (48, 1), (64, 5)),
            self.chain(taken, (64, 1), (96, 3), (96, 3)),
            self.pooled(taken, pool),
        )

    def b(self, taken: int) -> nn.Module:
        return Branches(
            self.chain(taken, (384, 3), stride=2, pad=False),
            self.chain(taken, (64, 1), (96, 3), (96, 3), stride=2, pad=False),
            nn.MaxPool2d(3, 2),
        )

    def c(self, taken: int, inner: int) -> nn.Module:
        along, across = (1, 7), (7, 1)
        twice = ((inner, across), (inner, along), (inner, across), (192, along))
        return Branches(
            self.chain(taken, (192, 1)),
            self.chain(taken, (inner, 1), (inner, along), (192, across)),
            self.chain(taken, (inner, 1), *twice),
            self.pooled(taken, 192),
        )

    def d(self, taken: int) -> nn.Module:
        return Branches(
            self.chain(taken, (192, 1), (320, 3), stride=2, pad=False),
            self.chain(taken, (192, 1), (192, (1, 7)), (192, (7, 1)), (192, 3), stride=2, pad=False),
            nn.MaxPool2d(3, 2),
        )

    def e(self, taken: int) -> nn.Module:
        inner = self.wide(384)

        def both() -> nn.Module:
            return Branches(self.chain(inner, (384, (1, 3))), self.chain(inner, (384, (3, 1))))

        return Branches(
            self.chain(taken, (320, 1)),
            nn.Sequential(self.chain(taken, (384, 1)), both()),
            nn.Sequential(self.chain(taken, (448, 1), (384, 3)), both()),
            self.pooled(taken, 192),
        )


def inception_v3(
    divide: int = 1, inner: tuple[int, ...] = (128, 160, 160, 192), classes: int = 1000
) -> nn.Module:
    """Without the auxiliary head; images of 299 by 299, at least 75. ``inner``: of the blocks of 1 x 7 filters."""
    make, wide = Inception(divide), lambda width: width // divide
    stem = [make.chain(3, (32, 3), stride=2, pad=False), make.chain(wide(32), (32, 3), pad=False)]
    stem += [make.chain(wide(32), (64, 3)), nn.MaxPool2d(3, 2), make.chain(wide(64), (80, 1))]
    stem += [make.chain(wide(80), (192, 3), pad=False), nn.MaxPool2d(3, 2)]
    blocks = [make.a(wide(192), 32), make.a(wide(256), 64), make.a(wide(288), 64), make.b(wide(288))]
    blocks += [make.c(wide(768), each) for each in inner]
    blocks += [
        make.d(wide(768)),
        make.e(wide(1280)),
        make.e(wide(2048)),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    ]
    return nn.Sequential(*stem, *blocks, nn.Linear(wide(2048), classes))
