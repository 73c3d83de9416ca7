"""One quantiser, run in its own environment: python _precision_child.py PEER model.onnx data.npz out.onnx

Nothing but the peer, numpy and onnx is imported. Each peer is used as its documentation shows, with its defaults;
inputs and outputs stay fp32 where it has an option for that, as wavefit's do.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx

_BATCH = 8


class Reader:
    """Calibration data for ONNX Runtime's quantiser and for Quark's: dicts of inputs, None at the end."""

    def __init__(self, path: Path, model: Path) -> None:
        inputs = onnx.load(model, load_external_data=False).graph.input
        with np.load(path) as archive:
            self._arrays = {entry.name: archive[entry.name] for entry in inputs if entry.name in archive}
        batch = inputs[0].type.tensor_type.shape.dim[0]
        self._batch = batch.dim_value or _BATCH
        self._next = 0

    def get_next(self) -> dict[str, np.ndarray] | None:
        start, self._next = self._next, self._next + self._batch
        part = {name: array[start : self._next] for name, array in self._arrays.items()}
        return part if all(len(array) == self._batch for array in part.values()) else None

    def rewind(self) -> None:
        self._next = 0

    def __iter__(self) -> Reader:
        return self

    def __next__(self) -> dict[str, np.ndarray]:
        part = self.get_next()
        if part is None:
            raise StopIteration
        return part


def ort_static(model: Path, data: Path, out: Path) -> None:
    from onnxruntime.quantization import quantize_static

    quantize_static(str(model), str(out), Reader(data, model))


def ort_pre(model: Path, data: Path, out: Path) -> None:
    ort_static(_prepared(model, out), data, out)


def ort_tuned(model: Path, data: Path, out: Path) -> None:
    """What its documentation advises past the defaults: u8 activations, weights per channel."""
    from onnxruntime.quantization import QuantType, quantize_static

    prepared = _prepared(model, out)
    raised = onnx.version_converter.convert_version(onnx.load(prepared), 17)
    onnx.save(raised, prepared)
    reader = Reader(data, prepared)
    quantize_static(str(prepared), str(out), reader, per_channel=True, activation_type=QuantType.QUInt8)


def _prepared(model: Path, out: Path) -> Path:
    """With ``auto_merge``, without which it refuses the recogniser's unnamed dimensions."""
    from onnxruntime.quantization import quant_pre_process

    path = out.with_name(f"{out.stem}-prepared.onnx")
    quant_pre_process(str(model), str(path), auto_merge=True)
    return path


def quark(config: str) -> Any:
    def run(model: Path, data: Path, out: Path) -> None:
        from quark.onnx import ModelQuantizer
        from quark.onnx.quantization.config import Config, get_default_config

        quantizer = ModelQuantizer(Config(global_quant_config=get_default_config(config)))
        quantizer.quantize_model(str(model), str(out), Reader(data, model))

    return run


def common_fp16(model: Path, data: Path, out: Path) -> None:
    from onnxconverter_common import float16

    onnx.save(float16.convert_float_to_float16(onnx.load(model), keep_io_types=True), out)


def common_auto(model: Path, data: Path, out: Path) -> None:
    from onnxconverter_common import auto_mixed_precision

    graph = onnx.load(model)
    for number, node in enumerate(graph.graph.node):
        node.name = node.name or f"node_{number}"  # without names it makes two nodes of one name
    feed = Reader(data, model).get_next()
    mixed = auto_mixed_precision.auto_convert_mixed_precision(
        graph, feed, rtol=0.01, atol=0.001, keep_io_types=True
    )  # its README's tolerances
    onnx.save(mixed, out)


def ort_fp16(model: Path, data: Path, out: Path) -> None:
    from onnxruntime.transformers import float16

    onnx.save(float16.convert_float_to_float16(onnx.load(model), keep_io_types=True), out)


PEERS = {
    "ort-int8": ort_static,
    "ort-pre-int8": ort_pre,
    "ort-tuned-int8": ort_tuned,
    "quark-cnn-int8": quark("INT8_CNN_DEFAULT"),
    "quark-xint8": quark("XINT8"),
    "common-fp16": common_fp16,
    "common-auto-fp16": common_auto,
    "ort-fp16": ort_fp16,
}


if __name__ == "__main__":
    PEERS[sys.argv[1]](*(Path(each) for each in sys.argv[2:5]))
