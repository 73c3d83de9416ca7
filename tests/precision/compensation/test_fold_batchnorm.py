"""BatchNormalization is folded where its channels are the layer's, and nowhere else: held to ONNX Runtime's answers."""

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
from wavefit.precision.compensation.fold_batchnorm import fold


@pytest.mark.parametrize(("shape", "folds"), [((3,), True), ((6, 3), False)])
def test_a_product_is_folded_where_its_outputs_lie_on_axis_1(
    tmp_path: Path, shape: tuple[int, ...], folds: bool
) -> None:
    """Of N x 6 x 3 a MatMul makes N x 6 x 6: BatchNormalization's six channels are then rows, not outputs."""
    random = np.random.default_rng(0)
    vectors = {name: random.uniform(0.5, 2, 6) for name in ("bias", "gamma", "beta", "mean", "variance")}
    stored = {"w": random.normal(0, 1, (3, 6)), **vectors}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"], "product"),
        helper.make_node("Add", ["p", "bias"], ["a"], "add"),
        helper.make_node("BatchNormalization", ["a", "gamma", "beta", "mean", "variance"], ["y"], "norm"),
    ]
    given, made = value("x", ["N", *shape]), value("y", ["N", *shape[:-1], 6])
    weights = [weight(name, array.astype(np.float32)) for name, array in stored.items()]
    onnx.save(model(nodes, [given], [made], weights), str(tmp_path / "m.onnx"))
    before = graph.load(tmp_path / "m.onnx")
    after = fold(before)
    assert ("norm" not in graph.nodes(after)) == folds
    array = random.normal(0, 1, (4, *shape)).astype(np.float32)
    one, other = (graph.Runner(each)({"x": array})["y"] for each in (before, after))
    np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-5)
