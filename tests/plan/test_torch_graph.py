"""Operators that PyTorch's ONNX exporter took apart, against what PyTorch runs: one buffer each."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


class Attends(torch.nn.Module):  # type: ignore[name-defined,misc]
    def __init__(self) -> None:
        super().__init__()
        self.mix, self.out = torch.nn.Linear(16, 48), torch.nn.Linear(16, 16)

    def forward(self, x):  # type: ignore[no-untyped-def]
        parts = self.mix(x).chunk(3, -1)
        q, k, v = (part.unflatten(2, (2, -1)).transpose(1, 2) for part in parts)
        mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        return torch.nn.functional.gelu(self.out(mixed.transpose(1, 2).flatten(2)))


def test_attention_linear_and_gelu_are_one_step_each(tmp_path: Path) -> None:
    from wavefit.model.load import load
    from wavefit.model.shapes import bind
    from wavefit.plan.torch_graph import as_torch
    from wavefit.plan.torch_memory import Form, Program
    from wavefit.plan.trace import trace

    x = torch.randn(2, 5, 16)
    path = tmp_path / "attends.onnx"
    torch.onnx.export(Attends().eval(), (x,), dynamo=True).save(str(path))
    model = load(path)
    found = trace(model, bind(model, 2))
    kinds = [step.op for step in as_torch(found) if step.op not in ("Reshape", "Transpose", "Split")]
    assert kinds in (["MatMul", "Attention", "MatMul", "Erf"], ["MatMul", "Attention", "MatMul", "Gelu"])
    program = Program(found, Form())
    buffers = {name for step in program.steps for name in step.outputs if program.base[name] == name}
    assert len(buffers) == 4  # the projection's parts are views of it, and attention's result is not copied
