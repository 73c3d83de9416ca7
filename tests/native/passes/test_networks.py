"""What is left of whole networks: a kernel for each convolution, product and attention, nothing loose between."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from native.passes.build import check_order, ops

from wavefit.native import passes
from wavefit.native.graph import Graph
from wavefit.native.import_onnx import load

LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"


def _light(name: str, tmp_path: Path) -> Graph:
    """One of onnx's light models, after all passes; each weight drawn, where the file has a constant."""
    model = onnx.load(str(LIGHT / f"light_{name}.onnx"))
    known = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    made = [node for node in model.graph.node if node.op_type == "ConstantOfShape"]
    rest = [node for node in model.graph.node if node.op_type != "ConstantOfShape"]
    rng = np.random.default_rng(1)
    for node in made:
        shape = tuple(known[node.input[0]])
        array = rng.uniform(0.5, 1.5, shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, node.output[0]))
    del model.graph.node[:]
    model.graph.node.extend(rest)
    model.ir_version = 8
    (given,) = [value for value in model.graph.input if value.name not in known]
    path = tmp_path / f"{name}.onnx"
    onnx.save(model, str(path))
    shape = tuple(dim.dim_value for dim in given.type.tensor_type.shape.dim)
    graph = load(path, {given.name: shape})
    assert isinstance(graph, Graph), graph
    passes.run(graph)
    check_order(graph)
    return graph


def test_resnet_50_is_its_convolutions(tmp_path):
    left = ops(_light("resnet50", tmp_path))
    assert left.pop("Conv") == 53
    assert left.pop("MatMul") == left.pop("MaxPool") == left.pop("Softmax") == 1
    assert left.pop("Reshape", 0) <= 2
    assert left.pop("AveragePool", 0) + left.pop("Reduce", 0) == 1
    assert not left


@pytest.mark.parametrize(
    ("name", "convolutions", "loose"),
    [
        ("squeezenet", 26, 0),
        ("inception_v2", 69, 0),
        ("shufflenet", 49, 3),  # Relu after Concat
        ("densenet121", 121, 62),  # BatchNormalization and Relu before a convolution, of what others read too
    ],
)
def test_elementwise_functions_that_are_left(name, convolutions, loose, tmp_path):
    left = ops(_light(name, tmp_path))
    assert left["Conv"] == convolutions
    assert left.get("Pointwise", 0) == loose
    assert left.get("Transpose", 0) == (16 if name == "shufflenet" else 0)


def _exported(net, feeds: tuple, path: Path, opset: int) -> tuple[Graph, Graph]:
    """Before and after the passes."""
    torch = pytest.importorskip("torch")
    names = [f"in{n}" for n in range(len(feeds))]
    torch.onnx.export(net.eval(), feeds, str(path), input_names=names, dynamo=False, opset_version=opset)
    shapes = {name: tuple(each.shape) for name, each in zip(names, feeds, strict=True)}
    before, after = load(path, shapes), load(path, shapes)
    assert isinstance(before, Graph)
    assert isinstance(after, Graph)
    passes.run(after)
    check_order(after)
    return before, after


LAYERS, WIDTH, HEADS = 2, 32, 4


def _encoder(kind: str, norm_first: bool):
    """An encoder as BERT (attention written out, a mask) or ViT (PyTorch's own function, norm first) has it."""
    torch = pytest.importorskip("torch")
    nn = torch.nn

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
            self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
            self.one, self.two = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

        def attend(self, x, mask):
            n, m, _ = x.shape
            q, k, v = (f(x).view(n, m, HEADS, -1).permute(0, 2, 1, 3) for f in (self.q, self.k, self.v))
            if kind == "vit":
                y = nn.functional.scaled_dot_product_attention(q, k, v)
            else:
                scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(q.shape[-1]) + mask
                y = torch.matmul(torch.softmax(scores, -1), v)
            return self.o(y.permute(0, 2, 1, 3).reshape(n, m, WIDTH))

        def feed(self, x):
            return self.down(nn.functional.gelu(self.up(x)))

        def forward(self, x, mask):
            if norm_first:
                x = x + self.attend(self.one(x), mask)
                return x + self.feed(self.two(x))
            x = self.one(self.attend(x, mask) + x)
            return self.two(self.feed(x) + x)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))

        def forward(self, x, mask=None):
            if mask is not None:
                mask = (1.0 - mask[:, None, None, :].float()) * -10000.0
            for layer in self.layers:
                x = layer(x, mask)
            return x

    torch.manual_seed(0)
    return Net()


@pytest.mark.torch
@pytest.mark.parametrize(("kind", "opset"), [("bert", 13), ("bert", 17), ("vit", 17)])
def test_an_encoder_layer_is_one_attention_six_products_and_two_norms(kind, opset, tmp_path):
    torch = pytest.importorskip("torch")
    feeds = [torch.randn(2, 6, WIDTH)]
    if kind == "bert":
        feeds.append(torch.tensor([[1] * 6, [1] * 4 + [0] * 2]))
    _, after = _exported(_encoder(kind, kind == "vit"), tuple(feeds), tmp_path / "net.onnx", opset)
    left = Counter(ops(after))
    assert left["Attention"] == LAYERS
    assert left["MatMul"] == 6 * LAYERS
    assert left["LayerNormalization"] == 2 * LAYERS
    assert left["Softmax"] == left["Reduce"] == 0
    assert left["Pointwise"] == (kind == "bert")  # the mask, once for all layers


@pytest.mark.torch
@pytest.mark.parametrize(("kind", "opset"), [("bert", 13), ("bert", 17), ("vit", 17)])
def test_an_encoder_answers_as_pytorch_does(kind, opset, tmp_path):
    torch = pytest.importorskip("torch")
    from native.interpret import evaluate

    feeds = [torch.randn(2, 6, WIDTH)]
    if kind == "bert":
        feeds.append(torch.tensor([[1] * 6, [1] * 4 + [0] * 2]))
    net = _encoder(kind, kind == "vit")
    _, after = _exported(net, tuple(feeds), tmp_path / "net.onnx", opset)
    (have,) = evaluate(after, {f"in{n}": each.numpy() for n, each in enumerate(feeds)})
    wide = [each.double() if each.is_floating_point() else each for each in feeds]
    with torch.no_grad():
        want = net.double()(*wide).numpy()
    assert np.linalg.norm(have - want) <= 1e-5 * np.linalg.norm(want)
