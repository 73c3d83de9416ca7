"""The runner of the PyTorch routes against float64 runs of the module that was exported."""

from __future__ import annotations

import numpy as np
import pytest

from wavefit.errors import RouteError
from wavefit.schema import Model

torch = pytest.importorskip("torch")

from fakes.torch_nets import Form, exact, export, inputs, load, rel_l2, seeded  # noqa: E402

from wavefit.routes import _torch, _torch_audit, _torch_env  # noqa: E402

pytestmark = pytest.mark.torch

DEVICES = ["cpu", *(["cuda:0"] if torch.cuda.is_available() else [])]


@pytest.fixture(scope="module")
def net():
    return seeded()


@pytest.fixture(scope="module")
def model(net, tmp_path_factory) -> Model:
    return export(net, tmp_path_factory.mktemp("torch") / "net.pt2")


@pytest.fixture(autouse=True)
def flags():
    _torch_env.set_flags()


def test_the_buffers_of_old_shapes_are_dropped_and_made_again(net, model):
    session = _torch.TorchSession(model, load(model, "cpu"), "eager")
    for batch in (*range(1, _torch._MOST_SHAPES + 6), 1):
        given = inputs(batch, batch)
        assert rel_l2(session.run(given)["scores"], exact(net, given)) < 1e-6
    assert len(session._runners) == _torch._MOST_SHAPES


def test_miopen_searches_without_tuning(monkeypatch):
    """PyTorch passes this flag to MIOpen as ``exhaustiveSearch``: minutes for each convolution."""
    assert torch.backends.cudnn.benchmark is True
    monkeypatch.setattr(torch.version, "hip", "7.2.53211")
    _torch_env.set_flags()
    assert torch.backends.cudnn.benchmark is False


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("mode", ["eager", "graph", "compile"])
def test_every_mode_is_right_for_every_batch_and_back_again(net, model, device, mode):
    session = _torch.TorchSession(model, load(model, device), mode)
    for seed, batch in enumerate((2, 1, 5, 2)):
        given = inputs(batch, seed)
        have, want = session.run(given), exact(net, given)
        assert list(have) == ["scores", "order"]
        assert rel_l2(have["scores"], want) < 1e-6
        expected_order = np.arange(10) + want.argmax(1, keepdims=True)
        np.testing.assert_array_equal(have["order"], expected_order)
        assert (have["scores"].dtype, have["order"].dtype) == (np.float32, np.int64)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("precision", "eps"), [("fp16", 2.0**-11), ("bf16", 2.0**-8)])
@pytest.mark.parametrize("channels_last", [False, True])
def test_half_precision_errs_as_half_precision_does(net, model, device, precision, eps, channels_last):
    """More than fp32's error (so half really ran), less than a few units of the type's own rounding."""
    program = load(model, device, Form(precision, channels_last))
    _torch_audit.check_precision(program, _torch_audit.trace(program, [(4, 3, 8, 8), (4, 10)]))
    given = inputs(4)
    error = rel_l2(
        _torch.TorchSession(model, program, "eager").run(given)["scores"].astype(np.float64),
        exact(net, given),
    )
    assert eps / 50 < error < 4 * eps


@pytest.mark.parametrize("device", DEVICES)
def test_placement_counts_ops_by_device(model, device):
    session = _torch.TorchSession(model, load(model, device), "eager")
    assert session.placement() is None  # nothing has run
    session.run(inputs(2))
    placement = session.placement()
    here = _torch.provider_name(torch.device(device).type)
    # relu, mean, arange, argmax and friends; convolution, batch norm and matrix product at the least
    assert placement.on(here) >= 8
    assert placement.source == "torch"
    assert sum(share.nodes for share in placement.providers) == placement.on(here)
    assert bool(placement.cpu_nodes) == (device == "cpu")


def test_outputs_belong_to_the_caller(model):
    session = _torch.TorchSession(model, load(model), "eager")
    first = session.run(inputs(2, seed=1))
    kept = first["scores"].copy()
    session.run(inputs(2, seed=2))
    np.testing.assert_array_equal(first["scores"], kept)


def test_inputs_larger_than_a_piece_and_not_contiguous_arrive_whole():
    wide = np.arange(3 * 700_001, dtype=np.float32).reshape(700_001, 3).T
    runner = _torch.Runner(lambda x: (x * 2,), torch.device("cpu"), [wide])
    np.testing.assert_array_equal(runner.run([wide])[0], wide * 2)
    np.testing.assert_array_equal(runner.run([wide + 1])[0], (wide + 1) * 2)


@pytest.mark.skipif(len(DEVICES) == 1, reason="needs a GPU")
def test_no_memory_on_the_gpu_is_a_route_error(model):
    program = load(model, "cuda:0")._replace(call=lambda *_: (torch.empty(1 << 42, device="cuda:0"),))
    with pytest.raises(RouteError, match=r"^out of memory: PyTorch failed"):
        _torch.TorchSession(model, program, "eager").run(inputs(2))
