"""A linear chain whose numbers grow past 65504, or shrink under half's smallest normal, and come back.

All of it is linear or homogeneous between two convolutions with constant weights, so a power of two, folded into
these, lets every node be half.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from precision.cases.blocks import Case, Net, finished

CHANNELS, SIZE = 8, 8
DEPTH = 13  # residual blocks after it


def build(path: Path, gain: float = 2.0**16, items: int = 16) -> Case:
    """Writes the model x [N,8,8,8] -> logits [N,10], of 87 nodes.

    Args:
        gain: of the numbers in the chain: past 65504 by 2^16, under 6.1e-5 by 2^-24.
    """
    net = Net(seed=7)
    step = gain**0.5
    x = net.conv("x", "first", (CHANNELS, CHANNELS), gain=step, level=step)
    x = net.conv(x, "second", (CHANNELS, CHANNELS), gain=step, level=gain)  # the numbers are large from here
    x = net.add("Relu", [x], "chain_relu")
    x = net.add("MaxPool", [x], "chain_pool", kernel_shape=[2, 2], strides=[2, 2])
    x = net.conv(x, "third", (CHANNELS, CHANNELS), gain=1 / step, level=step)  # to here
    x = net.add("Mul", [x, net.constant("last", 1 / step)], "last_mul")
    minimal = ["second", "chain_relu", "chain_pool", "third"]
    for number in range(DEPTH):
        x = net.residual(x, f"r{number}", CHANNELS)
    net.write(path, [CHANNELS, SIZE, SIZE], net.head(x, CHANNELS))
    data = np.random.default_rng(8).normal(size=(items, CHANNELS, SIZE, SIZE)).astype(np.float32)
    return finished(path, data, minimal)
