"""Bad input as it is typed: one sentence that says what is wrong, exit code 2, and nothing written anywhere."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from fakes import models
from fakes.shell import QUICK, Shell
from onnx import helper, numpy_helper

Change = Callable[[Path], None]
Words = list[str]


# ---- Models ------------------------------------------------------------------------------------------------


def proto(change: Callable[[onnx.ModelProto], object]) -> Change:
    """``bad.onnx``: a good model, changed."""

    def build(folder: Path) -> None:
        model = models.mlp()
        change(model)
        (folder / "bad.onnx").write_bytes(model.SerializeToString())

    return build


def raw(name: str, content: bytes) -> Change:
    return lambda folder: (folder / name).write_bytes(content) and None


def outside(location: str) -> Change:
    """External data that lie somewhere else."""

    def build(folder: Path) -> None:
        models.save_external(models.mlp(), folder / "bad.onnx")
        model = onnx.load(str(folder / "bad.onnx"), load_external_data=False)
        for tensor in model.graph.initializer:
            next(entry for entry in tensor.external_data if entry.key == "location").value = location
        (folder / "bad.onnx").write_bytes(model.SerializeToString())

    return build


def linked(folder: Path) -> None:
    models.save_external(models.mlp(), folder / "bad.onnx")
    (folder / "weights.data").rename(folder / "real.data")
    (folder / "weights.data").symlink_to("real.data")


def truncated(folder: Path) -> None:
    (folder / "bad.onnx").write_bytes((folder / "net.onnx").read_bytes()[:-300])


def bomb(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].dims[:] = [1 << 40, 1 << 20]


def nan(model: onnx.ModelProto) -> None:
    weight = model.graph.initializer[0]
    array = numpy_helper.to_array(weight).copy()
    array[0, 0] = np.nan
    weight.CopyFrom(numpy_helper.from_array(array, weight.name))


def zero(model: onnx.ModelProto) -> None:
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 0


def contradiction(model: onnx.ModelProto) -> None:
    """A Reshape that no input fits; the ONNX checker does not see it, only running does."""
    model.graph.initializer.append(models.weight("shape", np.array([3, 5])))
    model.graph.node.append(helper.make_node("Reshape", ["y", "shape"], ["z"]))
    model.graph.output[0].CopyFrom(models.value("z", [3, 5]))


BAD_MODELS: list[tuple[str, str, Change, str]] = [
    ("missing", "none.onnx", lambda folder: None, "none.onnx does not exist"),
    ("directory", "folder", lambda folder: (folder / "folder").mkdir(), "folder is a directory"),
    ("empty", "bad.onnx", raw("bad.onnx", b""), "bad.onnx is empty"),
    ("truncated", "bad.onnx", truncated, "no ONNX model, or only a part of one"),
    ("text", "bad.onnx", raw("bad.onnx", b"these are words, no model\n" * 9), "bad.onnx is no ONNX model"),
    ("pickle", "bad.pth", raw("bad.pth", pickle.dumps({"a": 1})), "pickle"),
    ("engine", "bad.engine", raw("bad.engine", b"ftrt\0\0\0\0" * 9), "TensorRT"),
    ("data outside", "bad.onnx", outside("../weights.data"), "../weights.data"),
    ("data absolute", "bad.onnx", outside("/etc/passwd"), "/etc/passwd"),
    ("data missing", "bad.onnx", outside("gone.data"), "gone.data"),
    ("data linked", "bad.onnx", linked, "weights.data"),
    ("bomb", "bad.onnx", proto(bomb), "w0"),
    ("NaN", "bad.onnx", proto(nan), "NaN"),
    ("zero size", "bad.onnx", proto(zero), "size 0"),
    ("operator", "bad.onnx", proto(lambda m: setattr(m.graph.node[0], "op_type", "Frob")), "'Frob'"),
    ("opset", "bad.onnx", proto(lambda m: setattr(m.opset_import[0], "version", 999)), "opset 999"),
    ("IR", "bad.onnx", proto(lambda m: setattr(m, "ir_version", 99)), "IR version 99"),
    ("no outputs", "bad.onnx", proto(lambda m: m.graph.ClearField("output")), "no outputs"),
    ("no inputs", "bad.onnx", proto(lambda m: m.graph.ClearField("input")), "no inputs"),
    ("not a factory", "module:", lambda folder: None, "module:"),
]


@pytest.mark.parametrize(
    ("model", "build", "says"), [c[1:] for c in BAD_MODELS], ids=[c[0] for c in BAD_MODELS]
)
def test_models(shell: Shell, model: str, build: Change, says: str) -> None:
    build(shell.folder)
    shell.refuses("inspect", model, says=says)


@pytest.mark.parametrize(
    ("model", "build", "says"),
    [
        ("none.onnx", lambda folder: None, "none.onnx does not exist"),
        ("bad.onnx", truncated, "only a part of one"),
        ("bad.onnx", outside("../weights.data"), "../weights.data"),
        ("bad.onnx", proto(contradiction), "the model cannot run on this data"),
    ],
)
def test_optimize_leaves_nothing_of_a_bad_model(shell: Shell, model: str, build: Change, says: str) -> None:
    build(shell.folder)
    shell.refuses("optimize", model, *QUICK, "-o", "new/deep/out.wavefit", says=says)


# ---- Options -----------------------------------------------------------------------------------------------

BAD_OPTIONS: list[tuple[Words, str]] = [
    (["--batch", "0"], "--batch '0'"),
    (["--batch", "-1"], "--batch '-1'"),
    (["--batch", "a"], "--batch 'a'"),
    (["--batch", ","], "--batch ','"),
    (["--batch", "2147483648"], "from 1 to 2147483647"),
    (["--batch", "9" * 5000], "from 1 to 2147483647"),
    (["--precision", "auto,fp16"], "--precision auto,fp16 names others beside auto; give auto alone"),
    (["--precision", "int8"], "--precision int8 needs data to calibrate on; give --data"),
    (["--precision", "fp8"], "--precision 'fp8' is not known; use fp32, fp16"),
    (["--precision", ""], "--precision '' names none"),
    (["--objective", "foo"], "--objective 'foo' is not known"),
    (["--objective", "cost"], "needs --price-per-hour"),
    (["--objective", "Cost"], "needs --price-per-hour"),
    (["--price-per-hour", "-1"], "--price-per-hour must be a number above 0, not -1"),
    (["--max-drop", "nan"], "--max-drop must be a number of 0 or more, not nan"),
    (["--max-drop", "-0.1"], "--max-drop must be"),
    (["--duration", "0"], "--duration must be a number above 0, not 0"),
    (["--duration", "nan"], "--duration must be a number above 0, not nan"),
    (["--duration", "inf"], "--duration must be a number above 0, not inf"),
    (["--duration", "400"], "2 scenarios of 400 s do not end within the --deadline of 600 s"),
    (["--deadline", "-1"], "--deadline must be"),
    (["--deadline", "1e20"], "--deadline must be at most"),
    (["--budget", "nan"], "--budget must be"),
    (["--budget", "0"], "--budget must be"),
    (["--max-latency", "nan"], "--max-latency must be"),
    (["--min-throughput", "-5"], "--min-throughput must be"),
    (["--max-memory", "inf"], "--max-memory must be"),
    (["--target-qps", "0"], "--target-qps must be"),
    (["--target-latency", "nan"], "--target-latency must be"),
    (["--seed", "-1"], "--seed must be from 0"),
    (["--size", "seq"], "--size 'seq' is not NAME=N"),
    (["--size", "seq=0"], "--size 'seq=0' is not NAME=N"),
    (["--size", "a=1", "--size", "a=2"], "--size a is given twice"),
    (["--device", "gpu9"], "no device 'gpu9' here"),
    (["--scenario", "Foo"], "--scenario 'Foo' is not known"),
    (["--scenario", " , "], "names none"),
    (["--metric", "nosuch"], "--metric 'nosuch' is not known"),
    (["--mean", "a,b"], "--mean 'a,b' is no list of numbers"),
    (["--std", "0,1,1"], "--std must be a number above 0"),
    (["--std", "nan"], "not finite"),
    (["--resize", "foo"], "--resize foo is not known"),
    (["--input", "x"], "--input 'x' cannot be read"),
]


@pytest.mark.parametrize("verb", ["optimize", "bench"])
@pytest.mark.parametrize(("words", "says"), BAD_OPTIONS, ids=[" ".join(c[0])[:30] for c in BAD_OPTIONS])
def test_options(shell: Shell, verb: str, words: Words, says: str) -> None:
    shell.refuses(verb, "net.onnx", *words, says=says)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--route", "tensorrt"], "no route 'tensorrt'; the routes are native_hip"),
        (["--batch", "8,100000000"], "the input at --batch 100000000 would take 71.5 GiB"),
        (["--size", "seq=3"], "no such symbolic dimension (it has: N)"),
        (["--labels", "labels.txt"], "no data goes with them"),
        (["--metric", "top5"], "--metric top5 needs labels"),
        (["--metric", "no_such_module:f"], "no_such_module cannot be imported"),
        (["--metric", "os:nosuch"], "os has no function 'nosuch'"),
        (["--input", "x:1x3"], "leave it out"),
        (["--scenario", "Server", "--target-qps", "1e9"], "more than 1,000,000 queries"),
    ],
)
def test_options_that_only_the_model_tells_to_be_wrong(shell: Shell, words: Words, says: str) -> None:
    shell.refuses("optimize", "net.onnx", "--duration", "0.2", *words, says=says)


# ---- Usage, and a real process -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ["optimize"],
        ["run"],
        ["compare"],
        ["frobnicate"],
        ["optimize", "net.onnx", "--frob"],
        ["optimize", "net.onnx", "--duration", "x"],
        ["run", "b.wavefit", "--top", "0"],
    ],
)
def test_usage(shell: Shell, words: Words) -> None:
    before = shell.files()
    code, out, err = shell.type(*words)
    assert (code, out) == (2, "")
    assert "Error: " in err
    assert "Traceback" not in err
    assert shell.files() == before


@pytest.mark.parametrize(
    "words",
    [
        ["inspect", "none.onnx"],
        ["optimize", "net.onnx", "--max-memory", "nan"],
        ["optimize", "none.onnx", "-o", "a/b"],
        ["bench", "none.onnx"],
        ["devices", "--root", "nowhere"],
    ],
)
def test_in_a_process_of_its_own(shell: Shell, words: Words) -> None:
    before = shell.files()
    command = [sys.executable, "-m", "wavefit", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("wavefit: ")
    assert done.stderr.count("\n") == 1
    assert shell.files() == before
