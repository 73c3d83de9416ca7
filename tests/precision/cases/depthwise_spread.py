"""A depthwise-separable classifier of handwritten digits whose channels differ by a factor of 1,000.

The convolutions are random, the last layer is the ridge regression on their features: closed form, real labels. Then
every hidden channel is divided by a number drawn from 10^-1.5 to 10^1.5, and what reads it multiplied by that: the
fp32 answers stay, and one scale for all channels of an activation leaves most of them nothing of 8 bits.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from fakes.models import model, value, weight
from onnx import helper
from precision.cases.blocks import Case

DIGITS = Path(__file__).parents[3] / "src" / "wavefit" / "demo" / "digits.npz"
SPREAD = 1000.0
_RIDGE = 3.0
_LAYERS = (  # name, inputs, outputs, depthwise, stride
    ("stem", 1, 32, False, 1),
    ("depth1", 32, 32, True, 1),
    ("point1", 32, 64, False, 1),
    ("depth2", 64, 64, True, 2),
    ("point2", 64, 64, False, 1),
)


def build(path: Path, spread: float = SPREAD) -> Case:
    """Writes the classifier; the first half of the items trained its last layer.

    Args:
        spread: largest over smallest scale of a channel; 1: an ordinary network, for comparison.
    """
    images, labels = _digits()
    half = len(labels) // 2
    random = np.random.default_rng(0)
    weights = {name: _weights(random, *rest) for name, *rest in _LAYERS}
    proto = _network(weights, np.zeros((10, 1024)), np.zeros(10))
    features = _features(proto, images)
    head, bias = _ridge(features[:half], labels[:half])
    scales = {name: _scale(random, outputs, spread) for name, _, outputs, *_ in _LAYERS}
    onnx.save(_network(_rescaled(weights, scales), head * np.repeat(scales["point2"], 16), bias), path)
    return Case(path, {"image": images}, labels, frozenset())


def _digits() -> tuple[np.ndarray, np.ndarray]:
    with np.load(DIGITS) as data:
        order = np.random.default_rng(0).permutation(len(data["labels"]))
        return data["image"][order], data["labels"][order]


def _weights(
    random: np.random.Generator, inputs: int, outputs: int, depthwise: bool, _: int
) -> tuple[np.ndarray, np.ndarray]:
    taken, size = (1, 3) if depthwise else (inputs, 3 if inputs == 1 else 1)
    kernel = random.normal(0, (2 / (taken * size * size)) ** 0.5, (outputs, taken, size, size))
    return kernel, random.normal(0, 0.1, outputs)


def _scale(random: np.random.Generator, channels: int, spread: float) -> np.ndarray:
    return np.exp(random.uniform(-0.5, 0.5, channels) * np.log(spread))


def _rescaled(
    weights: dict[str, tuple[np.ndarray, np.ndarray]], scales: dict[str, np.ndarray]
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Each layer's rows divided by its own scales, its columns multiplied by those of the layer before."""
    result, before = {}, np.ones(1)
    for name, _, _, depthwise, _ in _LAYERS:
        kernel, bias = weights[name]
        columns = before[:, None, None, None] if depthwise else before[None, :, None, None]
        result[name] = (kernel * columns / scales[name][:, None, None, None], bias / scales[name])
        before = scales[name]
    return result


def _network(
    weights: dict[str, tuple[np.ndarray, np.ndarray]],
    head: np.ndarray,
    bias: np.ndarray,
) -> onnx.ModelProto:
    """image [N,1,8,8] -> the layers, each with a Relu -> Flatten, Gemm -> scores [N,10]."""
    nodes, stored, current = [], [], "image"
    for name, _, outputs, depthwise, stride in _LAYERS:
        kernel, offset = weights[name]
        stored += [
            weight(f"{name}_w", kernel.astype(np.float32)),
            weight(f"{name}_b", offset.astype(np.float32)),
        ]
        inputs, group = [current, f"{name}_w", f"{name}_b"], outputs if depthwise else 1
        pads, strides = [kernel.shape[-1] // 2] * 4, [stride, stride]
        nodes.append(
            helper.make_node("Conv", inputs, [f"{name}_y"], name, pads=pads, strides=strides, group=group)
        )
        nodes.append(helper.make_node("Relu", [f"{name}_y"], [f"{name}_r"], f"{name}_relu"))
        current = f"{name}_r"
    nodes.append(helper.make_node("Flatten", [current], ["features"], "flatten"))
    nodes.append(helper.make_node("Gemm", ["features", "head_w", "head_b"], ["scores"], "head", transB=1))
    stored += [weight("head_w", head.astype(np.float32)), weight("head_b", bias.astype(np.float32))]
    return model(nodes, [value("image", ["N", 1, 8, 8])], [value("scores", ["N", 10])], stored)


def _features(proto: onnx.ModelProto, images: np.ndarray) -> np.ndarray:
    import onnxruntime

    proto.graph.output.append(value("features", ["N", 1024]))
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(["features"], {"image": images})[0].astype(np.float64)


def _ridge(features: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weights (10, features) and bias (10,) with the least squares to one-hot labels, and a penalty on the weights."""
    middle = features.mean(0)
    centred, wanted = features - middle, np.eye(10)[labels]
    kernel = centred @ centred.T + _RIDGE * np.trace(centred @ centred.T) / len(labels) / 100 * np.eye(
        len(labels)
    )
    head = (centred.T @ np.linalg.solve(kernel, wanted - wanted.mean(0))).T
    return head, wanted.mean(0) - head @ middle
