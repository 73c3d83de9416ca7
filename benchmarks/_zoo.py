"""Ten models for benchmarks/predicted.py, with seeded random weights: onnx's light graphs, and three built here."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from _models import resnet50
from onnx import TensorProto, helper, numpy_helper

_SEED = 20_261_130
_OPSET = 17
LIGHT = (
    "bvlc_alexnet",
    "densenet121",
    "inception_v1",
    "inception_v2",
    "shufflenet",
    "squeezenet",
    "zfnet512",
)


def models(folder: Path) -> dict[str, Path]:
    """Writes the models that are not there yet; returns their paths by name."""
    import wavefit.demo

    folder.mkdir(parents=True, exist_ok=True)
    found = {"digits": Path(wavefit.demo.__file__).parent / "digits.onnx", "resnet50": resnet50(folder)}
    for name in LIGHT:
        found[name] = _kept(folder / f"{name}.onnx", lambda name=name: light(name))
    found["mlp"] = _kept(folder / "mlp.onnx", lambda: mlp((1024, 4096, 4096, 4096, 1000)))
    found["transformer"] = _kept(folder / "transformer.onnx", transformer)
    return found


def tiny(folder: Path) -> Path:
    """A model of 20 parameters: what a process takes besides the model."""
    folder.mkdir(parents=True, exist_ok=True)
    return _kept(folder / "tiny.onnx", lambda: mlp((4, 4)))


def _kept(path: Path, make: Callable[[], onnx.ModelProto]) -> Path:
    if not path.exists():
        partial = path.with_suffix(".partial")
        onnx.save(make(), str(partial))
        partial.replace(path)
    return path


def light(name: str) -> onnx.ModelProto:
    """One of onnx's light graphs, its batch opened, its weights drawn: He's initialisation, statistics near (0, 1)."""
    source = Path(onnx.__file__).parent / f"backend/test/data/light/light_{name}.onnx"
    model = onnx.load(str(source))
    graph = model.graph
    stored = {tensor.name: tensor for tensor in graph.initializer}
    data = onnx.ValueInfoProto()
    data.CopyFrom(
        next(entry for entry in graph.input if entry.name not in stored and entry.name.endswith("data_0"))
    )
    made = [node for node in graph.node if node.op_type == "ConstantOfShape"]
    roles = {name: (node.op_type, index) for node in graph.node for index, name in enumerate(node.input)}
    rng = np.random.default_rng(_SEED)
    drawn = [
        _draw(rng, node.output[0], numpy_helper.to_array(stored[node.input[0]]), roles[node.output[0]])
        for node in made
    ]
    nodes = [node for node in graph.node if node.op_type != "ConstantOfShape"]
    read = {entry for node in nodes for entry in node.input}
    kept = [tensor for tensor in graph.initializer if tensor.name in read]
    for field, items in (("initializer", kept + drawn), ("node", nodes), ("input", [data])):
        graph.ClearField(field)
        getattr(graph, field).extend(items)
    model.ir_version = 8
    _open_batch(graph)
    return onnx.version_converter.convert_version(model, _OPSET)


def _draw(rng: np.random.Generator, name: str, shape: np.ndarray, role: tuple[str, int]) -> onnx.TensorProto:
    kind, index = role
    size = tuple(int(each) for each in shape)
    if kind == "BatchNormalization" and index in (1, 4):  # scale and variance
        values = rng.uniform(0.8, 1.2, size)
    elif len(size) > 1:
        values = rng.standard_normal(size) * np.sqrt(2 / np.prod(size[1:]))
    elif kind in ("Mul", "Unsqueeze"):  # a scale of densenet's
        values = rng.uniform(0.5, 0.8, size)
    else:
        values = rng.standard_normal(size) * 0.1
    return numpy_helper.from_array(values.astype(np.float32), name)


def _open_batch(graph: onnx.GraphProto) -> None:
    """A symbolic first dimension; Reshapes to a batch of 1 keep the batch that comes in."""
    graph.ClearField("value_info")
    for entry in (*graph.input, *graph.output):
        entry.type.tensor_type.shape.dim[0].dim_param = "N"
    stored = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        of_data = node.op_type == "Reshape" and node.input[0] not in stored
        target = stored.get(node.input[1]) if of_data else None
        if target is not None:
            sizes = numpy_helper.to_array(target).copy()
            sizes[0] = 0
            target.CopyFrom(numpy_helper.from_array(sizes, target.name))


def mlp(widths: tuple[int, ...]) -> onnx.ModelProto:
    """x [N, widths[0]] -> MatMul, Add, Relu for each layer -> y [N, widths[-1]]."""
    rng = np.random.default_rng(_SEED)
    nodes, weights, current = [], [], "x"
    for layer, (rows, columns) in enumerate(itertools.pairwise(widths)):
        last = layer == len(widths) - 2
        weights.append(_weight(rng, f"w{layer}", (rows, columns), rows))
        weights.append(_weight(rng, f"b{layer}", (columns,), 100))
        nodes.append(helper.make_node("MatMul", [current, f"w{layer}"], [f"m{layer}"]))
        nodes.append(helper.make_node("Add", [f"m{layer}", f"b{layer}"], ["y" if last else f"a{layer}"]))
        if not last:
            nodes.append(helper.make_node("Relu", [f"a{layer}"], [f"r{layer}"]))
        current = f"r{layer}"
    return _model(nodes, weights, ["N", widths[0]], ["N", widths[-1]])


def transformer(layers: int = 6, width: int = 512, heads: int = 8, length: int = 128) -> onnx.ModelProto:
    """An encoder (pre-norm) on x [N, length, width]: attention and a feed-forward net of four times the width."""
    rng = np.random.default_rng(_SEED)
    nodes: list[onnx.NodeProto] = []
    weights = [
        numpy_helper.from_array(np.array([0, 0, heads, width // heads], np.int64), "split"),
        numpy_helper.from_array(np.array([0, 0, width], np.int64), "join"),
        numpy_helper.from_array(np.array((width // heads) ** -0.5, np.float32), "scale"),
    ]

    def add(kind: str, inputs: list[str], output: str, **attributes: object) -> str:
        nodes.append(helper.make_node(kind, inputs, [output], output, **attributes))
        return output

    def linear(x: str, name: str, rows: int, columns: int) -> str:
        weights.append(_weight(rng, f"{name}_w", (rows, columns), rows))
        weights.append(_weight(rng, f"{name}_b", (columns,), 100))
        return add("Add", [add("MatMul", [x, f"{name}_w"], f"{name}_m"), f"{name}_b"], name)

    def norm(x: str, name: str) -> str:
        weights.append(numpy_helper.from_array(np.ones(width, np.float32), f"{name}_g"))
        weights.append(_weight(rng, f"{name}_b", (width,), 100))
        return add("LayerNormalization", [x, f"{name}_g", f"{name}_b"], name)

    def split(x: str, name: str, order: list[int]) -> str:
        return add("Transpose", [add("Reshape", [x, "split"], f"{name}_r")], name, perm=order)

    x = "x"
    for n in range(layers):
        normed = norm(x, f"n{n}a")
        q = split(linear(normed, f"q{n}", width, width), f"qs{n}", [0, 2, 1, 3])
        k = split(linear(normed, f"k{n}", width, width), f"ks{n}", [0, 2, 3, 1])
        v = split(linear(normed, f"v{n}", width, width), f"vs{n}", [0, 2, 1, 3])
        scores = add("Mul", [add("MatMul", [q, k], f"s{n}"), "scale"], f"sc{n}")
        mixed = add("MatMul", [add("Softmax", [scores], f"p{n}", axis=-1), v], f"o{n}")
        joined = add("Reshape", [add("Transpose", [mixed], f"t{n}", perm=[0, 2, 1, 3]), "join"], f"j{n}")
        x = add("Add", [x, linear(joined, f"out{n}", width, width)], f"x{n}a")
        hidden = add("Relu", [linear(norm(x, f"n{n}b"), f"up{n}", width, 4 * width)], f"h{n}")
        x = add(
            "Add", [x, linear(hidden, f"down{n}", 4 * width, width)], "y" if n == layers - 1 else f"x{n}b"
        )
    return _model(nodes, weights, ["N", length, width], ["N", length, width])


def _weight(rng: np.random.Generator, name: str, shape: tuple[int, ...], fan: int) -> onnx.TensorProto:
    return numpy_helper.from_array((rng.standard_normal(shape) * fan**-0.5).astype(np.float32), name)


def _model(
    nodes: list[onnx.NodeProto], weights: list[onnx.TensorProto], takes: list[object], gives: list[object]
) -> onnx.ModelProto:
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, takes)]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, gives)]
    graph = helper.make_graph(nodes, "zoo", inputs, outputs, initializer=weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=8)
