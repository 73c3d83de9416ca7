"""What becomes of an exported program on its way to a device: folding, precision, shapes, refusals."""

from __future__ import annotations

import zipfile

import msgspec
import pytest

from wavefit.errors import RouteError
from wavefit.schema import Model, TensorSpec

torch = pytest.importorskip("torch")

from fakes.torch_nets import Form, export, inputs, load, model_of, rel_l2, seeded  # noqa: E402

from wavefit.routes import _torch, _torch_audit, _torch_file, _torch_fold, _torch_program, _torch_shapes  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def net():
    return seeded()


@pytest.fixture(scope="module")
def model(net, tmp_path_factory) -> Model:
    return export(net, tmp_path_factory.mktemp("torch") / "net.pt2")


def test_weights_and_the_image_are_cast_once(model):
    program = load(model, "cpu", Form("bf16"))
    types = {name: tensor.dtype for name, tensor in program.module.state_dict().items()}
    assert types["_folded_weight_0"] == types["_folded_bias_0"] == types["line.weight"] == torch.bfloat16
    casts = [op for op in _torch_audit.trace(program, [(2, 3, 8, 8), (2, 10)]) if op.name == "_to_copy"]
    assert len(casts) == 1  # the image; scores are cast back where they meet the fp32 constant


def test_the_normalisation_is_folded_away(model):
    program = load(model)
    names = [_torch_program.op_name(node.target) for node in program.module.graph.nodes]
    assert "conv2d" in names
    assert "batch_norm" not in names
    assert not any(
        name.startswith(("conv.", "norm.")) for name in program.module.state_dict()
    )  # memory freed


class Shared(torch.nn.Module):
    """A convolution that is read elsewhere too: its normalisation must stay."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3)
        self.norm = torch.nn.BatchNorm2d(4, affine=False)
        self.free = torch.nn.Conv2d(4, 4, 1, groups=2, bias=False)
        self.last = torch.nn.BatchNorm2d(4)

    def forward(self, image):
        x = self.conv(image)
        return self.last(self.free(x + self.norm(x)))


def test_only_what_nothing_else_reads_is_folded():
    torch.manual_seed(0)
    module = Shared()
    with torch.no_grad():
        for _ in range(3):
            module(torch.randn(8, 3, 6, 6) + 1)  # gives the normalisations statistics
    module.eval()
    image = torch.randn(2, 3, 6, 6)
    flat = torch.export.export(module, (image,)).module()
    assert _torch_fold.fold(flat) == 1
    flat.recompile()
    with torch.no_grad():
        have = flat(image)
        want = module.double()(image.double())  # the flat module shares its parameters
        assert rel_l2(have.numpy(), want.numpy()) < 1e-6


def test_a_program_that_autocast_leaves_in_fp32_is_refused(tmp_path):
    class Sum(torch.nn.Module):
        def forward(self, image, shift):
            return image.sum((1, 2, 3)).unsqueeze(1) + shift, shift.argmax(1)

    path = tmp_path / "sum.pt2"
    torch.export.save(torch.export.export(Sum(), (torch.randn(2, 3, 8, 8), torch.randn(2, 10))), path)
    program = load(model_of(path), "cpu", Form("fp16"))
    with pytest.raises(RouteError, match="would not run this model in fp16: 0 of 0"):
        _torch_audit.check_precision(program, _torch_audit.trace(program, [(2, 3, 8, 8), (2, 10)]))


def test_the_audit_sees_an_op_that_stays_in_fp32(model):
    program = load(model, "cpu", Form("bf16"))
    ops = [
        _torch_audit.Op("convolution", "cuda", torch.bfloat16),
        _torch_audit.Op("addmm", "cuda", torch.float32),
    ]
    with pytest.raises(RouteError, match="1 of 2 convolutions and matrix products run in fp32"):
        _torch_audit.check_precision(program, ops)


@pytest.mark.parametrize(
    ("shapes", "says"),
    [
        ([(65, 3, 8, 8), (65, 10)], "takes 0 to 64 at axis 0 of image, not 65"),
        ([(2, 3, 9, 8), (2, 10)], "takes 8 at axis 2 of image, not 9"),
        ([(2, 3, 8, 8), (3, 10)], "takes 2 at axis 0 of shift, not 3"),
    ],
)
def test_shapes_that_the_program_was_not_exported_for_are_refused(model, shapes, says):
    with pytest.raises(RouteError, match=says):
        _torch_shapes.check_shapes(load(model), shapes)


def test_another_version_of_the_file_format_names_both_versions(model, tmp_path):
    newer = tmp_path / "newer.pt2"
    with zipfile.ZipFile(model.exported_program) as source, zipfile.ZipFile(newer, "w") as target:
        for name in source.namelist():
            data = source.read(name)
            if name.endswith("models/model.json"):
                text = data.decode().replace(f'"{torch.__version__}"', '"9.9.0"')
                data = text.replace('"schema_version": {"major": ', '"schema_version": {"major": 9').encode()
            target.writestr(name.replace("net/", "newer/"), data)
    assert _torch_file.written_by(newer) == "9.9.0"
    with pytest.raises(RouteError) as caught:
        load(model_of(newer))
    assert (
        f"PyTorch {torch.__version__} cannot load newer.pt2, written by PyTorch 9.9.0" in caught.value.reason
    )
    assert caught.value.fix == f"export the model again with PyTorch {torch.__version__}"


def test_a_file_that_is_no_exported_program_is_refused(tmp_path):
    path = tmp_path / "net.pt2"
    path.write_bytes(b"not a zip")
    with pytest.raises(RouteError, match=r"net\.pt2"):
        load(model_of(path))
    assert _torch_file.written_by(path) is None


def test_a_cast_in_the_model_does_not_break_half_precision(tmp_path):
    """torch.export writes an assertion of the type before each cast."""

    class Casts(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = torch.nn.Conv2d(3, 10, 8)

        def forward(self, image, shift):
            scores = self.conv(image).to(torch.float32).flatten(1).softmax(1) + shift
            return scores, scores.argmax(1, keepdim=True).expand(-1, 10)

    module, path = Casts().eval(), tmp_path / "casts.pt2"
    exported = torch.export.export(module, (torch.randn(2, 3, 8, 8), torch.randn(2, 10)))
    assert "_assert_tensor_metadata" in str(exported.graph)
    torch.export.save(exported, path)
    given = inputs(2)
    have = _torch.TorchSession(model_of(path), load(model_of(path), "cpu", Form("bf16")), "eager").run(given)
    want = module.double()(*(torch.from_numpy(array).double() for array in given.values()))[0]
    assert rel_l2(have["scores"], want.detach().numpy()) < 4 * 2.0**-8


class Attention(torch.nn.Module):
    """Token numbers in, scores against the tied embedding out."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(50, 32)
        self.layer = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)

    def forward(self, ids):
        return self.layer(self.embed(ids)) @ self.embed.weight.T


