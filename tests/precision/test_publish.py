"""A variant's file under another name: whole, and without what it was made from."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import numpy as np
import onnxruntime
import pytest
from fakes import models

from wavefit.model.load import load
from wavefit.precision import graph
from wavefit.precision.publish import publish
from wavefit.schema import Variant


@pytest.mark.parametrize("largest_bytes", [0, 1 << 30])
def test_weights_in_a_file_of_their_own_go_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, largest_bytes: int
) -> None:
    source = models.save(models.conv_net(), tmp_path / "net.onnx")
    monkeypatch.setattr(graph, "_LARGEST_PROTO_BYTES", largest_bytes)
    draft = tmp_path / "work" / "fp16.onnx"
    graph.save(graph.load(source), draft)
    variant = Variant(key="k", name="fp16", precision="fp16", model=load(draft), target="any")
    assert bool(variant.model.external) == (largest_bytes == 0)

    out = tmp_path / "out" / "mine.onnx"
    out.parent.mkdir()
    made = publish(variant, out)
    shutil.rmtree(draft.parent)

    names = {path.name for path in out.parent.iterdir()}
    assert names == ({"mine.onnx", "mine.onnx.data"} if largest_bytes == 0 else {"mine.onnx"})
    assert (made.model.path, made.model.precision) == (str(out), "fp16")
    assert made.model.external == (("mine.onnx.data",) if largest_bytes == 0 else ())
    assert made.model == msgspec.structs.replace(load(out), precision="fp16")
    image = np.random.default_rng(0).normal(size=(2, 3, 8, 8)).astype(np.float32)
    answers = []
    for path in (source, out):
        session = onnxruntime.InferenceSession(path)
        answers.append(session.run(None, {session.get_inputs()[0].name: image})[0])
    np.testing.assert_allclose(*answers, rtol=1e-5, atol=1e-6)
