"""Sums inside an operator, emulated: as numpy's half adds up, they are Inf past 65504 and right below it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from fakes.models import model, save, value, weight
from onnx import helper

from wavefit.precision import graph
from wavefit.precision.half.emulate import emulated

ONES = np.ones(64)
OPERATORS = {
    "ReduceMean": ([], {"axes": [1]}, 1),
    "ReduceL2": ([], {"axes": [1]}, 2),
    "LayerNormalization": ([ONES, 0 * ONES], {"axis": 1}, 2),
    "GlobalAveragePool": ([], {}, 1),
}


def load(op: str, tmp_path: Path, opset: int = 17) -> ir.Model:
    arrays, attributes, _ = OPERATORS[op]
    weights = [weight(f"w{number}", array.astype(np.float32)) for number, array in enumerate(arrays)]
    if opset >= 18 and "axes" in attributes:
        attributes = {}
        weights.append(weight("w0", np.array([1])))
    pooled = op == "GlobalAveragePool"
    nodes = [helper.make_node(op, ["x", *(each.name for each in weights)], ["y"], "node", **attributes)]
    shape = ["N", 1, 64] if pooled else ["N", 64]
    proto = model(nodes, [value("x", shape)], [value("y", None)], weights, opset=opset)
    return graph.load(save(proto, tmp_path / "m.onnx"))


def answer(net: ir.Model, x: np.ndarray, low: str = "fp16") -> np.ndarray:
    lowered = emulated(net, {"node": low}) if low != "fp32" else net  # type: ignore[dict-item]
    [found] = graph.Runner(lowered)({"x": x}).values()
    return found


@pytest.mark.parametrize("op", OPERATORS)
@pytest.mark.parametrize("opset", [17, 18])
def test_a_row_is_lost_where_numpys_half_overflows(tmp_path: Path, op: str, opset: int) -> None:
    """Rows of growing size; numpy adds the terms up in half one after another."""
    net = load(op, tmp_path, opset)
    power = OPERATORS[op][2]
    sizes = (
        np.array([1.0, 100.0, 900.0, 1100.0, 4000.0])
        if power == 1
        else np.array([0.5, 10.0, 28.0, 36.0, 200.0])
    )
    signs = np.where(np.arange(64) % 2, -1, 1) if power == 2 else np.ones(64)
    x = (sizes[:, None] * signs).astype(np.float32)
    with np.errstate(over="ignore"):
        terms = np.abs(x.astype(np.float16)) ** power
        overflowed = np.isinf(np.add.accumulate(terms, axis=1, dtype=np.float16)[:, -1])
    assert list(overflowed) == [False, False, False, True, True]
    given = x[:, None] if op == "GlobalAveragePool" else x
    found, exact = answer(net, given), answer(net, given, "fp32")
    bad = ~np.isfinite(found.reshape(5, -1)).any(axis=1) | np.isnan(found.reshape(5, -1)).any(axis=1)
    assert list(bad) == list(overflowed)
    np.testing.assert_allclose(found[:3], exact[:3], rtol=2e-3)


def test_bfloat16_does_not_overflow_there(tmp_path: Path) -> None:
    x = np.full((1, 64), 4000, np.float32)
    assert np.isfinite(answer(load("ReduceMean", tmp_path), x, "bf16")).all()


def test_a_matmul_adds_up_in_fp32(tmp_path: Path) -> None:
    """600 x 128 - 600 x 128 passes 65504 on the way, and matrix cores do not mind."""
    kernel = np.repeat([[1.0], [-1.0]], 128, axis=0).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], "node")]
    proto = model(nodes, [value("x", ["N", 256])], [value("y", ["N", 1])], [weight("w", kernel)])
    x = np.full((1, 256), 600, np.float32)
    assert answer(graph.load(save(proto, tmp_path / "m.onnx")), x) == 0
