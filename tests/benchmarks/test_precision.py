"""What judges wavefit and other quantisers in benchmarks/precision.py, held to numpy and to counts made by hand."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

pytest.importorskip("onnxruntime")
pytest.importorskip("onnx_ir")
ROOT = Path(__file__).parents[2]


def _module(folder: str, name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / folder))
    return importlib.import_module(name)


@pytest.fixture
def half(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return _module("benchmarks", "_precision_half", monkeypatch)


@pytest.fixture
def measure(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return _module("benchmarks", "_precision_measure", monkeypatch)


@pytest.fixture
def ocr(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    yield _module("examples/ocr", "ocr", monkeypatch)
    sys.modules.pop("ocr")


def _save(path: Path, nodes: list[onnx.NodeProto], weights: dict[str, np.ndarray], size: int = 4) -> Path:
    kept = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", size]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], kept)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path)
    return path


def _in_half(path: Path, *nodes: onnx.NodeProto, weights: dict[str, np.ndarray], size: int = 4) -> Path:
    casts = [helper.make_node("Cast", ["x"], ["a"], to=10), helper.make_node("Cast", ["b"], ["y"], to=1)]
    return _save(path, [casts[0], *nodes, casts[1]], weights, size)


def test_a_half_file_is_run_with_halfs_rounding_and_its_overflow(
    tmp_path: Path, half: ModuleType, measure: ModuleType
) -> None:
    scale = np.float16([1.7])
    nodes = [helper.make_node("Mul", ["a", "scale"], ["m"]), helper.make_node("Mul", ["m", "a"], ["b"])]
    path = _in_half(tmp_path / "half.onnx", *nodes, weights={"scale": scale})
    x = np.float32([[0.1, 3.3, 300, 1e-5]])
    [y] = measure.session(half.lowered(path).SerializeToString(), False).run(None, {"x": x})
    with np.errstate(over="ignore"):
        expected = x.astype(np.float16) * scale * x.astype(np.float16)
    assert expected[0, 2] == np.inf
    np.testing.assert_array_equal(y, expected.astype(np.float32))


def test_a_layer_normalisation_whose_squares_overflow_half_is_seen_by_the_strict_run_alone(
    tmp_path: Path, half: ModuleType, measure: ModuleType
) -> None:
    weights = {"s": np.ones(64, np.float16), "o": np.zeros(64, np.float16)}
    node = helper.make_node("LayerNormalization", ["a", "s", "o"], ["b"], axis=-1)
    path = _in_half(tmp_path / "norm.onnx", node, weights=weights, size=64)
    x = np.repeat(np.float32([[-100, 100]]), 32, 1)  # 64 squares of 1e4: 6.4e5
    for model, finite in ((half.lowered(path), True), (half.strict(path), False)):
        [y] = measure.session(model.SerializeToString(), False).run(None, {"x": x})
        assert np.isfinite(y).all() == finite


def test_the_share_of_halves_counts_the_nodes_that_make_a_float(tmp_path: Path, half: ModuleType) -> None:
    nodes = [
        helper.make_node("Relu", ["a"], ["c"]),
        helper.make_node("Cast", ["c"], ["d"], to=1),
        helper.make_node("Exp", ["d"], ["e"]),
        helper.make_node("Cast", ["e"], ["b"], to=10),
    ]
    assert half.share(_in_half(tmp_path / "mixed.onnx", *nodes, weights={})) == 0.5


def test_the_share_of_int8_is_of_the_graph_after_fusion(tmp_path: Path, measure: ModuleType) -> None:
    weights = {
        "s": np.float32(0.02),
        "z": np.uint8(128),
        "w": np.full((4, 4), 3, np.int8),
        "f": np.ones((4, 4), np.float32),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["xq"], "q"),
        helper.make_node("DequantizeLinear", ["xq", "s", "z"], ["xd"], "d"),
        helper.make_node("DequantizeLinear", ["w", "s"], ["wd"], "dw"),
        helper.make_node("MatMul", ["xd", "wd"], ["m"], "int8"),
        helper.make_node("MatMul", ["m", "f"], ["y"], "fp32"),
    ]
    shares = measure.shares(_save(tmp_path / "q.onnx", nodes, weights))
    assert (shares.int8, shares.heavy, shares.fp16) == (0.5, 0.5, 0.0)


def test_the_metric_of_text_counts_edits(ocr: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [ocr.distance("kitten", "sitting"), ocr.distance("", "abc"), ocr.distance("ab", "ab")] == [3, 3, 0]
    table = ["", *"abc", " "]
    monkeypatch.setattr(ocr, "characters", lambda: table)
    monkeypatch.setattr(ocr, "text", lambda number: "ab c")
    best = [1, 1, 0, 2, 2, 4, 0, 3]  # a a - b b space - c
    scores = np.eye(5, dtype=np.float32)[best][None]
    assert ocr.characters_right({"y": scores}, np.array([0])) == 1
    scores[0, 3:5] = np.eye(5)[3]  # b read as c
    assert ocr.characters_right({"y": scores}, np.array([0])) == 0.75


def test_a_line_is_what_its_number_says(ocr: ModuleType) -> None:
    texts = [ocr.text(number) for number in range(50)]
    assert texts == [ocr.text(number) for number in range(50)]
    assert len(set(texts)) == 50
    assert all(9 < len(each) <= 30 for each in texts)
    line = ocr.picture(3)
    assert line.shape == (3, 48, 320)
    assert line.dtype == np.float32
    assert -1 <= line.min() < line.max() <= 1
