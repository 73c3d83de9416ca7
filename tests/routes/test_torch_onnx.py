"""The exported program beside an ONNX file answers as ONNX Runtime answers for that file."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from wavefit.model.source import resolve
from wavefit.routes import ort_cpu
from wavefit.schema import Device, Plan, TensorSpec

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")

from wavefit.routes import _torch, _torch_program  # noqa: E402

pytestmark = pytest.mark.torch

FACTORY = """
import torch

class Two(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.MaxPool2d(2)
        )
        self.head = torch.nn.Linear(8, 5)

    def forward(self, left, right):
        return self.head(self.body(left).mean((2, 3)) - self.body(right).mean((2, 3)))

def make():
    torch.manual_seed(1)
    return Two().eval()
"""


def test_the_program_beside_the_onnx_file_answers_as_it_does(tmp_path, monkeypatch):
    (tmp_path / "two_images.py").write_text(FACTORY)
    monkeypatch.syspath_prepend(str(tmp_path))
    inputs = tuple(TensorSpec(name=name, dtype="float32", shape=(1, 3, 16, 16)) for name in ("left", "right"))
    model = resolve("two_images:make", inputs, tmp_path, lambda text: None)
    sys.modules.pop("two_images")
    assert model.exported_program is not None

    random = np.random.default_rng(0)
    given = {name: random.standard_normal((3, 3, 16, 16), dtype=np.float32) for name in ("left", "right")}
    shapes = {name: array.shape for name, array in given.items()}
    cpu = Device(id="cpu", kind="cpu")
    onnx = ort_cpu.open(Plan(route="ort_cpu", device="cpu", batch=3, shapes=shapes), model, cpu, tmp_path)
    program = _torch_program.load(
        Path(model.exported_program), model, torch.device("cpu"), _torch_program.Form()
    )
    have, want = _torch.TorchSession(model, program, "eager").run(given), onnx.run(given)
    assert list(have) == list(want)
    for name, array in want.items():
        assert have[name].dtype == array.dtype
        np.testing.assert_allclose(have[name], array, rtol=1e-4, atol=1e-6)
        assert np.ptp(array) > 0.01  # equal zeros would prove nothing
