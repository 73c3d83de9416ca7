"""A layer normalisation over 65,536 elements, whose sum of squares overflows half although all that it reads and makes
is small: as one operator, and taken apart as exporters do.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
from precision.cases.blocks import Case, Net, finished

CHANNELS, SIZE = 16, 64
ELEMENTS = CHANNELS * SIZE * SIZE
DEPTH = 8  # residual blocks after it

Form = Literal["operator", "mean", "sum"]


def build(path: Path, form: Form = "operator", items: int = 12) -> Case:
    """Writes the model x [N,1,64,64] -> logits [N,10], of 46 nodes or more.

    Args:
        form: "operator", one LayerNormalization; "mean", variance by Pow and ReduceMean; "sum", by ReduceSum and Mul.
    """
    net = Net(seed=3)
    x = net.conv("x", "stem", (1, CHANNELS))
    x, minimal = _operator(net, x) if form == "operator" else _apart(net, x, form)
    x = net.conv(x, "down", (CHANNELS, CHANNELS), size=9, stride=8)
    for number in range(DEPTH):
        x = net.residual(x, f"r{number}", CHANNELS)
    net.write(path, [1, SIZE, SIZE], net.head(x, CHANNELS))
    data = np.random.default_rng(4).normal(size=(items, 1, SIZE, SIZE)).astype(np.float32)
    return finished(path, 2 * data, minimal)


def _operator(net: Net, x: str) -> tuple[str, list[str]]:
    shape = (CHANNELS, SIZE, SIZE)
    inputs = [x, net.weight("norm_scale", np.ones(shape)), net.weight("norm_shift", np.zeros(shape))]
    return net.add("LayerNormalization", inputs, "norm", axis=1), ["norm"]


def _apart(net: Net, x: str, form: Form) -> tuple[str, list[str]]:
    axes = {"axes": [1, 2, 3], "keepdims": 1}
    centred = net.add("Sub", [x, net.add("ReduceMean", [x], "norm_mean", **axes)], "norm_centred")
    squares = net.add("Pow", [centred, net.constant("two", 2.0)], "norm_squares")
    if form == "mean":
        variance, minimal = net.add("ReduceMean", [squares], "norm_variance", **axes), ["norm_variance"]
    else:
        axes_input = net.weight("norm_axes", np.array([1, 2, 3]))
        total = net.add("ReduceSum", [squares, axes_input], "norm_total", keepdims=1)
        variance = net.add("Mul", [total, net.constant("norm_share", 1 / ELEMENTS)], "norm_variance")
        minimal = ["norm_total", "norm_variance"]
    root = net.add(
        "Sqrt", [net.add("Add", [variance, net.constant("epsilon", 1e-5)], "norm_epsilon")], "norm_root"
    )
    return net.add("Div", [centred, root], "norm"), minimal
