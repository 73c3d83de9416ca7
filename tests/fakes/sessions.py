"""Sessions with known behaviour. They are sessions in full: only what runs in them is simple."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx

from wavefit.routes import ort_cpu
from wavefit.routes.session import Arrays, Session
from wavefit.schema import Device, Model, Plan, TensorSpec

WIDTH = 4


class Sleeping(Session):
    """Takes ``seconds(run)`` for the run of that number, and remembers what it was given and in which thread."""

    def __init__(self, seconds: float | Sequence[float], batch: int | str = "N") -> None:
        spec = TensorSpec(name="x", dtype="float32", shape=(batch, WIDTH))
        super().__init__((spec,), (TensorSpec(name="y", dtype="float32", shape=(batch, WIDTH)),))
        self._seconds = seconds
        self.given: list[np.ndarray] = []
        self.threads: set[int] = set()

    def seconds(self, run: int) -> float:
        if isinstance(self._seconds, float | int):
            return self._seconds
        return self._seconds[min(run, len(self._seconds) - 1)]

    def _run_impl(self, inputs: Mapping[str, np.ndarray]) -> Arrays:
        time.sleep(self.seconds(len(self.given)))
        self.given.append(inputs["x"])
        self.threads.add(threading.get_ident())
        return {"y": inputs["x"]}


class Failing(Sleeping):
    """Runs ``good`` times, then raises ``error`` at every run."""

    def __init__(self, good: int, error: BaseException) -> None:
        super().__init__(0.001)
        self._good = good
        self._error = error
        self.attempts = 0

    def _run_impl(self, inputs: Mapping[str, np.ndarray]) -> Arrays:
        self.attempts += 1
        if self.attempts > self._good:
            raise self._error
        return super()._run_impl(inputs)


def batches(batch: int, count: int = 3) -> list[Arrays]:
    """Distinct batches for a sleeping session; batch k starts with the value k."""
    made = [np.random.default_rng(k).random((batch, WIDTH), dtype=np.float32) for k in range(count)]
    for k, array in enumerate(made):
        array[0, 0] = k
    return [{"x": array} for array in made]


def ort_session(proto: onnx.ModelProto, folder: Path) -> Session:
    """That model in ONNX Runtime on the CPU."""
    path = folder / "model.onnx"
    onnx.save(proto, str(path))
    model = Model(
        name="model",
        path=str(path),
        sha256="",
        opset=17,
        ir_version=8,
        inputs=tuple(_spec(value) for value in proto.graph.input),
        outputs=tuple(_spec(value) for value in proto.graph.output),
        nodes=len(proto.graph.node),
        nodes_by_type={},
        parameters=0,
        weight_bytes=0,
    )
    return ort_cpu.open(
        Plan(route="ort_cpu", device="cpu", shapes={}), model, Device(id="cpu", kind="cpu"), folder
    )


def _spec(value: onnx.ValueInfoProto) -> TensorSpec:
    dims = value.type.tensor_type.shape.dim
    return TensorSpec(
        name=value.name, dtype="float32", shape=tuple(dim.dim_param or dim.dim_value for dim in dims)
    )


class Overlapping(Sleeping):
    """Takes the next batch before it answers the one ahead; each is under way for two times its seconds."""

    def _stream_impl(self, batches: Iterator[Mapping[str, np.ndarray]]) -> Iterator[Arrays]:
        ahead: list[Mapping[str, np.ndarray]] = []
        for inputs in batches:
            ahead.append(inputs)
            if len(ahead) == 2:
                yield self._run_impl(ahead.pop(0))
        for inputs in ahead:
            yield self._run_impl(inputs)
