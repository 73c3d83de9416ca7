"""Real sessions over models that were broken on purpose, so that the right verdict is known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper

from wavefit.model.load import load
from wavefit.model.shapes import bind
from wavefit.routes.session import Arrays, Session
from wavefit.schema import Model, Plan, Precision, TensorSpec

Change = Callable[[onnx.ModelProto], None]


def quiet(_: str) -> None:
    """A ``say`` that says nothing."""


def write(proto: onnx.ModelProto, path: Path) -> Model:
    onnx.save(proto, str(path))
    return load(path)


def plan(model: Model, batch: int, precision: Precision = "fp32") -> Plan:
    return Plan(route="test", device="cpu", batch=batch, precision=precision, shapes=bind(model, batch))


class ProtoSession(Session):
    """ONNX Runtime over a proto in memory; outputs may be altered after the run, as a broken kernel would."""

    def __init__(
        self, model: Model, proto: onnx.ModelProto, alter: Callable[[Arrays], None] | None = None
    ) -> None:
        outputs = tuple(TensorSpec(name=out.name, dtype="float32", shape=None) for out in proto.graph.output)
        super().__init__(model.inputs, outputs)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        self._session = onnxruntime.InferenceSession(
            proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        self._alter = alter

    def _run_impl(self, inputs: Arrays) -> Arrays:
        names = [spec.name for spec in self.outputs]
        outputs = dict(zip(names, self._session.run(names, dict(inputs)), strict=True))
        if self._alter is not None:
            self._alter(outputs)
        return outputs


def session(
    model: Model, change: Change | None = None, alter: Callable[[Arrays], None] | None = None
) -> Session:
    proto = onnx.load(model.path)
    if change is not None:
        change(proto)
    return ProtoSession(model, proto, alter)


def scale_weight(name: str, factor: float) -> Change:
    """A change that multiplies one weight."""

    def change(proto: onnx.ModelProto) -> None:
        weight = next(tensor for tensor in proto.graph.initializer if tensor.name == name)
        array = numpy_helper.to_array(weight) * np.float32(factor)
        weight.CopyFrom(numpy_helper.from_array(array.astype(np.float32), name))

    return change
