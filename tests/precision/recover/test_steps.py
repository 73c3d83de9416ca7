"""Steps of a weight's own size."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from wavefit.precision.recover.steps import Steps  # noqa: E402

pytestmark = pytest.mark.torch


def test_one_step_of_adam_changes_every_channel_by_the_same_share():
    layer = torch.nn.Linear(4, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[3.0, 4.0, 0.0, 0.0], [3e-3, 4e-3, 0.0, 0.0]]))
        layer.bias.copy_(torch.tensor([8.0, -0.5]))
    before = {name: weight.clone() for name, weight in layer.state_dict().items()}
    steps = Steps(layer)
    optimizer = torch.optim.Adam(steps.parameters(), lr=0.01)
    sum(weight.sum() for weight in steps.weights().values()).backward()
    optimizer.step()
    steps.write()
    # the root mean square of 3, 4, 0, 0 is 2.5; Adam's first step is the learning rate against the gradient's sign
    torch.testing.assert_close(
        before["weight"] - layer.weight, torch.tensor([[0.025] * 4, [2.5e-5] * 4]), rtol=1e-3, atol=1e-9
    )
    torch.testing.assert_close(before["bias"] - layer.bias, torch.tensor([0.08, 0.005]), rtol=1e-3, atol=1e-9)


def test_a_tensor_of_zeros_can_be_trained_too():
    layer = torch.nn.Linear(2, 2)
    torch.nn.init.zeros_(layer.bias)
    steps = Steps(layer)
    optimizer = torch.optim.Adam(steps.parameters(), lr=0.01)
    sum(weight.sum() for weight in steps.weights().values()).backward()
    optimizer.step()
    steps.write()
    torch.testing.assert_close(layer.bias, torch.full((2,), -1e-4), rtol=1e-3, atol=0)


def test_a_state_is_restored():
    layer = torch.nn.Linear(2, 2)
    steps = Steps(layer)
    saved, first = steps.state(), steps.copy()
    with torch.no_grad():
        for step in steps.parameters():
            step.add_(1.0)
    steps.write()
    assert not torch.equal(layer.weight, first["weight"])
    steps.restore(saved)
    assert torch.equal(layer.weight, first["weight"])
