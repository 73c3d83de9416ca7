"""YOLO detectors up to their boxes and scores, without the suppression of overlapping boxes.

v8: C2f blocks, a head without anchors that tells each side's distance as a distribution. v5: C3 blocks, three anchors a
place. Both from the published descriptions of the architectures (Jocher et al., Ultralytics, 2020 and 2023), written
anew; weights are random.
"""

from __future__ import annotations

import torch
from torch import nn

_BINS = 16  # of a side's distance
_ANCHORS = (
    ((10, 13), (16, 30), (33, 23)),
    ((30, 61), (62, 45), (59, 119)),
    ((116, 90), (156, 198), (373, 326)),
)
_STRIDES = (8, 16, 32)


def _conv(taken: int, made: int, side: int = 1, stride: int = 1) -> nn.Module:
    conv = nn.Conv2d(taken, made, side, stride, side // 2, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(made), nn.SiLU())


class Narrow(nn.Module):
    """Two convolutions beside the way straight through."""

    def __init__(self, width: int, first: int, adds: bool) -> None:
        super().__init__()
        self.adds = adds
        self.layers = nn.Sequential(_conv(width, width, first), _conv(width, width, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.layers(x) if self.adds else self.layers(x)


class C2f(nn.Module):
    """v8's block: half of the channels go through narrow blocks, and each block's output is kept."""

    def __init__(self, taken: int, made: int, count: int, adds: bool) -> None:
        super().__init__()
        self.split = _conv(taken, made)
        self.blocks = nn.ModuleList(Narrow(made // 2, 3, adds) for _ in range(count))
        self.join = _conv((2 + count) * (made // 2), made)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = list(self.split(x).chunk(2, 1))
        for block in self.blocks:
            parts.append(block(parts[-1]))
        return self.join(torch.cat(parts, 1))


class C3(nn.Module):
    """v5's block: narrow blocks beside one convolution."""

    def __init__(self, taken: int, made: int, count: int, adds: bool) -> None:
        super().__init__()
        self.one, self.two = _conv(taken, made // 2), _conv(taken, made // 2)
        self.blocks = nn.Sequential(*(Narrow(made // 2, 1, adds) for _ in range(count)))
        self.join = _conv(made // 2 * 2, made)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.join(torch.cat([self.blocks(self.one(x)), self.two(x)], 1))


class Pyramid(nn.Module):
    """SPPF: the greatest of ever larger surroundings."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.narrow, self.join = _conv(width, width // 2), _conv(width // 2 * 4, width)
        self.pool = nn.MaxPool2d(5, 1, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = [self.narrow(x)]
        for _ in range(3):
            parts.append(self.pool(parts[-1]))
        return self.join(torch.cat(parts, 1))


class Body(nn.Module):
    """Backbone and neck: an image to three planes of 1/8, 1/16 and 1/32 of its side."""

    def __init__(self, block: type[nn.Module], width: int, counts: tuple[int, int, int, int]) -> None:
        super().__init__()
        w = [width << level for level in range(5)]
        self.stem = nn.Sequential(
            _conv(3, w[0], 3, 2), _conv(w[0], w[1], 3, 2), block(w[1], w[1], counts[0], True)
        )
        self.downs = nn.ModuleList(
            nn.Sequential(_conv(w[level], w[level + 1], 3, 2), block(w[level + 1], w[level + 1], count, True))
            for level, count in enumerate(counts[1:], 1)
        )
        self.pyramid, self.up = Pyramid(w[4]), nn.Upsample(scale_factor=2, mode="nearest")
        self.rises = nn.ModuleList(
            [block(w[4] + w[3], w[3], counts[0], False), block(w[3] + w[2], w[2], counts[0], False)]
        )
        self.steps = nn.ModuleList([_conv(w[2], w[2], 3, 2), _conv(w[3], w[3], 3, 2)])
        self.falls = nn.ModuleList(
            [block(w[2] + w[3], w[3], counts[0], False), block(w[3] + w[4], w[4], counts[0], False)]
        )

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        planes = [self.stem(x)]
        for down in self.downs:
            planes.append(down(planes[-1]))
        _, fine, middle, coarse = planes
        coarse = self.pyramid(coarse)
        middle = self.rises[0](torch.cat([self.up(coarse), middle], 1))
        fine = self.rises[1](torch.cat([self.up(middle), fine], 1))
        middle = self.falls[0](torch.cat([self.steps[0](fine), middle], 1))
        coarse = self.falls[1](torch.cat([self.steps[1](middle), coarse], 1))
        return [fine, middle, coarse]


def _grid(rows: int, columns: int) -> torch.Tensor:
    """Column and row of every place: [rows, columns, 2]."""
    places = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
    return torch.stack(places[::-1], -1).float()


class V8(nn.Module):
    """Images to [N, 4 + classes, places]: centre and size in pixels, then a score a class."""

    def __init__(self, width: int = 16, counts: tuple[int, int, int, int] = (1, 2, 2, 1), classes: int = 80):
        super().__init__()
        self.classes = classes
        self.body = Body(C2f, width, counts)
        given = [width << level for level in (2, 3, 4)]
        inner, wide = max(16, given[0] // 4, 4 * _BINS), max(given[0], min(classes, 100))
        self.boxes = nn.ModuleList(
            nn.Sequential(_conv(w, inner, 3), _conv(inner, inner, 3), nn.Conv2d(inner, 4 * _BINS, 1))
            for w in given
        )
        self.scores = nn.ModuleList(
            nn.Sequential(_conv(w, wide, 3), _conv(wide, wide, 3), nn.Conv2d(wide, classes, 1)) for w in given
        )
        self.register_buffer("bins", torch.arange(_BINS, dtype=torch.float32).view(1, _BINS, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        planes = self.body(x)
        heads = [
            torch.cat([box(p), score(p)], 1)
            for box, score, p in zip(self.boxes, self.scores, planes, strict=True)
        ]
        joined = torch.cat([head.flatten(2) for head in heads], 2)
        sides, scores = joined.split((4 * _BINS, self.classes), 1)
        shaped = sides.view(sides.shape[0], 4, _BINS, -1).transpose(1, 2).softmax(1)
        before, after = nn.functional.conv2d(shaped, self.bins).squeeze(1).chunk(2, 1)
        centres = torch.cat([_grid(*p.shape[2:]).view(-1, 2) + 0.5 for p in planes]).T[None]
        strides = torch.cat(
            [torch.full((p.shape[2] * p.shape[3],), float(s)) for p, s in zip(planes, _STRIDES, strict=True)]
        )
        low, high = centres - before, centres + after
        return torch.cat([torch.cat([(low + high) / 2, high - low], 1) * strides, scores.sigmoid()], 1)


class V5(nn.Module):
    """Images to [N, places x 3, 5 + classes]: centre, size, whether there is anything, a score a class."""

    def __init__(self, width: int = 16, counts: tuple[int, int, int, int] = (1, 2, 3, 1), classes: int = 80):
        super().__init__()
        self.each = 5 + classes
        self.body = Body(C3, width, counts)
        self.heads = nn.ModuleList(nn.Conv2d(width << level, 3 * self.each, 1) for level in (2, 3, 4))
        for head in self.heads:
            head.gain = (
                0.5  # what is drawn is scaled by it: boxes of about an anchor's size, as in trained nets
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = []
        for plane, head, stride, sizes in zip(self.body(x), self.heads, _STRIDES, _ANCHORS, strict=True):
            batch, _, rows, columns = plane.shape
            y = head(plane).view(batch, 3, self.each, rows, columns).permute(0, 1, 3, 4, 2).sigmoid()
            centre, size, rest = y.split((2, 2, self.each - 4), 4)
            centre = (centre * 2 - 0.5 + _grid(rows, columns)) * stride
            size = (size * 2) ** 2 * torch.tensor(sizes, dtype=torch.float32).view(1, 3, 1, 1, 2)
            found.append(torch.cat([centre, size, rest], 4).view(batch, -1, self.each))
        return torch.cat(found, 1)


yolo_v8, yolo_v5 = V8, V5
