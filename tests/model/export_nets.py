"""Small modules with the habits that exporters stumble over. Named by tests as ``export_nets:Name``."""

import torch
from torch import nn


class Base(nn.Module):
    """Images Nx3x8x8 to Nx5, left in training mode as a factory often leaves it."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(3, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(4 * 36, 5)

    def body(self, x):
        return self.drop(torch.relu(self.norm(self.conv(x))))

    def forward(self, x):
        return self.head(self.body(x).view(x.size(0), -1))


class FrozenInt(Base):
    """Takes the batch as a Python int, which both exporters make a constant."""

    def forward(self, x):
        return self.head(self.body(x).view(int(x.shape[0]), -1))


class FrozenConstant(Base):
    """Runs at a batch of 2 alone."""

    def forward(self, x):
        return self.head(self.body(x).view(2, -1))


class Branch(Base):
    """Does something else for other values."""

    def forward(self, x):
        y = self.body(x)
        if y.sum() > 0:
            y = y * 2
        return self.head(y.flatten(1))


class Ranks(Base):
    """Adds to each item its place in the batch, from a Python int: no rule can reopen that."""

    def forward(self, x):
        places = torch.arange(int(x.shape[0]), dtype=torch.float32)
        return self.head(self.body(x).flatten(1)) + places[:, None]


class Bessel(Base):
    """Uses an operator that ONNX has not."""

    def forward(self, x):
        return torch.special.bessel_j0(super().forward(x))


class Noisy(Base):
    """Adds noise, in eval mode too."""

    def forward(self, x):
        return x + torch.rand_like(x)


class Counting(Base):
    """Counts its runs, and answers by the count."""

    def __init__(self):
        super().__init__()
        self.register_buffer("runs", torch.zeros(1))

    def forward(self, x):
        self.runs.add_(1)
        return x + self.runs


class Words(nn.Module):
    """Indices below 50 and a factor to a dictionary of two tensors."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(50, 8)
        self.head = nn.Linear(8, 4)

    def forward(self, ids, scale=None):
        logits = self.head(self.table(ids)).mean(1)
        logits = logits if scale is None else logits * scale
        return {"logits": logits, "total": logits.sum(1)}


class FullyConvolutional(nn.Module):
    """Takes any height and width."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(3, 4, 3, stride=2, padding=1)

    def forward(self, x):
        return torch.relu(self.conv(x)).mean((2, 3))


class Vision(nn.Module):
    """A class token and attention: a small vision transformer for Nx3x8x8."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.patch = nn.Conv2d(3, 16, 4, 4)
        self.token = nn.Parameter(torch.randn(1, 1, 16))
        self.place = nn.Parameter(torch.randn(1, 5, 16))
        self.layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
        self.head = nn.Linear(16, 5)

    def forward(self, x):
        y = self.patch(x).flatten(2).transpose(1, 2)
        y = torch.cat([self.token.expand(x.shape[0], -1, -1), y], 1) + self.place
        return self.head(self.layer(y)[:, 0])


class Recurrent(nn.Module):
    """Sequences Nx7x6, turned to 7xNx6 inside."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.cells = nn.LSTM(6, 8, num_layers=2)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.cells(x.transpose(0, 1))[0][-1])


class Heads(nn.Module):
    """Attention with its batch as a Python int, merged with the heads."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.project = nn.Linear(16, 48)

    def forward(self, x):
        b, t, c = (int(size) for size in x.shape)
        q, k, v = self.project(x).reshape(b, t, 3, 4, 4).permute(2, 0, 3, 1, 4)
        q, k, v = (each.reshape(b * 4, t, 4) for each in (q, k, v))
        y = torch.softmax(q @ k.transpose(1, 2) / 2, -1) @ v
        return y.reshape(b, 4, t, 4).transpose(1, 2).reshape(b, t, c)


def raises():
    raise OSError("no weights here")


def number():
    return 3


value = 3.5
