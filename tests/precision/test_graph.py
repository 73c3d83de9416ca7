"""A graph is whole in memory: it runs, and is written elsewhere, without the files that it was read from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

pytest.importorskip("onnx_ir")
pytest.importorskip("onnxruntime")

from fakes.models import model, value, weight
from onnx import helper

from wavefit.precision import graph


def test_weights_in_a_file_of_their_own_are_read(tmp_path: Path) -> None:
    """torch.onnx.export writes such models unless told otherwise."""
    random = np.random.default_rng(0)
    stored = random.normal(0, 1, (40, 30)).astype(np.float32)
    whole = model(
        [helper.make_node("MatMul", ["x", "w"], ["y"], "product")],
        [value("x", ["N", 40])],
        [value("y", ["N", 30])],
        [weight("w", stored)],
    )
    path = tmp_path / "given" / "m.onnx"
    path.parent.mkdir()
    onnx.save(whole, str(path), save_as_external_data=True, location="m.data", size_threshold=0)
    assert (path.parent / "m.data").stat().st_size >= stored.nbytes
    loaded = graph.load(path)
    array = random.normal(0, 1, (2, 40)).astype(np.float32)
    wanted = array.astype(np.float64) @ stored
    np.testing.assert_allclose(graph.Runner(loaded)({"x": array})["y"], wanted, rtol=1e-4, atol=1e-4)
    graph.save(loaded, tmp_path / "made" / "m.onnx")
    again = graph.load(tmp_path / "made" / "m.onnx")
    np.testing.assert_array_equal(again.graph.initializers["w"].const_value.numpy(), stored)
