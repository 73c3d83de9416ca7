"""Nodes of an exported ONNX file and of the program beside it, and an fp16 variant of both."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest

from wavefit.errors import InputError
from wavefit.model.source import resolve
from wavefit.precision import graph, torch_names
from wavefit.schema import Device, KeptNode, Model, Request, Scaled, TensorSpec, Unsupported, Variant

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")
pytest.importorskip("onnx_ir")

from fakes.torch_nets import rel_l2  # noqa: E402

from wavefit.routes import _torch, _torch_audit, _torch_build, _torch_program, torch_gpu  # noqa: E402

pytestmark = pytest.mark.torch

FACTORY = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3, bias=False)
        self.norm = torch.nn.BatchNorm2d(8)
        self.up = torch.nn.Linear(8, 16)
        self.drop = torch.nn.Dropout(0.1)
        self.down = torch.nn.Linear(16, 5)

    def forward(self, image):
        x = torch.relu(self.norm(self.conv(image))).flatten(2).transpose(1, 2)
        large = self.up(x) * 1e6
        return self.down(self.drop(torch.nn.functional.gelu(large * 1e-6))).mean(1)

def make():
    torch.manual_seed(1)
    return Net().eval()
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Model:
    folder = tmp_path_factory.mktemp("names")
    (folder / "names_net.py").write_text(FACTORY)
    sys.path.insert(0, str(folder))
    try:
        spec = TensorSpec(name="image", dtype="float32", shape=(1, 3, 8, 8))
        return resolve("names_net:make", (spec,), folder, lambda text: None)
    finally:
        sys.path.remove(str(folder))
        sys.modules.pop("names_net", None)


def by_type(model: Model, kind: str) -> list[str]:
    found = graph.nodes(graph.load(Path(model.path)))
    return [name for name, node in found.items() if node.op_type == kind]


def test_a_node_fused_of_two_is_named_by_both(model):
    (conv,) = by_type(model, "Conv")
    assert torch_names.to_program(model, [conv]) == ("conv2d", "batch_norm")


def test_the_parts_of_a_decomposed_node_are_named_by_it(model):
    assert torch_names.to_program(model, by_type(model, "Erf")) == ("gelu",)
    first = by_type(model, "MatMul")[0]  # the matrix product of a Linear
    assert torch_names.to_program(model, [first]) == ("linear",)


def test_every_node_is_known_and_all_of_them_name_every_operator(model):
    names = list(graph.nodes(graph.load(Path(model.path))))
    program = torch.export.load(model.exported_program)
    floats = {
        node.name
        for node in program.graph.nodes
        if node.op == "call_function" and isinstance(node.meta["val"], torch.Tensor)
    }
    assert floats <= set(torch_names.to_program(model, names))


def test_a_file_that_does_not_tell_is_refused(model):
    with pytest.raises(
        InputError, match="does not tell which node of the PyTorch program 'nothing' came from"
    ):
        torch_names.to_program(model, ["nothing"])


def variant_of(model: Model, **changes: object) -> Variant:
    file = msgspec.structs.replace(model, precision="fp16", sha256="other", exported_program=None)
    base = Variant(key="", name="fp16", precision="fp16", model=file, target="any")
    return msgspec.structs.replace(base, **changes)


def test_a_variant_runs_in_pytorch_with_its_islands(model, monkeypatch):
    large, _ = by_type(model, "Mul")[:2]
    kept = KeptNode(node=large, op="Mul", precision="fp32", reason="its output passes 65504")
    found = torch_names.for_torch(model, variant_of(model, kept=(kept,)))
    assert isinstance(found, Model)
    assert (found.program_fp32, found.precision, found.sha256) == (("mul",), "fp16", "other")

    monkeypatch.setattr(_torch_build, "installed", lambda: _torch_build.Build("2.9.1+rocm6.4", "6.4", None))
    gpu = Device(id="gpu0", kind="gpu", vendor="amd", gfx="gfx1103")
    plans = torch_gpu.plans([gpu], found, Request(precisions=("fp32", "fp16", "bf16")))
    assert {plan.precision for plan in plans if not isinstance(plan, Unsupported)} == {"fp16"}

    image = np.random.default_rng(0).standard_normal((4, 3, 8, 8), dtype=np.float32)
    assert not np.isfinite(answer(found, (), image)).all()
    both = torch_names.to_program(model, by_type(model, "Mul")[:2])
    want = answer(found, None, image)
    assert rel_l2(answer(found, both, image), want) < 4 * 2.0**-11


def answer(model: Model, keep: tuple[str, ...] | None, image: np.ndarray) -> np.ndarray:
    form = _torch_program.Form() if keep is None else _torch_program.Form("fp16", keep=keep)
    program = _torch_program.load(Path(model.exported_program), model, torch.device("cpu"), form)
    _torch_audit.check_precision(program, _torch_audit.trace(program, [image.shape]))
    (output,) = _torch.TorchSession(model, program, "eager").run({"image": image}).values()
    return output


def test_a_scaled_stretch_stays_whole(model):
    stretch = Scaled(nodes=tuple(by_type(model, "Erf")), factor=0.5, reason="large")
    found = torch_names.for_torch(model, variant_of(model, scaled=(stretch,)))
    assert isinstance(found, Model)
    assert found.program_fp32 == ("gelu",)


def test_what_pytorch_cannot_follow_is_a_refusal(model):
    kept = KeptNode(node="added", op="Mul", precision="fp32", reason="new")
    refused = torch_names.for_torch(model, variant_of(model, kept=(kept,)))
    assert isinstance(refused, Unsupported)
    assert "'added'" in refused.reason
    file = msgspec.structs.replace(model, exported_program=None)
    refused = torch_names.for_torch(file, variant_of(file))
    assert isinstance(refused, Unsupported)
    assert "came as an ONNX file" in refused.reason
