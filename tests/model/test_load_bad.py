"""Files that must be refused: each with one sentence that says what, where and what to do, and nothing written."""

from __future__ import annotations

import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from fakes import models
from onnx import TensorProto, helper

from wavefit.errors import InputError
from wavefit.model.load import load

Build = Callable[[Path], Path]


def raw(name: str, content: bytes) -> Build:
    """A file of those bytes."""

    def build(folder: Path) -> Path:
        (folder / name).write_bytes(content)
        return folder / name

    return build


def changed(
    change: Callable[[onnx.ModelProto], None], base: Callable[[], onnx.ModelProto] = models.mlp
) -> Build:
    """A good model, changed."""

    def build(folder: Path) -> Path:
        proto = base()
        change(proto)
        (folder / "m.onnx").write_bytes(proto.SerializeToString())
        return folder / "m.onnx"

    return build


def external(change: Callable[[Path, onnx.ModelProto], None]) -> Build:
    """A good model with external data ``weights.data``, changed in the folder or in its protobuf."""

    def build(folder: Path) -> Path:
        path = models.save_external(models.mlp(), folder / "m.onnx")
        proto = onnx.load(str(path), load_external_data=False)
        change(folder, proto)
        path.write_bytes(proto.SerializeToString())
        return path

    return build


def entry(key: str, value: str) -> Build:
    """One external-data entry of the first weight, replaced."""

    def change(folder: Path, proto: onnx.ModelProto) -> None:
        entries = proto.graph.initializer[0].external_data
        kept = {each.key: each.value for each in entries} | {key: value}
        del entries[:]
        for name, text in kept.items():
            entries.add(key=name, value=text)

    return external(change)


def truncated(folder: Path) -> Path:
    path = models.save(models.conv_net(), folder / "m.onnx")
    path.write_bytes(path.read_bytes()[:-300])
    return path


def torch_zip(folder: Path) -> Path:
    with zipfile.ZipFile(folder / "m.pt", "w") as archive:
        archive.writestr("m/data.pkl", pickle.dumps({"w": [1.0]}))
    return folder / "m.pt"


def saved_model(folder: Path) -> Path:
    (folder / "saved").mkdir()
    (folder / "saved/saved_model.pb").write_bytes(b"\x08\x01")
    return folder / "saved"


def directory(folder: Path) -> Path:
    (folder / "d").mkdir()
    models.save(models.mlp(), folder / "d/inside.onnx")
    return folder / "d"


def fifo(folder: Path) -> Path:
    os.mkfifo(folder / "m.onnx")
    return folder / "m.onnx"


def linked_data(folder: Path, proto: onnx.ModelProto) -> None:
    (folder / "weights.data").rename(folder / "real.data")
    (folder / "weights.data").symlink_to("real.data")


def linked_folder(folder: Path) -> Path:
    """The data's folder is a link that leads out of the model's."""
    (folder / "out").mkdir()
    (folder / "in").mkdir()
    path = models.save_external(models.mlp(), folder / "in/m.onnx")
    (folder / "in/weights.data").rename(folder / "out/weights.data")
    (folder / "in/way").symlink_to(folder / "out")
    proto = onnx.load(str(path), load_external_data=False)
    for tensor in proto.graph.initializer:
        tensor.external_data[0].value = "way/weights.data"
    path.write_bytes(proto.SerializeToString())
    return path


def linked_model(folder: Path) -> Path:
    (folder / "real").mkdir()
    models.save_external(models.mlp(), folder / "real/m.onnx")
    (folder / "m.onnx").symlink_to("real/m.onnx")
    (folder / "weights.data").write_bytes((folder / "real/weights.data").read_bytes())
    return folder / "m.onnx"


def hard_link(folder: Path, proto: onnx.ModelProto) -> None:
    os.link(folder / "weights.data", folder / "other.data")


def cut_data(folder: Path, proto: onnx.ModelProto) -> None:
    data = folder / "weights.data"
    data.write_bytes(data.read_bytes()[:-5])


