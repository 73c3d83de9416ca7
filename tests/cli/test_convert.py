from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from fakes.shell import Shell

import wavefit

DEMO = Path(wavefit.__file__).parent / "demo"


def some(folder: Path, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The first digits and their labels, also as ``some.npz``."""
    data = np.load(DEMO / "digits.npz")
    image, label = data["image"][:count], data["labels"][:count]
    np.savez(folder / "some.npz", image=image, labels=label)
    return image, label


@pytest.fixture
def digits(shell: Shell) -> Shell:
    shutil.copy(DEMO / "digits.onnx", shell.folder)
    return shell


def answers(path: Path, image: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {session.get_inputs()[0].name: image})[0])


def converted(shell: Shell, *words: str) -> dict[str, Any]:
    code, out, err = shell.type("convert", "digits.onnx", *words, "--json")
    assert code == 0, err
    return dict(json.loads(out))


def test_fp16_answers_as_fp32_does_and_takes_half_the_room(digits: Shell) -> None:
    image, _ = some(digits.folder, 120)
    (digits.folder / "half.onnx").write_bytes(b"an earlier file")
    before = digits.files()
    said = converted(digits, "--precision", "fp16", "--data", "some.npz", "-o", "half.onnx")
    assert digits.files() == before  # nothing beside the output, which was there
    made = digits.folder / "half.onnx"
    proto = onnx.load(made)
    kinds = {weight.data_type for weight in proto.graph.initializer}
    assert onnx.TensorProto.FLOAT16 in kinds
    assert onnx.TensorProto.FLOAT not in kinds
    assert proto.graph.input[0].type.tensor_type.elem_type == onnx.TensorProto.FLOAT
    assert made.stat().st_size < 0.6 * (DEMO / "digits.onnx").stat().st_size
    expected, actual = answers(DEMO / "digits.onnx", image), answers(made, image)
    assert np.linalg.norm(actual - expected) <= 5e-3 * np.linalg.norm(expected)
    assert (actual.argmax(1) == expected.argmax(1)).all()
    variant = said["variant"]
    assert (variant["precision"], variant["model"]["path"], variant["kept"]) == ("fp16", str(made), [])
    assert variant["nodes"] == {"fp16": 10}
    assert variant["task"]["name"] == "top1"


def test_int8_for_a_gpu_that_is_not_here_keeps_the_labels(digits: Shell) -> None:
    image, label = some(digits.folder, 240)
    said = converted(
        digits, "--precision", "int8", "--data", "some.npz", "--target", "ort_migraphx", "-o", "i.onnx"
    )
    made = digits.folder / "i.onnx"
    proto = onnx.load(made)
    types = {node.op_type for node in proto.graph.node}
    assert {"QuantizeLinear", "DequantizeLinear"} <= types
    assert onnx.TensorProto.UINT8 not in {weight.data_type for weight in proto.graph.initializer}
    right = (answers(made, image).argmax(1) == label).mean()
    assert right >= (answers(DEMO / "digits.onnx", image).argmax(1) == label).mean() - 0.01
    assert said["variant"]["target"] == "migraphx"
    assert said["variant"]["nodes"]["int8"] == 10
    code, out, err = digits.type("inspect", "i.onnx")
    assert code == 0, err
    assert "precision int8" in [" ".join(line.split()) for line in out.splitlines()]
    code, out, _ = digits.type("inspect", "digits.onnx")
    assert code == 0
    assert "precision" not in out
    assert made.stat().st_size < 0.45 * (DEMO / "digits.onnx").stat().st_size


def product(folder: Path, factor: float) -> None:
    """``y = x * factor``: past 65504 no half holds it."""
    x, y = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", 4]) for name in "xy")
    weight = onnx.numpy_helper.from_array(np.float32([factor] * 4), "factor")
    node = onnx.helper.make_node("Mul", ["x", "factor"], ["y"], name="times")
    graph = onnx.helper.make_graph([node], "g", [x], [y], [weight])
    opset = [onnx.helper.make_opsetid("", 18)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=9), folder / "big.onnx")


def test_where_nothing_passes_the_reason_is_told_and_nothing_written(shell: Shell) -> None:
    product(shell.folder, 1e8)
    before = shell.files()
    code, out, err = shell.type("convert", "big.onnx", "--precision", "fp16", "-o", "new.onnx")
    assert (code, out) == (1, "")
    assert err.splitlines()[-1].startswith("wavefit: no part of the model can be in fp16")
    assert shell.files() == before


def test_what_was_kept_and_why_is_told_in_80_columns(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    code, out, err = shell.type("convert", "net.onnx", "--precision", "fp16", "-o", "half.onnx")
    assert code == 0, err
    assert out.strip().startswith("half.onnx: ")
    assert "in fp16; " in out
    assert "ranges were taken from random inputs" in " ".join(out.split())
    assert max(map(len, out.splitlines())) <= 80


def test_a_model_that_is_in_half_already_is_refused(digits: Shell) -> None:
    half = digits.folder / "half.onnx"
    proto = onnx.load(DEMO / "digits.onnx")
    for weight in proto.graph.initializer:
        if weight.data_type == onnx.TensorProto.FLOAT:
            values = onnx.numpy_helper.to_array(weight).astype(np.float16)
            weight.CopyFrom(onnx.numpy_helper.from_array(values, weight.name))
    for value in (*proto.graph.input, *proto.graph.output):
        value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
    onnx.save(proto, half)
    digits.refuses(
        "convert", "half.onnx", "--precision", "fp16", "-o", "new.onnx",
        says="half.onnx computes in fp16 already; give the fp32 model that it came from",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--precision", "int8"], "--precision int8 needs data to calibrate on; give --data"),
        (
            ["--precision", "int8", "--data", "x.npz", "--target", "ort_rocm"],
            "--target 'ort_rocm' is not known; use ort_cpu, ort_migraphx, ort_directml",
        ),
        (
            ["--precision", "fp16", "--target", "ort_cpu"],
            "--target ort_cpu is of int8 alone; leave it out: fp16 is the same on every route",
        ),
        (["--precision", "fp32"], "--precision 'fp32' is not known; use fp16, bf16, int8"),
        (["--precision", "fp16", "--deadline", "nan"], "--deadline must be a number above 0, not nan"),
        (["--precision", "fp16", "--data", "none.npz"], "none.npz"),
    ],
)
def test_bad_options_are_one_line(shell: Shell, words: list[str], says: str) -> None:
    shell.refuses("convert", "net.onnx", *words, "-o", "new.onnx", says=says)


@pytest.mark.parametrize(
    ("output", "says"),
    [
        ("net.onnx", "--output net.onnx is the model itself; give another name"),
        ("net.bin", "--output net.bin is not named .onnx; give it that ending"),
        ("none/new.onnx", "does not exist; make it first"),
    ],
)
def test_an_output_that_cannot_be_is_one_line(shell: Shell, output: str, says: str) -> None:
    shell.refuses("convert", "net.onnx", "--precision", "fp16", "-o", output, says=says)


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="no folder that is unwritable for every user")
def test_a_folder_that_cannot_be_written_is_one_line(shell: Shell) -> None:
    shell.refuses(
        "convert", "net.onnx", "--precision", "fp16", "-o", "/proc/new.onnx",
        says="/proc cannot be written: ",
    )  # fmt: skip


NET = """
import torch

def net():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
"""


@pytest.mark.torch
def test_a_pytorch_factory_is_converted_too(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    (tmp_path / "mine.py").write_text(NET)
    words = ["convert", "mine:net", "--input", "x:1x6", "--precision", "fp16", "-o", "half.onnx"]
    command = [sys.executable, "-m", "wavefit", *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=os.environ)
    assert done.returncode == 0, done.stderr
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    values = np.random.default_rng(0).normal(size=(3, 6)).astype(np.float32)
    expected = module(torch.from_numpy(values)).detach().numpy()
    np.testing.assert_allclose(answers(tmp_path / "half.onnx", values), expected, rtol=5e-3, atol=5e-3)
    assert {path.name for path in tmp_path.iterdir()} - {"__pycache__"} == {"mine.py", "half.onnx"}


def test_a_node_that_is_named_stays(digits: Shell) -> None:
    some(digits.folder, 120)
    name = "/head/head.4/Gemm"
    said = converted(digits, "--precision", "fp16", "--keep", name, "-o", "half.onnx")
    [kept] = said["variant"]["kept"]
    assert (kept["node"], kept["precision"], kept["reason"]) == (name, "fp32", "named with --keep")
    assert said["variant"]["nodes"] == {"fp16": 9, "fp32": 1}
    [node] = [node for node in onnx.load(digits.folder / "half.onnx").graph.node if node.name == name]
    weights = {w.name: w.data_type for w in onnx.load(digits.folder / "half.onnx").graph.initializer}
    assert weights[node.input[1]] == onnx.TensorProto.FLOAT

    said = converted(digits, "--precision", "int8", "--data", "some.npz", "--keep", name, "-o", "i.onnx")
    assert [kept["node"] for kept in said["variant"]["kept"]] == [name]
    assert said["variant"]["target"].startswith("onnxruntime cpu")
    assert "for a GPU give --target" in " ".join(said["variant"]["notes"])
    proto = onnx.load(digits.folder / "i.onnx")
    [node] = [node for node in proto.graph.node if node.name == name]
    assert node.input[1] in {weight.name for weight in proto.graph.initializer}  # behind no DequantizeLinear


def test_a_node_of_another_name_is_refused_with_those_like_it(digits: Shell) -> None:
    code, out, err = digits.type(
        "convert", "digits.onnx", "--precision", "fp16", "--keep", "/head/head.4/Gem", "-o", "half.onnx"
    )
    assert (code, out) == (2, "")
    assert err.splitlines()[-1] == (
        "wavefit: --keep /head/head.4/Gem: digits has no node of that name; "
        "perhaps /head/head.4/Gemm or /head/head.2/Gemm or /head/head.3/Relu"
    )


def _odd(folder: Path, nodes: list[onnx.NodeProto], opset: int, **weights: np.ndarray) -> None:
    """x [N,3,8,8] -> y [N,4], as ``odd.onnx``."""
    ends = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        for name, shape in (("x", ["N", 3, 8, 8]), ("y", ["N", 4]))
    ]
    stored = [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = onnx.helper.make_graph(nodes, "odd", ends[:1], ends[1:], stored)
    imports = [onnx.helper.make_opsetid("", opset)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=imports, ir_version=4), folder / "odd.onnx")


@pytest.mark.parametrize("opset", [6, 13])
def test_a_model_with_a_pair_of_casts_to_bfloat16_or_of_an_old_opset(shell: Shell, opset: int) -> None:
    random = np.random.default_rng(0)
    weights = {"w": random.normal(0, 0.3, (4, 3, 3, 3)), "v": random.normal(0, 0.5, (4, 4))}
    node = onnx.helper.make_node
    there = [node("Cast", ["a"], ["b"], to=16), node("Cast", ["b"], ["c"], to=1)]  # 16: bfloat16, of opset 13
    nodes = [
        node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        *(there if opset == 13 else [node("Identity", ["a"], ["c"])]),
        node("ReduceMean", ["c"], ["m"], axes=[2, 3], keepdims=0),
        node("MatMul", ["m", "v"], ["y"]),
    ]
    _odd(shell.folder, nodes, opset, **{name: array.astype(np.float32) for name, array in weights.items()})
    code, _, err = shell.type("convert", "odd.onnx", "--precision", "fp16", "-o", "half.onnx")
    assert code == 0, err
    images = random.normal(size=(4, 3, 8, 8)).astype(np.float32)
    want, have = (
        onnxruntime.InferenceSession(shell.folder / name, providers=["CPUExecutionProvider"]).run(
            None, {"x": images}
        )[0]
        for name in ("odd.onnx", "half.onnx")
    )
    assert np.linalg.norm(have - want) <= 1e-2 * np.linalg.norm(want)
