"""The models that benchmarks run on: public graphs with seeded random weights.

A graph whose weights are all the same constant (as onnx ships it) proves nothing: every output is equal, and
a wrong layout or a dropped channel goes unseen.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

_SEED = 20_261_130


def resnet50(folder: Path) -> Path:
    """Writes ``folder/resnet50.onnx`` (103 MB, opset 17) unless it is there, and returns its path.

    The graph is onnx's own ``light_resnet50.onnx``: input ``data`` (N, 3, 224, 224), output ``probabilities``
    (N, 1000). The batch is made dynamic and every weight is drawn from a seeded generator, scaled so that
    activations stay of order one through all 16 blocks. 4.1 GMAC an item.
    """
    path = folder / "resnet50.onnx"
    if path.exists():
        return path
    source = Path(onnx.__file__).parent / "backend/test/data/light/light_resnet50.onnx"
    model = _with_random_weights(onnx.load(str(source)))
    _open_batch(model.graph)
    for node in model.graph.node:
        if node.op_type == "Sum":  # of two: what exporters write as Add, which every provider has
            node.op_type = "Add"
    model = onnx.version_converter.convert_version(model, 17)
    model.ir_version = 8
    onnx.checker.check_model(model, full_check=True)
    folder.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    onnx.save(model, str(partial))
    partial.replace(path)
    return path


def _with_random_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """The light files build each weight with ConstantOfShape; here it becomes an initializer."""
    graph = model.graph
    shapes = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    rng = np.random.default_rng(_SEED)
    weights, nodes = [], []
    for node in graph.node:
        if node.op_type == "ConstantOfShape":
            shape = tuple(int(size) for size in shapes[node.input[0]])
            weights.append(numpy_helper.from_array(_draw(rng, node.output[0], shape), node.output[0]))
        else:
            nodes.append(node)
    read = {name for node in nodes for name in node.input}
    kept = [tensor for tensor in graph.initializer if tensor.name in read]
    data = graph.input[0]
    for field, items in (("initializer", kept + weights), ("node", nodes), ("input", [data])):
        graph.ClearField(field)
        getattr(graph, field).extend(items)
    model.ir_version = 8  # from 4 on, an initializer need not be an input
    return model


def _draw(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """He initialisation for weights; batch-norm statistics near (0, 1).

    The last batch-norm of a block is scaled down, since each of the 16 residual additions would otherwise
    double the variance; the classifier is scaled down so that its softmax does not saturate.
    """
    if len(shape) > 1:
        values = (
            rng.standard_normal(shape) * np.sqrt(2 / np.prod(shape[1:])) * (0.25 if "pred_w" in name else 1)
        )
    elif name.endswith(("_bn_s_0", "_bn_riv_0")):
        values = rng.uniform(0.8, 1.2, shape) * (0.3 if name.endswith("branch2c_bn_s_0") else 1)
    else:
        values = rng.standard_normal(shape) * 0.1
    return values.astype(np.float32)


def _open_batch(graph: onnx.GraphProto) -> None:
    """Input and output get friendly names and a symbolic batch; the flattening Reshape keeps any batch."""
    renamed = {graph.input[0].name: "data", graph.output[0].name: "probabilities"}
    for value in (graph.input[0], graph.output[0]):
        value.name = renamed[value.name]
        value.type.tensor_type.shape.dim[0].dim_param = "N"
    for node in graph.node:
        node.input[:] = [renamed.get(name, name) for name in node.input]
        node.output[:] = [renamed.get(name, name) for name in node.output]
    reshape = next(node for node in graph.node if node.op_type == "Reshape")
    target = next(tensor for tensor in graph.initializer if tensor.name == reshape.input[1])
    target.CopyFrom(numpy_helper.from_array(np.array([0, -1], np.int64), target.name))
