"""Factories that cannot be used, and .pt2 files that would run code."""

from __future__ import annotations

import json
import os
import pickle
import sys
import zipfile
from pathlib import Path

import pytest

from wavefit.errors import InputError
from wavefit.model import pt2
from wavefit.model.inputs import parse_inputs
from wavefit.model.torch_source import from_factory, from_program, is_factory

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

HERE = Path(__file__).parent
IMAGE = parse_inputs(["x:1x3x8x8"])


# ---- Factories ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "yes"),
    [
        ("resnet50:resnet50", True),
        ("package.module:Class.make", True),
        ("model.onnx", False),
        ("C:\\models\\m.onnx", False),
        ("net:", False),
        (":make", False),
        ("a b:c", False),
        ("net:make()", False),
    ],
)
def test_is_factory(spec, yes):
    assert is_factory(spec) is yes


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("no_such_module:make", "no module 'no_such_module'"),
        ("export_nets.deeper:make", "no module 'export_nets.deeper'"),
        ("export_nets.py:Base", "write export_nets:Base"),
        ("export_nets:Nothing", "has no 'Nothing'; it has Base, "),
        ("export_nets:Base.Nothing", "has no 'Nothing'"),
        ("export_nets:raises", r"raised OSError: no weights here \(at export_nets.py:\d+\)"),
        ("export_nets:number", "returned a int, not a torch.nn.Module"),
        ("export_nets:value", "is a float, not a function"),
    ],
)
def test_bad_factories(monkeypatch, spec, says):
    monkeypatch.syspath_prepend(HERE)
    with pytest.raises(InputError, match=says) as caught:
        from_factory(spec, IMAGE)
    assert "\n" not in str(caught.value)


def test_a_module_that_fails_on_import_names_its_line(tmp_path, monkeypatch):
    (tmp_path / "broken_net.py").write_text("import torch\n\nweights = {}['conv1']\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(
        InputError, match=r"importing broken_net raised KeyError: 'conv1' \(at broken_net.py:3\)"
    ):
        from_factory("broken_net:make", IMAGE)


