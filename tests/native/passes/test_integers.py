"""Q/DQ graphs: products read integers, tensors between them are integers, and the answers are the same to the bit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from native.interpret import evaluate
from native.passes.build import check_order
from onnx import TensorProto, helper, numpy_helper

from wavefit.native import passes
from wavefit.native.graph import Graph
from wavefit.native.import_onnx import load
from wavefit.native.passes import integers

SHAPE = (2, 3, 8, 8)


class Net:
    """A Q/DQ graph by hand. Each method gives the name of what it makes."""

    def __init__(self, activation: str = "uint8") -> None:
        self.rng = np.random.default_rng(0)
        self.activation = activation
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, array: np.ndarray) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def node(self, kind: str, inputs: list[str], **attributes: Any) -> str:
        output = f"{kind}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [output], output, **attributes))
        return output

    def quantised(self, value: str, scale: float = 0.05, zero: int = 0) -> str:
        """Through QuantizeLinear and DequantizeLinear."""
        by = [self.constant(np.float32(scale)), self.constant(np.array(zero, self.activation))]
        return self.node("DequantizeLinear", [self.node("QuantizeLinear", [value, *by]), *by])

    def weights(self, *shape: int, zero: int = 0, axis: int = 0) -> str:
        held = self.constant(self.rng.integers(-127, 128, shape).astype(np.int8))
        scale = self.constant(self.rng.uniform(0.001, 0.01, shape[axis]).astype(np.float32))
        zeros = self.constant(np.full(shape[axis], zero, np.int8))
        return self.node("DequantizeLinear", [held, scale, zeros], axis=axis)

    def bias(self, size: int) -> str:
        held = self.constant(self.rng.integers(-1000, 1000, size).astype(np.int32))
        return self.node("DequantizeLinear", [held, self.constant(np.full(size, 1e-3, np.float32))], axis=0)

    def conv(self, x: str, channels: int, outs: int, group: int = 1, **attributes: Any) -> str:
        weights = self.weights(outs, channels // group, 3, 3)
        inputs = [x, weights, self.bias(outs)]
        return self.node("Conv", inputs, pads=[1] * 4, group=group, kernel_shape=[3, 3], **attributes)

    def save(self, path: Path, output: str) -> Path:
        make = helper.make_tensor_value_info
        graph = helper.make_graph(
            self.nodes,
            "net",
            [make("x", TensorProto.FLOAT, SHAPE)],
            [make(output, TensorProto.FLOAT, None)],
            self.constants,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.save(onnx.shape_inference.infer_shapes(model), str(path))
        return path


def residual(net: Net) -> str:
    first = net.quantised(net.node("Relu", [net.conv(net.quantised("x", zero=_middle(net)), 3, 16)]), 0.2)
    second = net.quantised(net.node("Relu", [net.conv(first, 16, 16, group=16)]), 0.3)
    third = net.quantised(net.conv(second, 16, 16), 0.4, _middle(net))
    added = net.node("Relu", [net.node("Add", [third, first])])
    return net.quantised(added, 0.4)


def moved(net: Net) -> str:
    """MaxPool, Concat, Transpose and Reshape between pairs of one scale; a dense layer."""
    first = net.quantised(net.node("Relu", [net.conv(net.quantised("x"), 3, 8)]), 0.2)
    second = net.quantised(net.node("Relu", [net.conv(first, 8, 8)]), 0.2)
    pooled = [
        net.quantised(net.node("MaxPool", [each], kernel_shape=[2, 2], strides=[2, 2]), 0.2)
        for each in (first, second)
    ]
    joined = net.quantised(net.node("Concat", pooled, axis=1), 0.2)
    turned = net.quantised(net.node("Transpose", [joined], perm=[0, 2, 3, 1]), 0.2)
    flat = net.node("Reshape", [turned, net.constant(np.array([2, 256]))])
    dense = net.node("Gemm", [flat, net.weights(10, 256), net.bias(10)], transB=1)
    return net.quantised(dense, 0.5, _middle(net))


def _middle(net: Net) -> int:
    return 128 if net.activation == "uint8" else 3


def graph_of(path: Path) -> Graph:
    graph = load(path, {"x": SHAPE})
    assert isinstance(graph, Graph), graph
    return graph


@pytest.mark.parametrize("activation", ["uint8", "int8"])
@pytest.mark.parametrize("make", [residual, moved])
def test_quantised_networks_read_and_write_integers_alone(
    make: Callable[[Net], str], activation: str, tmp_path: Path
) -> None:
    net = Net(activation)
    path = net.save(tmp_path / "net.onnx", make(net))
    before, after = graph_of(path), graph_of(path)
    passes.run(after)
    check_order(after)
    feeds = {"x": np.random.default_rng(1).standard_normal(SHAPE).astype(np.float32)}
    (want,), (have,) = evaluate(before, feeds), evaluate(after, feeds)
    # float64 on both sides, but for the scales' product, which is rounded to float: at a half they may part
    assert np.abs(want - have).max() <= 0.5 * 1.001
    assert (want != have).mean() < 0.01
    assert len(np.unique(want)) > 10
    products = [node for node in after.nodes if node.op in ("Conv", "MatMul")]
    assert len(products) == 3
    for node in products:
        assert [value.dtype for value in node.inputs[:2] if value is not None] == [activation, "int8"]
    last = after.outputs[0]
    between = [node.output for node in after.nodes if node.output is not last]
    assert {value.dtype for value in between} == {activation}
    loose = [node for node in after.nodes if node.op == "Pointwise"]
    assert len(loose) == 1  # the input is quantised


def test_what_products_do_not_read_stays_float(tmp_path: Path) -> None:
    net = Net()
    shifted = net.node("Conv", [net.quantised("x"), net.weights(4, 3, 3, 3, zero=2)], kernel_shape=[3, 3])
    computed = net.node("MatMul", [net.quantised(shifted), net.quantised(shifted)])
    path = net.save(tmp_path / "net.onnx", computed)
    before, after = graph_of(path), graph_of(path)
    assert integers.run(after) == 0
    feeds = {"x": np.random.default_rng(1).standard_normal(SHAPE).astype(np.float32)}
    (want,), (have,) = evaluate(before, feeds), evaluate(after, feeds)
    np.testing.assert_allclose(have, want, rtol=1e-6)
    # A weight that is read as floats is made floats once, here, and not at each run.
    assert all(node.constant(1) is not None for node in after.nodes if node.op == "Conv")


def test_pairs_of_other_scales_are_not_taken_out(tmp_path: Path) -> None:
    net = Net()
    pooled = net.node("MaxPool", [net.quantised("x", 0.05)], kernel_shape=[2, 2])
    path = net.save(tmp_path / "net.onnx", net.quantised(pooled, 0.5))
    before, after = graph_of(path), graph_of(path)
    passes.run(after)
    feeds = {"x": np.random.default_rng(1).standard_normal(SHAPE).astype(np.float32)}
    (want,), (have,) = evaluate(before, feeds), evaluate(after, feeds)
    np.testing.assert_allclose(have, want, rtol=1e-6)
    assert len(np.unique(have)) < 12


@pytest.mark.parametrize("activation", ["uint8", "int8"])
@pytest.mark.parametrize("make", [residual, moved])
def test_the_device_answers_as_onnx_runtime_does(
    make: Callable[[Net], str], activation: str, tmp_path: Path
) -> None:
    """Against ONNX Runtime without fusions, which computes what the pairs say in float."""
    cl, ort = pytest.importorskip("pyopencl"), pytest.importorskip("onnxruntime")
    from wavefit.native import engine
    from wavefit.native.limits import of_opencl
    from wavefit.native.opencl.chooser import Chooser
    from wavefit.native.opencl.executor import Executor
    from wavefit.native.program import Program

    net = Net(activation)
    path = net.save(tmp_path / "net.onnx", make(net))
    device = next(device for platform in cl.get_platforms() for device in platform.get_devices())
    program = engine.prepare(path, {"x": SHAPE}, Chooser(of_opencl(device, None)))
    assert isinstance(program, Program)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    feeds = {"x": np.random.default_rng(1).standard_normal(SHAPE).astype(np.float32)}
    (want,) = session.run(None, feeds)
    executor = Executor(program, device)
    (have,) = executor.run(feeds).values()
    executor.close()
    # Sums are exact here and rounded there: at a half they may part, by one step of the output.
    assert np.abs(want - have).max() <= 0.5 * 1.001
    assert (np.abs(want - have) > 1e-6).mean() < 0.01


def test_dynamically_quantised_products_answer_as_onnx_runtime_does(tmp_path: Path) -> None:
    """As onnxruntime.quantization.quantize_dynamic writes them: DynamicQuantizeLinear, MatMulInteger, Cast, Mul."""
    cl, ort = pytest.importorskip("pyopencl"), pytest.importorskip("onnxruntime")
    from wavefit.native import engine
    from wavefit.native.limits import of_opencl
    from wavefit.native.opencl.chooser import Chooser
    from wavefit.native.opencl.executor import Executor
    from wavefit.native.program import Program

    net = Net()
    flat = net.node("Reshape", ["x", net.constant(np.array([2, 192]))])
    wide = net.node("Concat", [flat] * 5, axis=1)  # 960 depths: sums may pass 2^24
    net.nodes.append(helper.make_node("DynamicQuantizeLinear", [wide], ["q", "s", "z"], "dynamic"))
    weights = net.constant(net.rng.integers(-127, 128, (960, 7)).astype(np.int8))
    sums = net.node("Cast", [net.node("MatMulInteger", ["q", weights, "z"])], to=TensorProto.FLOAT)
    scale = net.node("Mul", ["s", net.constant(np.float32(0.01))])
    path = net.save(tmp_path / "net.onnx", net.node("Mul", [sums, scale]))
    device = next(device for platform in cl.get_platforms() for device in platform.get_devices())
    program = engine.prepare(path, {"x": SHAPE}, Chooser(of_opencl(device, None)))
    assert isinstance(program, Program), program
    feeds = {"x": np.random.default_rng(1).standard_normal(SHAPE).astype(np.float32)}
    (want,) = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, feeds)
    executor = Executor(program, device)
    (have,) = executor.run(feeds).values()
    executor.close()
    assert np.linalg.norm(have - want) <= 1e-5 * np.linalg.norm(want)
