"""What the built cases share: a graph written node by node with seeded weights, and what is known of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
from fakes.models import model, value, weight
from onnx import helper


@dataclass(frozen=True)
class Case:
    """A model on which a naive lower precision fails.

    Args:
        path: of the ONNX file.
        inputs: N items on axis 0.
        labels: the fp32 model's own classes, (N,): a metric of agreement.
        minimal: names of the fewest nodes that have to stay fp32, where nothing is rescaled.
        metric: that ``labels`` are for.
    """

    path: Path
    inputs: dict[str, np.ndarray]
    labels: np.ndarray
    minimal: frozenset[str]
    metric: str = "top1"


@dataclass
class Net:
    """Nodes in the order in which they are added; each is called by its name, and so is its output."""

    seed: int = 0
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: list[onnx.TensorProto] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)

    def add(self, op: str, inputs: Sequence[str], name: str, **attributes: object) -> str:
        self.nodes.append(helper.make_node(op, list(inputs), [name], name, **attributes))
        return name

    def weight(self, name: str, array: np.ndarray) -> str:
        kept = array if array.dtype.kind == "i" else array.astype(np.float32)
        self.weights.append(weight(name, kept))
        return name

    def constant(self, name: str, number: float) -> str:
        return self.weight(name, np.array(number))

    def normal(self, name: str, *shape: int, scale: float = 1.0) -> str:
        return self.weight(name, self.random.normal(0, scale, shape))

    def dense(self, source: str, name: str, rows: int, columns: int, gain: float = 1.0) -> str:
        """MatMul and Add."""
        product = self.add(
            "MatMul",
            [source, self.normal(f"{name}_w", rows, columns, scale=gain * rows**-0.5)],
            f"{name}_matmul",
        )
        return self.add("Add", [product, self.normal(f"{name}_b", columns, scale=0.1 * gain)], name)

    def conv(
        self,
        source: str,
        name: str,
        channels: tuple[int, int],
        size: int = 3,
        stride: int = 1,
        gain: float = 1.0,
        level: float = 1.0,
    ) -> str:
        """Of random weights that keep the variance after a Relu, times the gain, with half a kernel of padding.

        Args:
            level: size of what it makes, which the bias is a tenth of.
        """
        taken, given = channels
        scale = gain * (2 / (taken * size * size)) ** 0.5
        kernel = self.normal(f"{name}_w", given, taken, size, size, scale=scale)
        inputs = [source, kernel, self.normal(f"{name}_b", given, scale=0.1 * level)]
        return self.add("Conv", inputs, name, pads=[size // 2] * 4, strides=[stride, stride])

    def residual(self, source: str, name: str, channels: int) -> str:
        """Conv, Relu, Conv, Mul, Add, Relu."""
        x = self.add("Relu", [self.conv(source, f"{name}_conv1", (channels, channels))], f"{name}_relu1")
        x = self.conv(x, f"{name}_conv2", (channels, channels))
        less = self.add("Mul", [x, self.constant(f"{name}_less", 0.25)], f"{name}_quarter")
        return self.add("Relu", [self.add("Add", [source, less], f"{name}_add")], f"{name}_relu2")

    def head(self, source: str, channels: int, classes: int = 10) -> str:
        """GlobalAveragePool, Flatten, Gemm."""
        x = self.add("Flatten", [self.add("GlobalAveragePool", [source], "head_pool")], "head_flatten")
        inputs = [
            x,
            self.normal("fc_w", channels, classes, scale=2.0),
            self.normal("fc_b", classes, scale=0.1),
        ]
        return self.add("Gemm", inputs, "logits")

    def write(self, path: Path, image: Sequence[int], output: str, classes: int = 10) -> Path:
        proto = model(self.nodes, [value("x", ["N", *image])], [value(output, ["N", classes])], self.weights)
        onnx.checker.check_model(proto, full_check=True)
        onnx.save(proto, str(path))
        return path


def finished(path: Path, inputs: np.ndarray, minimal: Sequence[str]) -> Case:
    """The case, with the classes that the fp32 model gives."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    [scores] = session.run(None, {"x": inputs})
    return Case(path, {"x": inputs}, np.argmax(scores, axis=-1), frozenset(minimal))