def test_a_dependency_that_is_missing_is_not_taken_for_the_module(tmp_path, monkeypatch):
    (tmp_path / "needy_net.py").write_text("import package_that_is_not_there\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(InputError, match=r"importing needy_net raised .*'package_that_is_not_there'"):
        from_factory("needy_net:make", IMAGE)


def test_modules_are_found_from_the_current_folder(tmp_path, monkeypatch):
    (tmp_path / "here_net.py").write_text("from torch import nn\n\ndef make():\n    return nn.Linear(4, 2)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    source = from_factory("here_net:make", parse_inputs(["input:1x4"]))
    assert source.name == "make"
    assert not source.module.training


# ---- Exported programs ----------------------------------------------------------------------------------------------


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(4, 3)
        self.scale = torch.arange(3.0)

    def forward(self, x):
        return self.head(x.flatten(1)) * self.scale


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    path = tmp_path_factory.mktemp("pt2") / "net.pt2"
    batch = torch.export.Dim("batch")
    program = torch.export.export(Net(), (torch.randn(2, 2, 2),), dynamic_shapes=({0: batch},))
    torch.export.save(program, path)
    return path


def rewritten(good, path, change=None, add=None, compress=zipfile.ZIP_STORED):
    """The archive with some members changed (by a function of their bytes) or added."""
    with zipfile.ZipFile(good) as old, zipfile.ZipFile(path, "w", compress) as new:
        for info in old.infolist():
            name = info.filename.partition("/")[2]
            data = old.read(info)
            new.writestr(f"net/{name}", (change or {}).get(name, lambda same: same)(data))
        for name, data in (add or {}).items():
            new.writestr(f"net/{name}", data)
    return path


def edited(key, value):
    """Changes every value under a key of a JSON member."""

    def edit(found):
        if isinstance(found, dict):
            return {k: value if k == key else edit(v) for k, v in found.items()}
        return [edit(each) for each in found] if isinstance(found, list) else found

    return lambda data: json.dumps(edit(json.loads(data))).encode()


def tree(kind, context):
    """The structure of arguments, as torch.utils._pytree.treespec_dumps writes it."""
    return json.dumps([1, {"type": kind, "context": context, "children_spec": []}])


class Payload:
    """Unpickled, it makes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (os.mkdir, (str(self.path),))


def refused(path, says):
    with pytest.raises(InputError, match=says) as caught:
        pt2.check(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


def test_what_torch_saves_passes(good, tmp_path):
    pt2.check(good)
    source = from_program(good)
    assert [(spec.name, spec.dtype, spec.shape[1:]) for spec in source.inputs] == [("x", "float32", (2, 2))]
    pt2.check(rewritten(good, tmp_path / "same.pt2"))


def test_the_attack_is_real_and_is_stopped(good, tmp_path):
    """torch.export.load runs a pickle among the sample inputs; wavefit refuses the file before."""
    ran = tmp_path / "ran"
    torch.save(Payload(ran), tmp_path / "payload.pt")
    sample = (tmp_path / "payload.pt").read_bytes()
    path = rewritten(good, tmp_path / "evil.pt2", {"data/sample_inputs/model.pt": lambda data: sample})
    with pytest.raises(InputError, match="sample inputs are pickled objects"):
        from_program(path)
    assert not ran.exists()
    with pytest.raises((RuntimeError, AssertionError, TypeError)):
        torch.export.load(path)
    assert ran.exists(), "PyTorch no longer unpickles these: the check may be relaxed"


def test_a_name_that_is_code_is_stopped(good, tmp_path):
    """torch.export.load pastes the names of inputs into source that it executes."""
    ran = tmp_path / "ran"
    evil = json.dumps(f"x=open({str(ran)!r}, 'w')")

    def rename(data):
        return (
            data.decode().replace('"name": "x"', f'"name": {evil}').replace('"x": {', f"{evil}: {{").encode()
        )

    path = rewritten(good, tmp_path / "evil.pt2", {PROGRAM: rename})
    refused(path, "which is no name")
    assert not ran.exists()
    with pytest.raises(SyntaxError):
        torch.export.load(path).module()
    assert ran.exists(), "PyTorch no longer executes these: the check may be relaxed"


WEIGHTS = "data/weights/model_weights_config.json"
CONSTANTS = "data/constants/model_constants_config.json"
PROGRAM = "models/model.json"
EVIL = "__import__('os').system('true')"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({WEIGHTS: edited("use_pickle", True)}, "weights .* are pickled"),
        ({CONSTANTS: edited("use_pickle", True)}, "constants .* are pickled"),
        ({CONSTANTS: edited("path_name", "opaque_obj_0")}, "constants .* are pickled"),
        ({PROGRAM: edited("target", "torch.os.system")}, "calls 'torch.os.system'"),
        ({PROGRAM: edited("target", "torch.ops.load_library")}, "none of PyTorch's own"),
        ({PROGRAM: edited("target", "torch.ops.aten.from_file.default")}, "from_file"),
        ({PROGRAM: edited("target", "_operator.methodcaller")}, "methodcaller"),
        ({PROGRAM: edited("target", "torch.ops.aten.__class__")}, "__class__"),
        ({PROGRAM: edited("target", "#custom:thing")}, "#custom:thing"),
        ({PROGRAM: edited("expr_str", EVIL)}, "no arithmetic"),
        ({PROGRAM: edited("expr_str", f"Symbol({EVIL!r})")}, "no arithmetic"),
        ({PROGRAM: edited("expr_str", "Symbol('s77').__class__")}, "no arithmetic"),
        ({PROGRAM: edited("expr_str", "lambdify(s77, 's77')")}, "no arithmetic"),
        ({PROGRAM: edited("expr_str", "[x for x in (1,)]")}, "no arithmetic"),
        ({PROGRAM: edited("expr_str", "9**9**9**9")}, "no arithmetic"),
        ({PROGRAM: edited("expr_str", "PowByNatural(9, PowByNatural(9, 9))")}, "no arithmetic"),
        ({PROGRAM: edited("expr_str", "1 << 1000000000000")}, "no arithmetic"),
        ({PROGRAM: edited("expr_str", "((9**64)**64)**64")}, "no arithmetic"),
        ({PROGRAM: edited("target", "torch.ops.aten.save.default")}, "aten.save"),
        ({PROGRAM: edited("guards_code", [f"{EVIL} == 0"])}, "no arithmetic"),
        ({PROGRAM: edited("guards_code", ["1 #\n, '')\n  torch._assert(1"])}, "no expression"),
        ({PROGRAM: edited("guards_code", ["math.pow(9, 9).__class__ == 1"])}, "no arithmetic"),
        ({PROGRAM: edited("guards_code", ["L['x\\'].size()[0]"])}, "no expression"),
        ({PROGRAM: edited("forward_arg_names", [f"x={EVIL}"])}, "which is no name"),
        ({PROGRAM: edited("parameter_name", 'head"+' + EVIL + '+"')}, "which is no name"),
        ({PROGRAM: edited("in_spec", tree("builtins.dict", json.dumps([EVIL])))}, "which is no name"),
        ({PROGRAM: edited("expr_str", "1 +")}, "no expression"),
        ({PROGRAM: edited("expr_str", 7)}, "no expression"),
        ({PROGRAM: edited("in_spec", tree("collections.defaultdict", {}))}, "defaultdict"),
        ({PROGRAM: edited("out_spec", tree("builtins.dict", '[{"__enum__": true}]'))}, "builtins.dict"),
        ({PROGRAM: lambda data: data[:100]}, "damaged"),
        ({WEIGHTS: lambda data: b"[]"}, "damaged"),
        ({PROGRAM: lambda data: b"\xff\xfe"}, "damaged"),
    ],
)
def test_changed_members(good, tmp_path, change, says):
    refused(rewritten(good, tmp_path / "evil.pt2", change), says)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("data/aotinductor/model/model.so", "compiled code"),
        ("data/constants/opaque_obj_0", "a pickled object"),
        ("data/constants/custom_obj_0", "a pickled object"),
        ("data/weights/model.pt", "pickled weights"),
        ("data/constants/model.pt", "pickled weights"),
        ("models/other.json", "no part of an exported program"),
        ("Data/weights/model.pt", "no part of an exported program"),
        ("../outside", "no part of an exported program"),
        ("data/weights/weight_0", "twice"),
    ],
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_added_members(good, tmp_path, name, says):
    path = rewritten(good, tmp_path / "evil.pt2", add={name: pickle.dumps(Payload(tmp_path / "ran"))})
    refused(path, says)
    assert not (tmp_path / "ran").exists()


def test_a_compressed_archive(good, tmp_path):
    refused(rewritten(good, tmp_path / "small.pt2", compress=zipfile.ZIP_DEFLATED), "compressed")


def test_data_around_the_archive(good, tmp_path):
    before, after = tmp_path / "before.pt2", tmp_path / "after.pt2"
    before.write_bytes(b"#!/bin/sh\n" + good.read_bytes())
    with zipfile.ZipFile(rewritten(good, after), "a") as archive:
        archive.comment = b"more"
    refused(before, "other data before or after")
    refused(after, "other data before or after")


def test_two_folders(good, tmp_path):
    path = rewritten(good, tmp_path / "two.pt2")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("other/models/model.json", b"{}")
    refused(path, "one folder at its top")


def test_no_archive(good, tmp_path):
    cut, empty, text = (tmp_path / name for name in ("cut.pt2", "empty.pt2", "text.pt2"))
    cut.write_bytes(good.read_bytes()[:1000])
    empty.write_bytes(b"")
    text.write_text("not a model")
    for path in (cut, empty, text):
        refused(path, "is no exported program")
    refused(tmp_path / "absent.pt2", "does not exist")
    refused(tmp_path, "cannot be read")


def test_a_plain_pickle_under_that_name(tmp_path):
    path = tmp_path / "state.pt2"
    torch.save({"weight": torch.zeros(3)}, path)
    refused(path, "no part of an exported program|no models/model.json")


def test_symbolic_arithmetic_passes(tmp_path):
    """Sizes that torch.export itself writes: products, sums, quotients, minima."""

    class Sizes(torch.nn.Module):
        def forward(self, x):
            return (
                x.reshape(x.shape[0] * x.shape[1], -1)[: x.shape[0] + 3],
                x[:, ::2],
                x[:, : x.shape[1] // 3],
            )

    free = {0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO}
    program = torch.export.export(Sizes(), (torch.randn(3, 16, 4),), dynamic_shapes=(free,))
    torch.export.save(program, tmp_path / "sizes.pt2")
    pt2.check(tmp_path / "sizes.pt2")
    assert from_program(tmp_path / "sizes.pt2").inputs[0].shape[2] == 4


def test_guards_and_nested_inputs_pass(tmp_path):
    """Guards that torch.export itself writes: remainders, minima, roots, sizes inside dictionaries and lists."""

    class Guarded(torch.nn.Module):
        def forward(self, x, extra):
            rows = extra["the-key"][0]
            if x.shape[0] * 2 < 100 and x.shape[1] % 3 == 0:
                x = x + 1
            root = max(1, int(x.shape[0] ** 0.5))
            return {"a b": x.reshape(x.shape[0] * x.shape[1] // 2, -1), "c": rows[:root]}

    auto = torch.export.Dim.AUTO
    program = torch.export.export(
        Guarded(),
        (torch.randn(4, 6, 4), {"the-key": [torch.randn(5, 2)]}),
        dynamic_shapes=({0: auto, 1: auto}, {"the-key": [{0: auto}]}),
    )
    assert program._guards_code
    torch.export.save(program, tmp_path / "guarded.pt2")
    pt2.check(tmp_path / "guarded.pt2")
