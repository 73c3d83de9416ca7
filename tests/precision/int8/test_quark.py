"""AMD Quark is offered where it is installed, and never needed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx_ir")
pytest.importorskip("onnxruntime")

from precision.cases import depthwise_spread
from precision.judging import Bench

from wavefit.errors import InputError
from wavefit.model.samples import Samples
from wavefit.precision.int8 import quark


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(depthwise_spread.build(tmp_path_factory.mktemp("quark") / "m.onnx", spread=1.0))


def test_its_graph_is_judged_like_any_other(bench: Bench, tmp_path: Path) -> None:
    pytest.importorskip("quark.onnx")
    made = quark.quantized(bench.graph, bench.calibration, tmp_path, 8)
    judgement = bench.judge(made, "int8")
    assert judgement.passed
    assert judgement.error is not None
    assert 0 < judgement.error < 0.15


@pytest.mark.skipif(quark.version() is not None, reason="AMD Quark is installed here")
def test_without_it_there_is_a_sentence(bench: Bench, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="AMD Quark is not installed; pip install amd-quark"):
        quark.quantized(bench.graph, bench.calibration, tmp_path, 8)
    assert Path.cwd() != tmp_path


def test_data_are_handed_over_batch_by_batch() -> None:
    samples = Samples({"x": np.arange(10.0)[:, None]}, None, "made up")
    reader = quark._Reader(samples, 4)
    sizes = []
    while (batch := reader.get_next()) is not None:
        sizes.append(len(batch["x"]))
    assert sizes == [4, 4, 4]
    assert reader.get_next() is None
