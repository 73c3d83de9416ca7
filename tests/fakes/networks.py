"""Known networks as ONNX graphs with seeded random weights, for tests that look at shapes more than at answers."""

from __future__ import annotations

import numpy as np
import onnx
from fakes.models import model, value, weight
from onnx import TensorProto, helper

_MOBILENET_V2 = (  # expansion, channels, blocks, stride: Sandler et al., 2018, table 2
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


class _Net:
    """Nodes and weights, added one after another; each method returns the name of what it makes."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(0)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def add(self, op: str, inputs: list[str], **attributes: object) -> str:
        name = f"{op.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name, **attributes))
        return name

    def constant(self, array: np.ndarray) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(weight(name, array))
        return name

    def normal(self, *shape: int, fan: int) -> str:
        return self.constant(self.random.normal(0, fan**-0.5, shape).astype(np.float32))

    def zeros(self, *shape: int) -> str:
        return self.constant(np.zeros(shape, np.float32))

    def conv(self, x: str, ins: int, outs: int, kernel: int, stride: int = 1, group: int = 1) -> str:
        w = self.normal(outs, ins // group, kernel, kernel, fan=ins // group * kernel * kernel)
        pad = kernel // 2
        return self.add("Conv", [x, w, self.zeros(outs)], strides=[stride] * 2, pads=[pad] * 4, group=group)

    def relu6(self, x: str) -> str:
        bounds = [self.constant(np.float32(each)) for each in (0, 6)]
        return self.add("Clip", [x, *bounds])

    def linear(self, x: str, ins: int, outs: int) -> str:
        product = self.add("MatMul", [x, self.normal(ins, outs, fan=ins)])
        return self.add("Add", [product, self.zeros(outs)])


def mobilenet_v2(size: int = 224) -> onnx.ModelProto:
    """image [N, 3, size, size] -> scores [N, 1000]."""
    net = _Net()
    x, width = net.relu6(net.conv("image", 3, 32, 3, 2)), 32
    for expansion, channels, blocks, first in _MOBILENET_V2:
        for block in range(blocks):
            stride, wide, kept = first if block == 0 else 1, width * expansion, x
            y = net.relu6(net.conv(x, width, wide, 1)) if expansion > 1 else x
            y = net.relu6(net.conv(y, wide, wide, 3, stride, wide))
            x = net.conv(y, wide, channels, 1)
            x = net.add("Add", [kept, x]) if stride == 1 and width == channels else x
            width = channels
    x = net.relu6(net.conv(x, width, 1280, 1))
    x = net.add("Flatten", [net.add("GlobalAveragePool", [x])])
    scores = net.linear(x, 1280, 1000)
    return model(net.nodes, [value("image", ["N", 3, size, size])], [value(scores, ["N", 1000])], net.weights)


def bert(layers: int = 2, width: int = 768, heads: int = 12, length: int = 128) -> onnx.ModelProto:
    """BERT-base's encoder layers: ids [N, length] and mask [N, length] (1 where a token is) -> hidden."""
    net = _Net()
    x = net.add("Gather", [net.normal(1000, width, fan=1), "ids"])
    floats = net.add("Cast", ["mask"], to=TensorProto.FLOAT)
    hidden = net.add(
        "Mul", [net.add("Sub", [net.constant(np.float32(1)), floats]), net.constant(np.float32(-1e4))]
    )
    mask = net.add("Unsqueeze", [hidden, net.constant(np.array([1, 2], np.int64))])
    split, joined = ([0, 0, heads, width // heads], [0, 0, width])
    for _ in range(layers):
        q, k, v = (_heads(net, net.linear(x, width, width), split) for _ in "qkv")
        scores = net.add("MatMul", [q, net.add("Transpose", [k], perm=[0, 1, 3, 2])])
        scores = net.add("Mul", [scores, net.constant(np.float32((width // heads) ** -0.5))])
        mixed = net.add("MatMul", [net.add("Softmax", [net.add("Add", [scores, mask])], axis=-1), v])
        mixed = net.add("Transpose", [mixed], perm=[0, 2, 1, 3])
        mixed = net.add("Reshape", [mixed, net.constant(np.array(joined, np.int64))])
        x = _norm(net, net.add("Add", [x, net.linear(mixed, width, width)]), width)
        wide = _gelu(net, net.linear(x, width, 4 * width))
        x = _norm(net, net.add("Add", [x, net.linear(wide, 4 * width, width)]), width)
    inputs = [value(name, ["N", length], TensorProto.INT64) for name in ("ids", "mask")]
    return model(net.nodes, inputs, [value(x, ["N", length, width])], net.weights)


def _heads(net: _Net, x: str, split: list[int]) -> str:
    shaped = net.add("Reshape", [x, net.constant(np.array(split, np.int64))])
    return net.add("Transpose", [shaped], perm=[0, 2, 1, 3])


def _norm(net: _Net, x: str, width: int) -> str:
    ones = net.constant(np.ones(width, np.float32))
    return net.add("LayerNormalization", [x, ones, net.zeros(width)], axis=-1)


def _gelu(net: _Net, x: str) -> str:
    erf = net.add("Erf", [net.add("Div", [x, net.constant(np.float32(2**0.5))])])
    return net.add(
        "Mul",
        [
            net.add("Mul", [x, net.add("Add", [erf, net.constant(np.float32(1))])]),
            net.constant(np.float32(0.5)),
        ],
    )
