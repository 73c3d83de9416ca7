"""A small PyTorch net, its record, and its float64 answers. Needs PyTorch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from wavefit.routes import _torch_program
from wavefit.schema import Model, TensorSpec

Form = _torch_program.Form
FP32 = Form()


class Net(torch.nn.Module):
    """A convolution, a normalisation, a tied constant and an integer output: what export makes hard."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 16, 3)
        self.norm = torch.nn.BatchNorm2d(16)
        self.line = torch.nn.Linear(16, 10)
        self.scale = torch.linspace(0.5, 1.5, 10)  # neither a parameter nor a buffer

    def forward(self, image, shift):
        x = torch.relu(self.norm(self.conv(image))).mean((2, 3))
        scores = self.line(x) * self.scale + shift
        return {"scores": scores, "order": torch.arange(10) + scores.argmax(1, keepdim=True)}


def seeded() -> Net:
    torch.manual_seed(0)
    module = Net().eval()
    module.norm.running_mean.uniform_(-0.5, 0.5)
    module.norm.running_var.uniform_(0.5, 2.0)
    return module


def export(module: torch.nn.Module, path: Path) -> Model:
    """Saved with a batch of up to 64."""
    batch = torch.export.Dim("batch", max=64)
    example = (torch.randn(2, 3, 8, 8), torch.randn(2, 10))
    torch.export.save(torch.export.export(module, example, dynamic_shapes=({0: batch}, {0: batch})), path)
    return model_of(path)


def model_of(path: Path) -> Model:
    return Model(
        name="net",
        path=str(path.with_suffix(".onnx")),
        sha256="",
        opset=20,
        ir_version=10,
        inputs=(
            TensorSpec(name="image", dtype="float32", shape=("batch", 3, 8, 8)),
            TensorSpec(name="shift", dtype="float32", shape=("batch", 10)),
        ),
        outputs=(
            TensorSpec(name="scores", dtype="float32", shape=("batch", 10)),
            TensorSpec(name="order", dtype="int64", shape=("batch", 10)),
        ),
        nodes=8,
        nodes_by_type={"Conv": 1},
        parameters=1,
        weight_bytes=4,
        exported_program=str(path),
    )


def load(model: Model, device: str = "cpu", form: Form = FP32):
    return _torch_program.load(Path(model.exported_program), model, torch.device(device), form)


def inputs(batch: int, seed: int = 0) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    return {
        "image": random.standard_normal((batch, 3, 8, 8), dtype=np.float32),
        "shift": random.standard_normal((batch, 10), dtype=np.float32),
    }


def exact(net, given: dict[str, np.ndarray]) -> np.ndarray:
    double = torch.nn.Module.double(Net().eval())
    double.load_state_dict({name: tensor.double() for name, tensor in net.state_dict().items()})
    with torch.no_grad():
        return double(*(torch.from_numpy(array).double() for array in given.values()))["scores"].numpy()


def rel_l2(have: np.ndarray, want: np.ndarray) -> float:
    return float(np.linalg.norm(have - want) / np.linalg.norm(want))
