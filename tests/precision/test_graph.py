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

from wavefit.errors import InputError
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


@pytest.mark.parametrize("stale", ["a", "y"])
def test_shapes_that_the_file_has_wrong_are_inferred(tmp_path: Path, stale: str) -> None:
    """ONNX Runtime warns of them and runs the model."""
    nodes = [helper.make_node("Relu", ["x"], ["a"], "one"), helper.make_node("Neg", ["a"], ["y"], "two")]
    proto = model(nodes, [value("x", ["N", 4])], [value("y", ["N", 5 if stale == "y" else 4])], [])
    proto.graph.value_info.append(value("a", ["N", 5 if stale == "a" else 4]))
    onnx.save(proto, str(tmp_path / "m.onnx"))
    loaded = graph.load(tmp_path / "m.onnx")
    shapes = {each.name: each.shape for node in loaded.graph for each in node.outputs}
    assert {name: tuple(map(str, shape)) for name, shape in shapes.items()} == {
        "a": ("N", "4"),
        "y": ("N", "4"),
    }
    graph.save(loaded, tmp_path / "made.onnx")


def test_types_that_do_not_fit_together_are_refused(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"], "shape"),
        helper.make_node("Add", ["x", "s"], ["y"], "add"),
    ]
    onnx.save(model(nodes, [value("x", ["N", 4])], [value("y", ["N", 4])], []), str(tmp_path / "m.onnx"))
    with pytest.raises(InputError, match="Add"):
        graph.load(tmp_path / "m.onnx")
