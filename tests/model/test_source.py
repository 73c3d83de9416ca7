"""What MODEL may be, and what is said where it is something else. Runs without PyTorch and TensorFlow."""

from __future__ import annotations

import importlib.util
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from onnx import TensorProto, helper, save

from wavefit.errors import InputError
from wavefit.model.export_plan import Options
from wavefit.model.inputs import parse_inputs
from wavefit.model.source import export_model, resolve


def silent(text):
    pass


@pytest.fixture
def onnx_file(tmp_path):
    folder = tmp_path / "models"
    folder.mkdir()
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 4])],
    )
    path = folder / "m.onnx"
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    return path


def refused(spec, workdir, says, inputs=()):
    workdir.mkdir(exist_ok=True)
    with pytest.raises(InputError, match=says) as caught:
        resolve(str(spec), parse_inputs(inputs), workdir, silent)
    assert "\n" not in str(caught.value)
    assert not list(workdir.iterdir()), "something was written"


def test_an_onnx_file_is_used_where_it_lies(onnx_file, tmp_path):
    model = resolve(str(onnx_file), (), tmp_path, silent)
    assert model.path == str(onnx_file)
    assert (model.source, model.exported_program) == (None, None)


def test_inputs_of_an_onnx_file_are_its_own(onnx_file, tmp_path):
    refused(onnx_file, tmp_path / "work", "tells its own inputs", inputs=("x:1x4",))


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("m.pth", pickle.dumps({"w": 1}), "pickle"),
        ("m.pt", b"PK\x03\x04", "pickle"),
        ("m.pkl", pickle.dumps(1), "pickle"),
        ("m.safetensors", b"\x10\0\0\0\0\0\0\0" + b'{"w": 1}', "weights without a graph"),
        ("m.engine", b"ptrt", "TensorRT engine"),
        ("m.plan", b"\0\1", "TensorRT engine.*Quantize"),
        ("m.h5", b"\x89HDF\r\n\x1a\n", "Keras"),
        ("m.pt2", b"not a zip", "is no exported program"),
        ("m.onnx", b"", "is empty"),
        ("m.txt", b"hello", "not named .onnx"),
    ],
)
def test_other_files(tmp_path, name, content, says):
    path = tmp_path / name
    path.write_bytes(content)
    refused(path, tmp_path / "work", says)


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("absent.onnx", "does not exist"),
        ("absent.pt2", "does not exist"),
        ("net:", "names no PyTorch factory"),
        (":make", "names no PyTorch factory"),
        ("my-net:make", "names no PyTorch factory"),
        ("", "directory"),
        (".", "directory"),
    ],
)
def test_names_of_nothing(tmp_path, monkeypatch, spec, says):
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    refused(spec, tmp_path / "work", says)


@pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="PyTorch is installed")
def test_without_pytorch_the_install_command_is_named(tmp_path):
    refused("net:make", tmp_path / "work", r"pip install 'wavefit\[torch\]'", inputs=("x:1x4",))


@pytest.mark.skipif(importlib.util.find_spec("tf2onnx") is not None, reason="tf2onnx is installed")
def test_without_tf2onnx_the_install_command_is_named(tmp_path):
    saved = tmp_path / "saved"
    saved.mkdir()
    (saved / "saved_model.pb").write_bytes(b"\x08\x01")
    lite = tmp_path / "m.tflite"
    lite.write_bytes(b"\x1c\0\0\0TFL3" + b"\0" * 20)
    for path in (saved, lite):
        refused(path, tmp_path / "work", r"needs tf2onnx .*pip install 'wavefit\[tensorflow\]'")


def test_export_of_an_onnx_file_asks_what_is_wanted(onnx_file, tmp_path):
    with pytest.raises(InputError, match="add --dynamic-batch"):
        export_model(str(onnx_file), Options(), tmp_path / "o.onnx", False, silent)


def test_export_refuses_other_files(tmp_path):
    path = tmp_path / "m.engine"
    path.write_bytes(b"ptrt")
    with pytest.raises(InputError, match="TensorRT engine"):
        export_model(str(path), Options(), tmp_path / "o.onnx", True, silent)


# ---- The command ----------------------------------------------------------------------------------------------------


def command(*arguments, cwd):
    code = "import sys; from wavefit.cli import main; sys.exit(main())"
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("absent.onnx", "--dynamic-batch", "-o", "o.onnx"), "does not exist"),
        (("m.onnx", "--dynamic-batch", "-o", "o.onnx"), "has a dynamic batch already"),
        (("m.onnx", "-o", "o.onnx"), "add --dynamic-batch"),
        (("m.onnx", "--dynamic-batch", "-o", "o.bin"), "is not named .onnx"),
        (("net:make", "--input", "x", "-o", "o.onnx"), "cannot be read"),
        (("net:make", "--input", "x:1", "--dynamic", "x", "-o", "o.onnx"), "NAME:AXIS"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(onnx_file, arguments, says):
    folder = onnx_file.parent
    done = command("export", *arguments, cwd=folder)
    assert done.returncode == 2
    assert done.stdout == ""
    assert says in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert [path.name for path in folder.iterdir()] == ["m.onnx"]


def test_the_command_reopens_and_gives_its_proof_as_json(tmp_path):
    import json

    pytest.importorskip("onnxruntime")
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 4])],
    )
    path = tmp_path / "m.onnx"
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    done = command("export", path, "--dynamic-batch", "-o", "out.onnx", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    assert [proof["batch"] for proof in made["proofs"]] == [1, 2, 3, 5]
    assert made["proofs"][3]["outputs"][0]["rel_l2"] == 0.0
    assert Path(made["path"]) == tmp_path / "out.onnx"
    shown = command("export", path, "--dynamic-batch", "-o", "out.onnx", cwd=tmp_path)
    assert "batch 5: x 5x4 -> y 5x4: relative L2 0.0e+00" in shown.stdout
