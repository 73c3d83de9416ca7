"""The rounding of a lower precision, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from wavefit.errors import InputError

torch = pytest.importorskip("torch")

from wavefit.precision.recover.lowered import Lowered, Way, flat, kept_nodes  # noqa: E402

pytestmark = pytest.mark.torch


class Two(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(6, 5)
        self.last = torch.nn.Linear(5, 3)

    def forward(self, x):
        return self.last(torch.relu(self.first(x)))


@pytest.fixture(scope="module")
def net():
    torch.manual_seed(0)
    return Two().eval()


@pytest.fixture(scope="module")
def program(net):
    return flat(torch.export.export(net, (torch.randn(4, 6),)))


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)


def answer(run: Lowered, rows: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return run(torch.from_numpy(rows))[0].numpy()


def arrays(layer: torch.nn.Linear) -> tuple[np.ndarray, np.ndarray]:
    return layer.weight.detach().numpy(), layer.bias.detach().numpy()


def test_half_rounds_what_is_stored_and_sums_in_fp32(net, program, rows):
    def half(array):
        return array.astype(np.float16).astype(np.float32)

    weight, bias = map(half, arrays(net.first))
    hidden = half(np.maximum(half(half(rows) @ weight.T + bias), 0))
    weight, bias = map(half, arrays(net.last))
    want = half(hidden @ weight.T + bias)
    have = answer(Lowered(program, Way("fp16")), rows)
    # a sum in another order may round to the neighbour: one unit in the last place
    np.testing.assert_allclose(have, want, rtol=2.0**-10, atol=1e-7)
    assert (have == half(have)).all()


def test_int8_rounds_both_factors(net, program, rows):
    """Weights symmetric by row to 127 steps, activations to 255 steps between the ends that were observed and 0."""

    def eight(array):
        low, high = min(0.0, array.min()), max(0.0, array.max())
        scale = (high - low) / 255
        zero = round(-low / scale)
        return (np.clip(np.rint(array / scale) + zero, 0, 255) - zero) * scale

    def by_row(weight):
        scale = np.abs(weight).max(1, keepdims=True) / 127
        return np.rint(weight / scale) * scale

    weight, bias = arrays(net.first)
    whole = np.maximum(rows @ weight.T + bias, 0)  # its range is observed in fp32
    hidden = np.maximum(eight(rows) @ by_row(weight).T + bias, 0)
    step = whole.max() / 255
    last, last_bias = arrays(net.last)
    want = np.clip(np.rint(hidden / step), 0, 255) * step @ by_row(last).T + last_bias
    run = Lowered(program, Way("int8"))
    with run.observing():
        np.testing.assert_allclose(answer(run, rows), whole @ last.T + last_bias, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(answer(run, rows), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_gradients_pass_the_rounding(program, rows, precision):
    """They are those of fp32 to the rounding's own size, not 0 as those of a step."""
    grads = {}
    for way in (Way("fp32"), Way(precision)):
        run = Lowered(program, way)
        with torch.no_grad(), run.observing():
            run(torch.from_numpy(rows))
        weight = program.get_parameter("first.weight").requires_grad_(True)
        weight.grad = None
        run(torch.from_numpy(rows))[0].square().sum().backward()
        grads[way.precision] = weight.grad.clone()
    off = (grads[precision] - grads["fp32"]).norm() / grads["fp32"].norm()
    assert 0 < off < (0.003 if precision == "fp16" else 0.1)


@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_kept_parts_compute_in_fp32(program, rows, precision):
    everything = frozenset(node.name for node in program.graph.nodes)
    want = answer(Lowered(program, Way("fp32")), rows)
    np.testing.assert_array_equal(answer(Lowered(program, Way(precision, everything)), rows), want)


def test_a_part_is_a_submodule_or_a_node(program):
    assert kept_nodes(program, ["last"]) == {"linear_1"}
    assert kept_nodes(program, ["linear", "relu"]) == {"linear", "relu"}
    with pytest.raises(InputError, match=r"--keep middle: the model has no such part; it has first, last"):
        kept_nodes(program, ["middle"])


def test_a_gradient_is_left_where_half_overflows():
    class Loud(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.line = torch.nn.Linear(1, 1, bias=False)

        def forward(self, x):
            return self.line(x) * 1e-4

    module = Loud()
    with torch.no_grad():
        module.line.weight.fill_(1000.0)
    run = Lowered(flat(torch.export.export(module, (torch.ones(2, 1),))), Way("fp16"))
    given = torch.full((2, 1), 100.0)
    assert torch.isinf(run(given)[0]).all()  # 1e5 is past 65504
    weight = run.module.get_parameter("line.weight").detach().requires_grad_(True)
    with run.training({"line.weight": weight}):
        (found,) = run(given)
    torch.testing.assert_close(found, torch.full((2, 1), 6.5504), rtol=1e-3, atol=0)
    found.sum().backward()
    assert float(weight.grad) == pytest.approx(200 * 1e-4, rel=1e-3)
    # how far past half of the largest number, on average over what is stored; the product alone is past it
    assert float(run.excess.detach()) == pytest.approx(2 * (2 * 1e5 / 65504 - 1), rel=0.6)