def test_attention_runs_in_half_and_a_tied_embedding_keeps_fp32(tmp_path):
    torch.manual_seed(0)
    module, path, ids = Attention().eval(), tmp_path / "attention.pt2", torch.randint(0, 50, (2, 7))
    torch.export.save(torch.export.export(module, (ids,)), path)
    model = msgspec.structs.replace(
        model_of(path),
        inputs=(TensorSpec(name="ids", dtype="int64", shape=(2, 7)),),
        outputs=(TensorSpec(name="scores", dtype="float32", shape=(2, 7, 50)),),
    )
    program = load(model, "cpu", Form("bf16"))
    ops = _torch_audit.trace(program, [(2, 7)])
    _torch_audit.check_precision(program, ops)
    attention = [op.dtype for op in ops if op.name.startswith("_scaled_dot_product")]
    assert attention == [torch.bfloat16]
    assert program.module.embed.weight.dtype == torch.float32
    have = _torch.TorchSession(model, program, "eager").run({"ids": ids.numpy()})["scores"]
    with torch.no_grad():
        want = module.double()(ids).numpy()
    assert 2.0**-8 / 50 < rel_l2(have, want) < 4 * 2.0**-8


def test_a_program_with_other_outputs_than_the_model_is_refused(model):
    with pytest.raises(RouteError, match="2 inputs and 2 outputs, the ONNX model 2 and 1"):
        load(msgspec.structs.replace(model, outputs=model.outputs[:1]))


def test_a_weight_left_elsewhere_is_found(model):
    program = load(model)
    program.module.line.weight = torch.nn.Parameter(program.module.line.weight.to("meta"))
    with pytest.raises(RouteError, match=r"1 tensors of the model are not on cpu: line\.weight"):
        _torch_program.check_device(program.module, torch.device("cpu"))


@pytest.mark.parametrize(
    "error",
    [
        torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError("HIP error: out of memory"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: not enough memory"),
    ],
)
def test_every_kind_of_no_memory_is_called_that(error):
    from wavefit.routes._torch_errors import translated

    with pytest.raises(RouteError, match=r"^out of memory: PyTorch failed"), translated("PyTorch failed"):
        raise error
