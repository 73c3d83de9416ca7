"""Measures a model file: its metric, its distance to fp32, what part of it is in a lower precision, its latency."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import _precision_half
import numpy as np
import onnx
import onnxruntime as ort
from _precision_tasks import Outputs, Task
from onnx import TensorProto

_BATCH = 8
_ROUNDS = 25
_BOOTSTRAP = 2000
_BYTES = (TensorProto.INT8, TensorProto.UINT8)
_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)
_GLUE = ("QuantizeLinear", "DequantizeLinear", "Cast", "Constant", "Identity")


@dataclass(frozen=True)
class Shares:
    """Of a file: nodes that read 8-bit activations in ONNX Runtime's optimised graph, and nodes that make halves.

    ``heavy`` is the same as ``int8``, of convolutions and matrix products alone.
    """

    int8: float
    heavy: float
    fp16: float


def session(model: Path | bytes, optimised: bool, save: Path | None = None) -> ort.InferenceSession:
    """Two threads, idle ones not spinning: many sessions live side by side."""
    options = ort.SessionOptions()
    level = ort.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimised else level.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 2
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if save is not None:
        options.optimized_model_filepath = str(save)
    source = model if isinstance(model, bytes) else str(model)
    return ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def answers(path: Path, task: Task) -> Outputs:
    """Outputs over the test items, as the file says: nothing fused, halves run in fp32 and rounded.

    Raises whatever ONNX Runtime raises of a file that it does not take.
    """
    runs = session(path, False)
    if has_half(path):
        runs = session(_precision_half.lowered(path).SerializeToString(), False)
    return _run(runs, task.test)


def strict_answers(path: Path, task: Task) -> Outputs:
    """Of a file with halves: sums inside operators in half too. Of another: as this CPU runs it, fused."""
    if has_half(path):
        return _run(session(_precision_half.strict(path).SerializeToString(), False), task.test)
    return _run(session(path, True), task.test)


def _run(runs: ort.InferenceSession, data: Mapping[str, np.ndarray]) -> Outputs:
    inputs = {entry.name: data[entry.name] for entry in runs.get_inputs()}
    first = runs.get_inputs()[0].shape[0]
    batch = first if isinstance(first, int) else _BATCH
    count = len(next(iter(inputs.values())))
    kept: list[list[np.ndarray]] = []
    for start in range(0, count, batch):
        part = {name: array[start : start + batch] for name, array in inputs.items()}
        kept.append(runs.run(None, part))
    names = [entry.name for entry in runs.get_outputs()]
    return dict(zip(names, (np.concatenate(parts) for parts in zip(*kept, strict=True)), strict=True))


def distance(outputs: Outputs, reference: Outputs) -> float:
    """Worst relative L2 over the outputs; infinite for NaN or Inf."""
    errors = []
    for ours, theirs in zip(outputs.values(), reference.values(), strict=True):
        difference = ours.astype(np.float64) - theirs.astype(np.float64)
        errors.append(float(np.linalg.norm(difference) / np.linalg.norm(theirs.astype(np.float64))))
    return max(errors) if all(np.isfinite(errors)) else float("inf")


def change(points: np.ndarray, reference: np.ndarray, most: np.ndarray) -> tuple[float, float]:
    """95 % interval of the metric's change against fp32: a paired bootstrap over items (Efron and Tibshirani 1993)."""
    rng = np.random.default_rng(0)
    picks = rng.integers(0, len(most), (_BOOTSTRAP, len(most)))
    changes = (points - reference)[picks].sum(1) / most[picks].sum(1)
    low, high = np.percentile(changes, [2.5, 97.5])
    return float(low), float(high)


def size(path: Path) -> int:
    """Bytes of the file and of the weights beside it."""
    model = onnx.load(path, load_external_data=False)
    beside = {
        entry.value
        for tensor in model.graph.initializer
        for entry in tensor.external_data
        if entry.key == "location"
    }
    return path.stat().st_size + sum((path.parent / name).stat().st_size for name in beside)


def has_half(path: Path) -> bool:
    """Whether any stored tensor or Cast of the file is half."""
    graph = onnx.load(path, load_external_data=False).graph
    half = TensorProto.FLOAT16
    return any(tensor.data_type == half for tensor in graph.initializer) or any(
        attribute.i == half or attribute.t.data_type == half
        for node in graph.node
        for attribute in node.attribute
    )


def shares(path: Path) -> Shares:
    """What part of the file is in a lower precision."""
    with tempfile.TemporaryDirectory() as folder:
        optimised = Path(folder) / "optimised.onnx"
        session(path, True, optimised)
        int8, heavy = _quantised(onnx.load(optimised))
    return Shares(int8, heavy, _precision_half.share(path) if has_half(path) else 0.0)


def _quantised(model: onnx.ModelProto) -> tuple[float, float]:
    """Types are followed from one node to the next: ONNX Runtime writes none for the nodes that it made."""
    known = (*model.graph.value_info, *model.graph.output, *model.graph.input)
    types = {value.name: value.type.tensor_type.elem_type for value in known}
    quantised, compute = set(), []
    eights = {name for name, kind in types.items() if kind in _BYTES}
    for node in model.graph.node:
        by_name = node.op_type.startswith(("QLinear", "QGemm")) or "Integer" in node.op_type
        eight = by_name or any(name in eights for name in node.input)
        if node.op_type == "QuantizeLinear" or (
            eight and node.op_type != "DequantizeLinear" and not _gives_float(node)
        ):
            eights.update(node.output)
        if node.op_type in _GLUE or not (eight or any(types.get(name) in _FLOATS for name in node.output)):
            continue
        compute.append(node)
        if eight:
            quantised.add(node.name)
    heavy = [node for node in compute if any(each in node.op_type for each in ("Conv", "MatMul", "Gemm"))]
    return _part(compute, quantised), _part(heavy, quantised)


def _gives_float(node: onnx.NodeProto) -> bool:
    return "Integer" in node.op_type or (node.op_type == "QGemm" and len(node.input) < 9)


def _part(nodes: list[onnx.NodeProto], which: set[str]) -> float:
    return sum(node.name in which for node in nodes) / max(1, len(nodes))


def latencies(paths: Mapping[str, Path], task: Task) -> dict[str, list[float]]:
    """Seconds of runs of one item, the files taking turns, each round in another order."""
    runs = {name: session(path, True) for name, path in paths.items()}
    item = {
        entry.name: task.test[entry.name][: _fixed(entry.shape)]
        for entry in next(iter(runs.values())).get_inputs()
    }
    for each in runs.values():
        for _ in range(3):
            each.run(None, item)
    rng = np.random.default_rng(0)
    times: dict[str, list[float]] = {name: [] for name in runs}
    start = time.perf_counter()
    next(iter(runs.values())).run(None, item)
    repeats = max(1, min(200, round(0.03 / (time.perf_counter() - start))))
    for _ in range(_ROUNDS):
        for name in rng.permutation(list(runs)):
            start = time.perf_counter()
            for _ in range(repeats):
                runs[name].run(None, item)
            times[name].append((time.perf_counter() - start) / repeats)
    return times


def _fixed(shape: list[Any]) -> int:
    return shape[0] if isinstance(shape[0], int) else 1
