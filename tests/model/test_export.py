"""Exports of small modules: proven, fallen back, reopened or refused, each with its reason."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from wavefit.errors import InputError
from wavefit.model.export_plan import Options, make_plan
from wavefit.model.inputs import parse_inputs
from wavefit.model.load import load
from wavefit.model.prove import BOUND
from wavefit.model.source import export_model, resolve
from wavefit.model.torch_source import from_factory

torch = pytest.importorskip("torch")
ort = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")
pytestmark = pytest.mark.torch

HERE = Path(__file__).parent
IMAGE = ("x:1x3x8x8",)


@pytest.fixture(autouse=True)
def _nets(monkeypatch):
    monkeypatch.syspath_prepend(HERE)


def export(name, folder, inputs=IMAGE, **options):
    said = []
    options = Options(inputs=parse_inputs(inputs), **options)
    made = export_model(f"export_nets:{name}", options, folder / "out.onnx", False, said.append)
    assert sorted(path.name for path in folder.iterdir()) == ["out.onnx"]
    return made


def refused(name, folder, says, inputs=IMAGE, **options):
    options = Options(inputs=parse_inputs(inputs), **options)
    with pytest.raises(InputError, match=says) as caught:
        export_model(f"export_nets:{name}", options, folder / "out.onnx", False, lambda text: None)
    assert not list(folder.iterdir()), "something was written"
    assert "\n" not in str(caught.value)
    return str(caught.value)


def answers(path, *inputs):
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [entry.name for entry in session.get_inputs()]
    return session.run(None, dict(zip(names, inputs, strict=True)))


def test_a_plain_module_is_proven_at_batches_that_no_exporter_saw(tmp_path):
    made = export("Base", tmp_path)
    assert made.exporter == "dynamo"
    assert [proof.batch for proof in made.proofs] == [1, 2, 3, 5]
    assert [proof.outputs[0].shape for proof in made.proofs] == [(1, 5), (2, 5), (3, 5), (5, 5)]
    assert all(proof.passed and proof.outputs[0].rel_l2 <= BOUND for proof in made.proofs)
    assert "training mode" in made.notes[0]
    found = load(tmp_path / "out.onnx")
    assert (found.inputs[0].name, found.inputs[0].shape) == ("x", ("batch", 3, 8, 8))
    assert (found.outputs[0].name, found.outputs[0].shape) == ("output", ("batch", 5))
    assert found.opset == 18
    assert str(HERE).encode() not in (tmp_path / "out.onnx").read_bytes(), "a path of this machine"

    import export_nets

    x = np.random.default_rng(1).standard_normal((4, 3, 8, 8))
    with torch.no_grad():
        want = export_nets.Base().eval().double()(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(answers(tmp_path / "out.onnx", x.astype(np.float32))[0], want, atol=1e-5)


def test_a_batch_frozen_by_a_python_int_is_reopened_and_its_guard_named(tmp_path):
    made = export("FrozenInt", tmp_path)
    assert made.exporter == "torchscript, reopened"
    notes = " ".join(made.notes)
    assert "specialized it to be a constant (2)" in notes
    assert 'Reshape "/Reshape": shape [2, -1] became [0, -1]' in notes
    assert load(tmp_path / "out.onnx").batch == "batch"


def test_attention_with_a_frozen_batch_is_reopened(tmp_path):
    made = export("Heads", tmp_path, inputs=("x:1x5x16",))
    assert made.exporter == "torchscript, reopened"
    assert all(proof.passed for proof in made.proofs)


def test_a_module_that_runs_at_one_batch_only_names_its_line(tmp_path):
    message = refused("FrozenConstant", tmp_path, "itself does not run on x of 1x3x8x8")
    assert "export_nets.py:" in message


def test_a_choice_by_values_is_refused_with_its_line(tmp_path):
    message = refused("Branch", tmp_path, "decides by its input's values")
    assert "export_nets.py:" in message
    assert "torch.where" in message


@pytest.mark.parametrize("net", ["Noisy", "Counting"])
def test_a_module_that_answers_differently_when_run_again_is_refused(tmp_path, net):
    with pytest.raises(InputError, match="answers the same inputs differently when it is run again"):
        export(net, tmp_path)


def test_where_both_fail_the_guard_and_the_node_are_named(tmp_path):
    message = refused("Ranks", tmp_path, "neither exporter")
    assert "specialized it to be a constant" in message
    assert 'node Add "/Add"' in message


def test_an_operator_that_onnx_has_not(tmp_path):
    message = refused("Bessel", tmp_path, "neither exporter")
    assert message.count("bessel_j0") == 2


def test_dictionaries_indices_and_two_inputs_in_any_order(tmp_path):
    made = export("Words", tmp_path, inputs=("scale:1x1", "ids:1x7:int64"))
    assert [spec.name for spec in made.inputs] == ["ids", "scale"]
    assert [spec.name for spec in made.outputs] == ["logits", "total"]
    import export_nets

    ids, scale = np.full((3, 7), 49), np.full((3, 1), 2, np.float32)
    with torch.no_grad():
        want = export_nets.Words().eval()(torch.from_numpy(ids), torch.from_numpy(scale))
    found = answers(tmp_path / "out.onnx", ids, scale)
    np.testing.assert_allclose(found[0], want["logits"], atol=1e-6)
    np.testing.assert_allclose(found[1], want["total"], atol=1e-6)


def test_another_height_and_width(tmp_path):
    made = export(
        "FullyConvolutional", tmp_path, ("x:1x3x32x32",), dynamic=(("x", 2), ("x", 3)), outputs=("logits",)
    )
    assert made.proofs[-1].shapes == {"x": (3, 3, 64, 64)}
    assert all(proof.passed for proof in made.proofs)
    assert load(tmp_path / "out.onnx").inputs[0].shape == ("batch", 3, "x_height", "x_width")
    x = np.random.default_rng(0).standard_normal((2, 3, 17, 41)).astype(np.float32)
    assert answers(tmp_path / "out.onnx", x)[0].shape == (2, 4)


def test_a_size_that_the_module_fixes_cannot_be_dynamic(tmp_path):
    refused("Base", tmp_path, "itself does not run on x of 3x3x40x8", dynamic=(("x", 2),))


def test_an_older_opset_is_written_by_torchscript_and_said(tmp_path):
    made = export("Base", tmp_path, opset=13)
    assert made.opset == 13
    assert made.exporter in ("dynamo", "torchscript")
    if made.exporter == "torchscript":
        assert any("the dynamo exporter did not do it" in note for note in made.notes)


def test_the_random_inputs_repeat_with_their_seed():
    def inputs(seed):
        options = Options(inputs=parse_inputs(IMAGE), seed=seed)
        plan = make_plan(from_factory("export_nets:Base", options.inputs), options)
        return np.concatenate([case.inputs["x"] for case in plan.cases])

    assert np.array_equal(inputs(3), inputs(3))
    assert not np.array_equal(inputs(3), inputs(4))


def test_weights_too_large_for_one_file_lie_beside_it(tmp_path, monkeypatch):
    monkeypatch.setattr("wavefit.model.torch_export.EXTERNAL_BYTES", 100)
    options = Options(inputs=parse_inputs(IMAGE))
    export_model("export_nets:Base", options, tmp_path / "out.onnx", False, lambda text: None)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.onnx", "out.onnx.data"]
    assert load(tmp_path / "out.onnx").external == ("out.onnx.data",)
    assert answers(tmp_path / "out.onnx", np.zeros((3, 3, 8, 8), np.float32))[0].shape == (3, 5)


@pytest.mark.slow
def test_resnet18_is_proven(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(HERE.parents[1] / "examples" / "resnet50")
    made = export_model(
        "resnet50:resnet18",
        Options(inputs=parse_inputs(["x:1x3x32x32"])),
        tmp_path / "r.onnx",
        False,
        lambda text: None,
    )
    assert [proof.batch for proof in made.proofs] == [1, 2, 3, 5]
    assert all(proof.passed for proof in made.proofs)
    found = load(tmp_path / "r.onnx")
    assert found.parameters == pytest.approx(11_689_512, abs=10_000)  # torchvision's resnet18


# ---- Bad options ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"outputs": ("a", "b")}, "has 1 outputs, 2 names"),
        ({"outputs": ("x",)}, "a name is taken"),
        ({"opset": 3}, "--opset 3"),
        ({"dynamic": (("z", 2),)}, "no input 'z'"),
        ({"dynamic": (("x", 4),)}, "has axes 1 to 3"),
        ({"dynamic": (("x", 0),)}, "has axes 1 to 3"),
        ({"inputs": ()}, "--input x:"),
        ({"inputs": ("x:1x3xHxW",)}, "needs a size for H"),
        ({"inputs": ("x:1x3x8x9",)}, "itself does not run on x of 1x3x8x9"),
        ({"inputs": ("x:1x3x8x8:int64",)}, "itself does not run"),
        ({"inputs": ("x:1x3x8x8", "y:1")}, "does not take the inputs x, y"),
        ({"inputs": ("x:scalar",)}, "its inputs are scalars"),
    ],
)
def test_bad_options(tmp_path, options, says):
    inputs = options.pop("inputs", IMAGE)
    refused("Base", tmp_path, says, inputs=inputs, **options)


# ---- Exported programs ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """resolve() of a factory: model.onnx and model.pt2."""
    sys.path.insert(0, str(HERE))
    folder = tmp_path_factory.mktemp("resolved")
    model = resolve("export_nets:Base", parse_inputs(IMAGE), folder, lambda text: None)
    sys.path.remove(str(HERE))
    return model


def test_resolve_names_the_source_and_the_program(program):
    folder = Path(program.path).parent
    assert program.source == "export_nets:Base"
    assert program.name == "Base"
    assert program.exported_program == str(folder / "model.pt2")
    assert sorted(path.name for path in folder.iterdir()) == ["model.onnx", "model.pt2"]
    loaded = torch.export.load(program.exported_program).module()
    x = torch.randn(3, 3, 8, 8)
    found = answers(program.path, x.numpy())[0]
    np.testing.assert_allclose(found, loaded(x).detach().numpy(), atol=1e-5)


def test_an_exported_program_is_exported_and_resolved(program, tmp_path):
    made = export_model(program.exported_program, Options(), tmp_path / "out.onnx", False, lambda text: None)
    assert made.exporter == "dynamo"
    assert [proof.batch for proof in made.proofs] == [1, 2, 3, 5]
    assert load(tmp_path / "out.onnx").inputs[0].shape == ("batch", 3, 8, 8)
    again = resolve(program.exported_program, (), tmp_path, lambda text: None)
    assert again.batch == "batch"
    assert again.source == program.exported_program


def test_a_program_with_a_fixed_batch_is_said_to_be_so(tmp_path):
    import export_nets

    module = export_nets.Base().eval()
    path = tmp_path / "fixed.pt2"
    torch.export.save(torch.export.export(module, (torch.randn(4, 3, 8, 8),)), path)
    made = export_model(str(path), Options(), tmp_path / "out.onnx", False, lambda text: None)
    assert [proof.batch for proof in made.proofs] == [4]
    assert made.notes == ("the program has a fixed batch of 4: proven at that alone",)


def test_a_program_that_excludes_a_batch_of_one_is_proven_from_two(tmp_path):
    import export_nets

    free = ({0: torch.export.Dim.AUTO},)  # torch.export then takes 2 for the least size
    program = torch.export.export(export_nets.Base().eval(), (torch.randn(4, 3, 8, 8),), dynamic_shapes=free)
    torch.export.save(program, tmp_path / "auto.pt2")
    made = export_model(
        str(tmp_path / "auto.pt2"), Options(), tmp_path / "out.onnx", False, lambda text: None
    )
    assert [proof.batch for proof in made.proofs] == [2, 3, 5]
    assert made.notes == ("the program takes batches from 2: proven from there",)
    assert load(tmp_path / "out.onnx").batch == "batch"


def test_dynamic_sizes_of_a_program_are_its_own(program, tmp_path):
    with pytest.raises(InputError, match="were chosen when it was made"):
        export_model(
            program.exported_program,
            Options(dynamic=(("x", 2),)),
            tmp_path / "o.onnx",
            False,
            lambda text: None,
        )


def test_the_record_reads_back(program):
    from wavefit.model.prove import Proof
    from wavefit.schema import decode, encode

    made = Proof(batch=2, shapes={"x": (2, 3)}, failure="no")
    assert decode(encode(made), Proof) == made
    assert json.loads(encode(made))["batch"] == 2
