"""A program whose named nodes stay in fp32, against float64 and against autocast regions written by hand."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from wavefit.errors import RouteError
from wavefit.schema import Model, TensorSpec

torch = pytest.importorskip("torch")

from fakes.torch_nets import Form, load, model_of, rel_l2  # noqa: E402

from wavefit.routes import _torch, _torch_audit, _torch_keep  # noqa: E402

pytestmark = pytest.mark.torch

SHAPES = [(4, 3, 8, 8)]


class Large(torch.nn.Module):
    """The second convolution's answers pass 65504, half's largest number, and are scaled down behind it."""

    def __init__(self, by_hand: bool = False) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(3, 8, 3)
        self.large = torch.nn.Conv2d(8, 8, 3)
        self.last = torch.nn.Conv2d(8, 4, 3)
        self.line = torch.nn.Linear(16, 10)
        self.by_hand = by_hand

    def forward(self, image):
        x = torch.relu(self.first(image))
        if self.by_hand:
            with torch.autocast("cpu", enabled=False):
                x = self.large(x.float()) * 1e-5
        else:
            x = self.large(x) * 1e-5
        return self.line(self.last(x).flatten(1))


@pytest.fixture(scope="module")
def net():
    torch.manual_seed(0)
    module = Large().eval()
    with torch.no_grad():
        module.large.weight.mul_(1e6)
    return module


@pytest.fixture(scope="module")
def model(net, tmp_path_factory) -> Model:
    path = tmp_path_factory.mktemp("keep") / "net.pt2"
    torch.export.save(torch.export.export(net, (torch.randn(*SHAPES[0]),)), path)
    return msgspec.structs.replace(
        model_of(path),
        inputs=(TensorSpec(name="image", dtype="float32", shape=(4, 3, 8, 8)),),
        outputs=(TensorSpec(name="scores", dtype="float32", shape=(4, 10)),),
    )


@pytest.fixture(scope="module")
def image() -> np.ndarray:
    return np.random.default_rng(0).standard_normal(SHAPES[0], dtype=np.float32)


def answer(model: Model, keep: tuple[str, ...], image: np.ndarray, mode: str = "eager") -> np.ndarray:
    session = _torch.TorchSession(model, load(model, "cpu", Form("fp16", keep=keep)), mode)
    return session.run({"image": image})["scores"]


@pytest.mark.parametrize("mode", ["eager", "compile"])
def test_an_island_errs_no_more_than_autocast_switched_off_by_hand(net, model, image, mode):
    given = torch.from_numpy(image)
    by_hand = Large(by_hand=True).eval()
    by_hand.load_state_dict(net.state_dict())
    with torch.no_grad(), torch.autocast("cpu", torch.float16):
        same = by_hand(given).float().numpy()
    double = Large().double().eval()
    double.load_state_dict(net.state_dict())
    with torch.no_grad():
        want = double(given.double()).numpy()
    assert not np.isfinite(answer(model, (), image)).all()  # plain autocast overflows
    error = rel_l2(answer(model, ("conv2d_1", "mul"), image, mode), want)
    assert 2.0**-11 / 50 < error <= 1.1 * rel_l2(same, want)


def test_what_leaves_an_island_is_half_again(model):
    program = load(model, "cpu", Form("fp16", keep=("conv2d_1", "mul")))
    ops = _torch_audit.trace(program, SHAPES)
    heavy = [(op.dtype, op.kept) for op in ops if op.name in _torch_audit._HEAVY]
    half, whole = (torch.float16, False), (torch.float32, True)
    assert heavy == [half, whole, half, half]
    types = {name: tensor.dtype for name, tensor in program.module.state_dict().items()}
    assert types["large.weight"] == types["large.bias"] == torch.float32
    assert types["first.weight"] == types["last.weight"] == types["line.weight"] == torch.float16


def test_the_audit_takes_kept_nodes_and_no_others(model):
    program = load(model, "cpu", Form("fp16", keep=("conv2d_1",)))
    ops = _torch_audit.trace(program, SHAPES)
    _torch_audit.check_precision(program, ops)
    astray = [op._replace(kept=False) if op.kept else op for op in ops]
    with pytest.raises(RouteError, match=r"1 of 4 convolutions and matrix products run in fp32"):
        _torch_audit.check_precision(program, astray)


def test_a_program_of_kept_nodes_alone_is_no_half_precision(model):
    program = load(model, "cpu", Form("fp16", keep=("conv2d", "conv2d_1", "conv2d_2", "linear")))
    with pytest.raises(RouteError, match=r"0 of 0 .* beside 4 that are to stay"):
        _torch_audit.check_precision(program, _torch_audit.trace(program, SHAPES))


def test_an_empty_list_changes_nothing(model, image):
    plain, empty = load(model, "cpu", Form("bf16")), load(model, "cpu", Form("bf16", keep=()))
    assert str(plain.module.graph) == str(empty.module.graph)
    assert not any(node.target is _torch_keep.in_fp32 for node in empty.module.graph.nodes)


def test_in_fp32_the_list_is_of_no_use(model):
    program = load(model, "cpu", Form("fp32", keep=("conv2d_1",)))
    assert not any(node.target is _torch_keep.in_fp32 for node in program.module.graph.nodes)


def test_a_node_that_the_program_has_not_is_refused(model):
    with pytest.raises(RouteError, match="has no node 'conv2d_9' to keep in fp32"):
        load(model, "cpu", Form("fp16", keep=("conv2d_9",)))


class Folded(torch.nn.Module):
    """A convolution whose normalisation is folded into it, and an operator with two outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3)
        self.norm = torch.nn.BatchNorm2d(4)
        self.line = torch.nn.Linear(18, 10)

    def forward(self, image):
        left, right = self.norm(self.conv(image)).flatten(1).split([72, 72], 1)
        return self.line(torch.stack([left, right]).mean(0).reshape(-1, 4, 18).mean(1))


def test_a_kept_normalisation_keeps_the_convolution_that_it_is_folded_into(tmp_path, image):
    torch.manual_seed(0)
    module, path = Folded().eval(), tmp_path / "folded.pt2"
    torch.export.save(torch.export.export(module, (torch.from_numpy(image),)), path)
    model = msgspec.structs.replace(
        model_of(path),
        inputs=(TensorSpec(name="image", dtype="float32", shape=(4, 3, 8, 8)),),
        outputs=(TensorSpec(name="scores", dtype="float32", shape=(4, 10)),),
    )
    program = load(model, "cpu", Form("fp16", keep=("batch_norm", "split_with_sizes")))
    ops = _torch_audit.trace(program, SHAPES)
    _torch_audit.check_precision(program, ops)
    assert [(op.name, op.dtype) for op in ops if op.kept and op.name in _torch_audit._HEAVY] == [
        ("convolution", torch.float32)
    ]
    have = _torch.TorchSession(model, program, "eager").run({"image": image})["scores"]
    with torch.no_grad():
        want = module.double()(torch.from_numpy(image).double()).numpy()
    assert rel_l2(have, want) < 4 * 2.0**-11


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_the_device_holds_the_weights_once_in_their_precision(model):
    before = torch.cuda.memory_allocated()
    program = load(model, "cuda:0", Form("fp16"))
    tensors = [*program.module.parameters(), *program.module.buffers()]
    rounded = sum(-(-tensor.numel() * tensor.element_size() // 512) * 512 for tensor in tensors)
    assert torch.cuda.memory_allocated() - before == rounded