def nan_data(folder: Path, proto: onnx.ModelProto) -> None:
    with (folder / "weights.data").open("r+b") as file:
        file.write(np.array([np.nan], np.float32).tobytes())


def poison(index: int, *values: float) -> Callable[[onnx.ModelProto], None]:
    """Puts values at the start of an initializer."""

    def change(proto: onnx.ModelProto) -> None:
        tensor = proto.graph.initializer[index]
        tensor.raw_data = np.array(values, np.float32).tobytes() + tensor.raw_data[4 * len(values) :]

    return change


def half_nan(proto: onnx.ModelProto) -> None:
    proto.graph.initializer.append(helper.make_tensor("h", TensorProto.BFLOAT16, [2], [float("nan"), 1.0]))


def constant_nan(proto: onnx.ModelProto) -> None:
    value = models.weight("", np.array([1.0, np.nan], np.float32))
    proto.graph.node.insert(0, helper.make_node("Constant", [], ["k"], "konst", value=value))


def shape_bomb(
    kind: str, stored: Callable[[onnx.ModelProto, np.ndarray], None]
) -> Callable[[onnx.ModelProto], None]:
    def change(proto: onnx.ModelProto) -> None:
        stored(proto, np.array([10**6, 10**6, 10**6], np.int64))
        inputs = ["size"] if kind == "ConstantOfShape" else ["b0", "size"]
        proto.graph.node.append(helper.make_node(kind, inputs, ["big"], "bomb"))

    return change


def as_initializer(proto: onnx.ModelProto, shape: np.ndarray) -> None:
    proto.graph.initializer.append(models.weight("size", shape))


def as_constant(proto: onnx.ModelProto, shape: np.ndarray) -> None:
    proto.graph.node.append(helper.make_node("Constant", [], ["size"], value=models.weight("", shape)))


def dim(index: int, value: int) -> Callable[[onnx.ModelProto], None]:
    return lambda proto: setattr(proto.graph.input[0].type.tensor_type.shape.dim[index], "dim_value", value)


def sequence_input(proto: onnx.ModelProto) -> None:
    proto.graph.input.append(helper.make_tensor_sequence_value_info("many", TensorProto.FLOAT, ["N"]))


def optional_input(proto: onnx.ModelProto) -> None:
    kind = helper.make_optional_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, ["N"]))
    proto.graph.input.append(helper.make_value_info("maybe", kind))


def map_output(proto: onnx.ModelProto) -> None:
    proto.graph.output[0].type.map_type.key_type = TensorProto.INT64


def sparse_input(proto: onnx.ModelProto) -> None:
    proto.graph.input.append(
        helper.make_value_info("thin", helper.make_sparse_tensor_type_proto(TensorProto.FLOAT, [4]))
    )


def sparse_weight(proto: onnx.ModelProto) -> None:
    sparse = helper.make_sparse_tensor(
        models.weight("v", np.ones(1, np.float32)), models.weight("i", np.zeros(1, np.int64)), [10**12]
    )
    proto.graph.sparse_initializer.append(sparse)


def rename_operator(proto: onnx.ModelProto) -> None:
    proto.graph.node[2].op_type = "Frobnicate"


def foreign_operator(proto: onnx.ModelProto) -> None:
    proto.graph.node[2].domain = "acme"
    proto.opset_import.append(helper.make_opsetid("acme", 1))


def operator_in_subgraph(proto: onnx.ModelProto) -> None:
    for node in proto.graph.node:
        node.name = ""
    graph = helper.make_graph(
        [helper.make_node("Hidden", ["x"], ["z"])], "b", [], [models.value("z", ["N", 16])]
    )
    proto.graph.initializer.append(models.weight("yes", np.array(True)))
    proto.graph.node.append(
        helper.make_node("If", ["yes"], ["u"], "if", then_branch=graph, else_branch=graph)
    )


def swap_nodes(proto: onnx.ModelProto) -> None:
    first = onnx.NodeProto.FromString(proto.graph.node[0].SerializeToString())
    del proto.graph.node[0]
    proto.graph.node.append(first)


