"""The demo's classifier in int8: real weights, real labels, beside ONNX Runtime's own quantiser on the same items."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from wavefit.device.probe import probe
from wavefit.model.samples import Samples
from wavefit.precision import graph
from wavefit.precision.int8.calibrate import METHODS, parameters
from wavefit.precision.int8.histogram import collect
from wavefit.precision.int8.qdq import activation_values, quantisable, quantize
from wavefit.precision.int8.targets import Target, target

_CALIBRATED = 100
_DEMO = Path(str(files("wavefit.demo")))


def _items() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Calibration images, held-out images and their labels."""
    data = np.load(_DEMO / "digits.npz")
    return data["image"][:_CALIBRATED], data["image"][_CALIBRATED:], data["labels"][_CALIBRATED:]


def _run(path: Path, images: np.ndarray) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: images})[0]


def _ours(method, tmp_path: Path) -> Path:
    where = target(probe()[0], "ort_cpu")
    assert isinstance(where, Target)
    model = graph.load(_DEMO / "digits.onnx")
    nodes = frozenset(quantisable(model, where))
    assert len(nodes) == 5  # three convolutions and two Gemms: all that has weights
    calibration = Samples({"image": _items()[0]}, None, "demo")
    found = collect(model, calibration, activation_values(model, nodes), lambda _: None)
    int8 = quantize(model, nodes, parameters(found, method, where), where)
    graph.save(int8, tmp_path / f"{method}.onnx")
    return tmp_path / f"{method}.onnx"


def _theirs(tmp_path: Path) -> Path:
    quantization = pytest.importorskip("onnxruntime.quantization")
    images = _items()[0]

    class Reader(quantization.CalibrationDataReader):
        def __init__(self) -> None:
            self._batches = iter([{"image": images}])

        def get_next(self):
            return next(self._batches, None)

    quantization.quantize_static(_DEMO / "digits.onnx", tmp_path / "theirs.onnx", Reader())
    return tmp_path / "theirs.onnx"


def _error(logits: np.ndarray, reference: np.ndarray) -> float:
    return float(np.linalg.norm(logits - reference) / np.linalg.norm(reference))


@pytest.mark.parametrize("method", METHODS)
def test_accuracy_stays_within_half_a_point(method: str, tmp_path: Path) -> None:
    _, images, labels = _items()
    reference = _run(_DEMO / "digits.onnx", images)
    logits = _run(_ours(method, tmp_path), images)
    accuracy, before = (np.mean(each.argmax(axis=1) == labels) for each in (logits, reference))
    assert accuracy >= before - 0.005
    assert _error(logits, reference) < 0.05


def test_it_is_nearer_to_fp32_than_onnxruntimes_quantiser(tmp_path: Path) -> None:
    _, images, labels = _items()
    reference = _run(_DEMO / "digits.onnx", images)
    ours, theirs = _run(_ours("minmax", tmp_path), images), _run(_theirs(tmp_path), images)
    assert _error(ours, reference) <= _error(theirs, reference)
    assert np.mean(ours.argmax(axis=1) == labels) >= np.mean(theirs.argmax(axis=1) == labels)


def test_the_file_is_a_quarter_of_the_size(tmp_path: Path) -> None:
    weights = [
        graph.weight_bytes(graph.load(path)) for path in (_ours("minmax", tmp_path), _DEMO / "digits.onnx")
    ]
    assert weights[0] < 0.3 * weights[1]
