"""What both of PyTorch's exporters write, through the importer and the interpreter, against the module in float64."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")

from native import interpret  # noqa: E402

from wavefit.native.graph import Graph  # noqa: E402
from wavefit.native.import_onnx import load  # noqa: E402

pytestmark = pytest.mark.torch
nn, functional = torch.nn, torch.nn.functional


class Encoder(nn.Module):
    """Two layers of a transformer, with a mask of what is padding."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(50, 32), nn.Embedding(64, 32)
        layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, activation="gelu")
        self.layers, self.head = nn.TransformerEncoder(layer, 2), nn.Linear(32, 5)

    def forward(self, words):
        tokens = self.words(words) + self.places(torch.arange(words.shape[1])[None])
        return self.head(self.layers(tokens, src_key_padding_mask=words == 0).mean(1))


class Detector(nn.Module):
    """A detection head with its grid, and a path that is scaled up and joined again."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.down = nn.Conv2d(3, 16, 3, 2, 1), nn.Conv2d(16, 16, 3, 2, 1)
        self.up, self.norm = nn.ConvTranspose2d(16, 8, 2, 2), nn.GroupNorm(2, 8)
        self.head = nn.Conv2d(24, 21, 1)

    def forward(self, image):
        x = functional.silu(self.stem(image))
        first, second = x.chunk(2, 1)
        x = torch.cat([first, functional.max_pool2d(second, 5, 1, 2)], 1)
        y = functional.hardswish(self.down(x))
        wide = functional.interpolate(y, scale_factor=2, mode="bilinear", align_corners=False)
        y = self.head(torch.cat([wide, self.norm(self.up(y))], 1))
        batch, _, rows, columns = y.shape
        y = y.view(batch, 3, 7, rows, columns).permute(0, 1, 3, 4, 2).contiguous()
        places = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
        grid = torch.stack(places[::-1], -1)[None, None].float()
        centre = (y[..., 0:2].sigmoid() * 2 - 0.5 + grid) * 8
        return torch.cat((centre, (y[..., 2:4].sigmoid() * 2) ** 2, y[..., 4:]), -1).view(batch, -1, 7)


def _example(module):
    if isinstance(module, Encoder):
        return torch.tensor([[3, 4, 5, 6, 7], [8, 9, 1, 0, 0]])
    return torch.randn(2, 3, 16, 24)


@pytest.mark.parametrize("dynamo", [False, True])
@pytest.mark.parametrize("kind", [Encoder, Detector])
def test_exports_are_imported_whole_and_right(tmp_path: Path, kind, dynamo, capsys):
    torch.manual_seed(0)
    module = kind().eval()
    example, path = _example(module), tmp_path / "model.onnx"
    dynamic = (
        {"dynamic_shapes": ({0: torch.export.Dim("N")},)} if dynamo else {"dynamic_axes": {"x": {0: "N"}}}
    )
    torch.onnx.export(module, (example,), str(path), dynamo=dynamo, input_names=["x"], **dynamic)
    graph = load(path, {"x": tuple(example.shape)})
    assert isinstance(graph, Graph), graph
    (made,) = interpret.run(graph, {"x": example.numpy()}).values()
    exact = example.double() if example.is_floating_point() else example
    want = module.double()(exact).detach().numpy()
    np.testing.assert_allclose(made, want, atol=1e-6, rtol=1e-6)