def duplicate(field: str) -> Callable[[onnx.ModelProto], None]:
    def change(proto: onnx.ModelProto) -> None:
        entries = getattr(proto.graph, field)
        entries.append(type(entries[0]).FromString(entries[0].SerializeToString()))

    return change


def set_first(field: str, name: str, value: object) -> Callable[[onnx.ModelProto], None]:
    return lambda proto: setattr(getattr(proto.graph, field)[0], name, value)


def set_dims(*dims: int) -> Callable[[onnx.ModelProto], None]:
    def change(proto: onnx.ModelProto) -> None:
        proto.graph.initializer[0].dims[:] = dims

    return change


def not_utf8(folder: Path) -> Path:
    path = models.save(models.mlp(), folder / "m.onnx")
    path.write_bytes(path.read_bytes().replace(b"relu0", b"rel\xff0"))
    return path


BAD: dict[str, tuple[Build, str]] = {
    # The file
    "missing": (lambda folder: folder / "none.onnx", "does not exist"),
    "null byte": (lambda folder: folder / "a\0b.onnx", "cannot be read"),
    "directory": (directory, "did you mean"),
    "empty directory": (lambda folder: folder, "is a directory"),
    "named pipe": (fifo, "is not a regular file"),
    "empty": (raw("m.onnx", b""), "is empty"),
    "truncated": (truncated, "only a part of one"),
    "text": (raw("m.onnx", b"this is no model, really"), "is no ONNX model"),
    "zeros": (raw("m.onnx", bytes(1000)), "is no ONNX model"),
    "another protobuf": (raw("m.onnx", b"\x08\x07"), "holds no ONNX graph"),
    "LFS pointer": (raw("m.onnx", b"version https://git-lfs.github.com/spec/v1\noid"), "git lfs pull"),
    "web page": (raw("m.onnx", b"<!DOCTYPE html><html>404</html>"), "is no ONNX model"),
    # Other formats
    "torch zip": (torch_zip, "reading a pickle runs the code in it"),
    "pickle": (
        raw("m.pth", pickle.dumps({"weight": [1.0]}, protocol=2)),
        "export the module instead: wavefit export",
    ),
    "pickle named .onnx": (raw("m.onnx", pickle.dumps([1.0] * 20, protocol=4)), "runs the code in it"),
    "zip named .onnx": (raw("m.onnx", b"PK\x03\x04" + bytes(60)), "runs the code in it"),
    "TensorRT engine": (raw("m.engine", b"ftrt" + bytes(60)), "QuantizeLinear/DequantizeLinear nodes kept"),
    "TensorRT plan": (raw("m.plan", bytes(60)), "give the ONNX file that it was built from"),
    "TensorFlow Lite": (raw("m.tflite", b"\x1c\0\0\0TFL3" + bytes(60)), "tf2onnx.convert --tflite"),
    "SavedModel": (saved_model, "tf2onnx.convert --saved-model"),
    "frozen TensorFlow graph": (raw("m.pb", b"\x0a\x10" + bytes(60)), "--graphdef"),
    "Keras": (raw("m.h5", b"\x89HDF\r\n\x1a\n" + bytes(60)), "is a Keras model"),
    "safetensors": (
        raw("m.safetensors", b"\x40" + bytes(7) + b'{"w":{"dtype":"F32"}}'),
        "weights without a graph",
    ),
    "safetensors named .onnx": (raw("m.onnx", b"\x40" + bytes(7) + b'{"w":{}}'), "weights without a graph"),
    "GGUF": (raw("m.gguf", b"GGUF" + bytes(60)), "llama.cpp"),
    "ORT format": (raw("m.ort", b"\x18\0\0\0ORTM" + bytes(60)), "the .onnx file that it was made from"),
    "exported program": (raw("m.pt2", b"PK\x03\x04" + bytes(60)), "wavefit export"),
    "ONNX of another name": (lambda folder: models.save(models.mlp(), folder / "m.model"), "not named .onnx"),
    # Versions and operators
    "opset too new": (changed(lambda proto: setattr(proto.opset_import[0], "version", 999)), "opset 999"),
    "opset zero": (changed(lambda proto: setattr(proto.opset_import[0], "version", 0)), "opset 0"),
    "no opset": (changed(lambda proto: proto.ClearField("opset_import")), "imports no operator set"),
    "IR too new": (changed(lambda proto: setattr(proto, "ir_version", 99)), "IR version 99"),
    "IR too old": (changed(lambda proto: setattr(proto, "ir_version", 2)), "IR version 2"),
    "unknown operator": (
        changed(rename_operator),
        "Frobnicate node 'relu0' uses the operator 'Frobnicate' of domain 'ai.onnx', which opset 17 does not have",
    ),
    "unknown domain": (changed(foreign_operator), "operator 'Relu' of domain 'acme', which opset 1"),
    "unknown operator in a subgraph": (changed(operator_in_subgraph), "the Hidden node that makes 'z'"),
    "unknown attribute": (
        changed(lambda proto: proto.graph.node[0].attribute.append(helper.make_attribute("zork", 1))),
        "checker says: Unrecognized attribute: zork",
    ),
    "too many inputs of a node": (
        changed(lambda proto: proto.graph.node[0].input.append("x")),
        "input size 3",
    ),
    "nodes out of order": (changed(swap_nodes), "topologically sorted"),
    "name not UTF-8": (not_utf8, "a name that is no text"),
    # Inputs, outputs, names
    "no inputs": (changed(lambda proto: proto.graph.ClearField("input")), "has no inputs"),
    "no outputs": (changed(lambda proto: proto.graph.ClearField("output")), "has no outputs"),
    "zero-size dimension": (changed(dim(1, 0)), "input 'x' has a dimension of size 0"),
    "negative dimension": (changed(dim(0, -1)), "input 'x' has a dimension of size -1"),
    "huge input": (changed(dim(1, 10**15)), "more than 64 GiB"),
    "overflowing input": (changed(dim(1, 2**63 - 1)), "more than 64 GiB"),
    "input without rank": (
        changed(lambda proto: proto.graph.input[0].type.tensor_type.ClearField("shape")),
        "input 'x' has no shape",
    ),
    "input without type": (changed(lambda proto: proto.graph.input[0].ClearField("type")), "undeclared type"),
    "sequence input": (changed(sequence_input), "'many' is no plain tensor (it is: sequence)"),
    "optional input": (changed(optional_input), "'maybe' is no plain tensor (it is: optional)"),
    "sparse input": (changed(sparse_input), "'thin' is no plain tensor (it is: sparse tensor)"),
    "map output": (changed(map_output), "'y' is no plain tensor (it is: map)"),
    "input twice": (changed(duplicate("input")), "input name 'x' is there twice"),
    "output twice": (changed(duplicate("output")), "output name 'y' is there twice"),
    "initializer twice": (changed(duplicate("initializer")), "initializer name 'w0' is there twice"),
    "input without name": (changed(set_first("input", "name", "")), "has no name"),
    "output from nowhere": (changed(set_first("output", "name", "zzz")), "no node makes the output 'zzz'"),
    "node input from nowhere": (
        changed(lambda proto: proto.graph.node[0].input.__setitem__(0, "zzz")),
        "however input 'zzz'",
    ),
    # Weights
    "shape bomb": (changed(set_dims(10**6, 10**6)), "initializer 'w0' declares float32 1000000x1000000"),
    "overflowing shape": (changed(set_dims(2**62, 2**62)), "but holds 2048"),
    "shape too small": (changed(set_dims(16, 31)), "1984 bytes, but holds 2048"),
    "negative weight shape": (changed(set_dims(-16, -32)), "initializer 'w0' has a negative dimension"),
    "unknown weight type": (changed(set_first("initializer", "data_type", 77)), "unknown element type 77"),
    "typed field too short": (
        changed(lambda proto: proto.graph.initializer.append(TensorProto(name="t", data_type=1, dims=[9]))),
        "initializer 't' declares float32 9, 9 values, but holds 0",
    ),
    "NaN": (changed(poison(0, np.nan, np.nan)), "initializer 'w0' holds 2 NaN among its 512 values"),
    "Inf": (changed(poison(1, np.inf)), "initializer 'b0' holds 1 Inf among its 32 values"),
    "NaN and Inf": (changed(poison(0, np.nan, -np.inf, np.inf)), "1 NaN and 2 Inf"),
    "NaN in bfloat16": (changed(half_nan), "initializer 'h' holds 1 NaN among its 2 values"),
    "NaN in a Constant": (changed(constant_nan), "attribute 'value' of Constant node 'konst' holds 1 NaN"),
    "sparse initializer": (changed(sparse_weight), "sparse initializers"),
    "ConstantOfShape bomb": (
        changed(shape_bomb("ConstantOfShape", as_initializer)),
        "node 'bomb' makes a tensor",
    ),
    "ConstantOfShape bomb, Constant": (
        changed(shape_bomb("ConstantOfShape", as_constant)),
        "node 'bomb' makes",
    ),
    "Expand bomb": (changed(shape_bomb("Expand", as_initializer)), "Expand node 'bomb' makes a tensor"),
    # External data
    "data missing": (external(lambda folder, _: (folder / "weights.data").unlink()), "No such file"),
    "data cut short": (external(cut_data), "which has only"),
    "data elsewhere, absolute": (entry("location", "/etc/passwd"), "outside the model's folder"),
    "data elsewhere, parent": (entry("location", "../weights.data"), "outside the model's folder"),
    "data elsewhere, hidden parent": (
        entry("location", "a/../../weights.data"),
        "outside the model's folder",
    ),
    "data elsewhere, Windows parent": (entry("location", "..\\weights.data"), "outside the model's folder"),
    "data elsewhere, Windows drive": (entry("location", "C:\\weights.data"), "outside the model's folder"),
    "data in no file": (entry("location", ""), "outside the model's folder"),
    "data in a folder": (entry("location", "."), "is not a readable file"),
    "data linked": (external(linked_data), "is a link"),
    "data hard-linked": (external(hard_link), "is a link"),
    "data in a linked folder": (linked_folder, "is a link"),
    "model linked, data beside": (linked_model, "give the real path"),
    "offset past the end": (entry("offset", "99999999"), "which has only"),
    "offset negative": (entry("offset", "-4"), "offset '-4'"),
    "offset no number": (entry("offset", "0x10"), "offset '0x10'"),
    "offset of many digits": (entry("offset", "9" * 5000), "must be a whole number"),
    "length past the end": (entry("length", "99999999"), "which has only"),
    "length too short": (entry("length", "4"), "2048 bytes, but holds 4"),
    "NaN in external data": (external(nan_data), "holds 1 NaN"),
}


def tree(folder: Path) -> dict[str, int]:
    return {str(path): path.lstat().st_mtime_ns for path in folder.rglob("*")}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_file_is_one_clear_sentence(tmp_path: Path, case: str) -> None:
    build, expected = BAD[case]
    path = build(tmp_path)
    before = tree(tmp_path)
    with pytest.raises(InputError) as caught:
        load(path)
    text = str(caught.value)
    assert expected in text
    assert caught.value.fix or "cannot be read" in text
    assert len(text.splitlines()) == 1
    assert len(text) < 700
    assert "'a\\x00b.onnx'" in text or repr(str(path))[1:-1] in text
    assert tree(tmp_path) == before


def test_a_file_over_two_gib_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "big.onnx"
    with path.open("wb") as file:
        file.write(b"\x08\x08")
        file.truncate(2**31)  # sparse: takes no space
    with pytest.raises(InputError, match="more than a protobuf file may have"):
        load(path)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="permissions do not bind the superuser")
def test_an_unreadable_file_is_refused(tmp_path: Path) -> None:
    path = models.save(models.mlp(), tmp_path / "m.onnx")
    path.chmod(0)
    with pytest.raises(InputError, match="check its permissions"):
        load(path)
