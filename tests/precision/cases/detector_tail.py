"""A detector whose boxes, up to 640 pixels, and scores, up to 1, share one Concat: its int8 step of 2.5 is no score's.

Six patterns of 4 x 4 pixels are looked for by convolutions that match them, at two scales. An item has one pattern in
one cell of noise; its label is which. The boxes' branch is random. As exporters do it, one MatMul behind the Concat
makes corners of middles and sizes, and lets the scores through: it is a layer with weights, which int8 likes to take.
Both round the scores away, the one what it gives and the other what it is given, so both have to stay.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from fakes.models import model, value
from onnx import save
from precision.cases.blocks import Case, Net

CLASSES, FEATURES, CELL, CELLS = 6, 16, 4, 16
OUTPUT = "detections"
_BLOCKS = 5


def build(path: Path, items: int = 96) -> Case:
    """Writes the model image [N,1,64,64] -> detections [N,320,4+6], of 42 nodes."""
    net = Net(seed=5)
    patterns = _patterns(net.random)
    x = _stem(net, patterns)
    for number in range(_BLOCKS):
        x = _block(net, x, f"block{number}")
    small = net.add("MaxPool", [x], "pool", kernel_shape=[2, 2], strides=[2, 2])
    fine, coarse = _heads(net, x, "fine", CELLS**2), _heads(net, small, "coarse", CELLS**2 // 4)
    boxes = net.add("Concat", [fine[0], coarse[0]], "boxes", axis=2)
    scores = net.add("Concat", [fine[1], coarse[1]], "scores", axis=2)
    both = net.add("Concat", [boxes, scores], "both", axis=1)
    cells = net.add("Transpose", [both], "cells", perm=[0, 2, 1])
    net.add("MatMul", [cells, net.weight("corners", _corners())], OUTPUT)
    size = CELL * CELLS
    shape = ["N", CELLS**2 * 5 // 4, 4 + CLASSES]
    save(model(net.nodes, [value("image", ["N", 1, size, size])], [value(OUTPUT, shape)], net.weights), path)
    images, labels = _items(patterns, items)
    metric = f"{matched.__module__}:{matched.__name__}"
    return Case(path, {"image": images}, labels, frozenset({"both", OUTPUT}), metric)


def matched(outputs: Mapping[str, np.ndarray], labels: np.ndarray) -> float:
    """Share of items whose highest score is of their class."""
    return float((outputs[OUTPUT][..., 4:].max(1).argmax(1) == labels).mean())


def _corners() -> np.ndarray:
    """From x, y, width, height to x1, y1, x2, y2, with the scores as they are."""
    matrix = np.eye(4 + CLASSES)
    matrix[:4, :4] = [[1, 0, 1, 0], [0, 1, 0, 1], [-0.5, 0, 0.5, 0], [0, -0.5, 0, 0.5]]
    return matrix


def _patterns(random: np.random.Generator) -> np.ndarray:
    """Six patterns, (6, 16), of length 1 and at right angles."""
    return np.linalg.qr(random.normal(size=(CELL**2, CLASSES)))[0].T


def _items(patterns: np.ndarray, items: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(6)
    labels = random.integers(0, CLASSES, items)
    images = random.normal(0, 0.1, (items, CELLS, CELL, CELLS, CELL))
    rows, columns = random.integers(0, CELLS, (2, items))
    for item, (label, row, column) in enumerate(zip(labels, rows, columns, strict=True)):
        images[item, row, :, column] += 3 * patterns[label].reshape(CELL, CELL)
    size = CELLS * CELL
    return images.reshape(items, 1, size, size).astype(np.float32), labels


def _stem(net: Net, patterns: np.ndarray) -> str:
    others = net.random.normal(0, 0.25, (FEATURES - CLASSES, CELL**2))
    kernel = np.concatenate([patterns, others]).reshape(FEATURES, 1, CELL, CELL)
    inputs = ["image", net.weight("stem_w", kernel), net.weight("stem_b", np.zeros(FEATURES))]
    return net.add("Relu", [net.add("Conv", inputs, "stem", strides=[CELL, CELL])], "stem_relu")


def _block(net: Net, x: str, name: str) -> str:
    """x + a small Conv(Relu(Conv(x)))."""
    hidden = net.add("Relu", [net.conv(x, f"{name}_in", (FEATURES, FEATURES))], f"{name}_relu")
    kernel = net.normal(f"{name}_out_w", FEATURES, FEATURES, 1, 1, scale=0.02)
    inputs = [hidden, kernel, net.weight(f"{name}_out_b", np.zeros(FEATURES))]
    return net.add("Add", [x, net.add("Conv", inputs, f"{name}_out")], f"{name}_add")


def _heads(net: Net, x: str, name: str, cells: int) -> tuple[str, str]:
    """Boxes (N,4,cells) in pixels and scores (N,6,cells) between 0 and 1."""
    kernel = net.normal(f"{name}_box_w", 4, FEATURES, 1, 1, scale=0.5)
    inputs = [x, kernel, net.normal(f"{name}_box_b", 4)]
    share = net.add("Sigmoid", [net.add("Conv", inputs, f"{name}_box")], f"{name}_share")
    pixels = net.add("Mul", [share, net.constant(f"{name}_pixels", 640.0)], f"{name}_box_pixels")
    kernel = np.concatenate([3 * np.eye(CLASSES), np.zeros((CLASSES, FEATURES - CLASSES))], 1)[
        ..., None, None
    ]
    inputs = [x, net.weight(f"{name}_score_w", kernel), net.weight(f"{name}_score_b", np.full(CLASSES, -5.0))]
    scores = net.add("Sigmoid", [net.add("Conv", inputs, f"{name}_score")], f"{name}_score_sigmoid")
    shapes = [
        net.weight(f"{name}_{kind}_shape", np.array([0, size, cells]))
        for kind, size in (("box", 4), ("score", CLASSES))
    ]
    flat = net.add("Reshape", [pixels, shapes[0]], f"{name}_boxes")
    return flat, net.add("Reshape", [scores, shapes[1]], f"{name}_scores")
