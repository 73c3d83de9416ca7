"""Activations under half's smallest normal number, 6.1e-5, inside a network whose other numbers are ordinary."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
from precision.cases.blocks import Case, Net, finished

CHANNELS, SIZE = 8, 8
DEPTH = 16  # residual blocks after it

Form = Literal["squares", "units"]


def build(path: Path, form: Form = "squares", items: int = 16) -> Case:
    """Writes the model x [N,8,8,8] -> logits [N,10], of about 90 nodes.

    Args:
        form: "squares", a root-mean-square normalisation of values of 2e-4, whose squares are 5e-8;
            "units", a stretch that computes in another unit of measure, around 2e-7, and comes back from it.
    """
    net = Net(seed=5)
    x, minimal = _squares(net, "x") if form == "squares" else _units(net, "x")
    for number in range(DEPTH):
        x = net.residual(x, f"r{number}", CHANNELS)
    net.write(path, [CHANNELS, SIZE, SIZE], net.head(x, CHANNELS))
    data = np.random.default_rng(6).normal(size=(items, CHANNELS, SIZE, SIZE)).astype(np.float32)
    return finished(path, data * np.float32(2e-4) if form == "squares" else data, minimal)


def _squares(net: Net, x: str) -> tuple[str, list[str]]:
    squares = net.add("Mul", [x, x], "squares")
    mean = net.add("ReduceMean", [squares], "mean_square", axes=[1, 2, 3], keepdims=1)
    total = net.add("Add", [mean, net.constant("epsilon", 1e-12)], "with_epsilon")
    root = net.add("Sqrt", [total], "root")
    return net.add("Div", [x, root], "normalised"), ["squares", "mean_square", "with_epsilon", "root"]


def _units(net: Net, x: str) -> tuple[str, list[str]]:
    x = net.add("Mul", [x, net.constant("unit", 2e-7)], "small")
    x = net.add("Relu", [x], "small_relu")
    x = net.add("Mul", [x, net.constant("back", 5e4 / 8)], "larger")
    return net.add("Mul", [x, net.constant("more", 8e2)], "again"), ["small", "small_relu", "larger"]
