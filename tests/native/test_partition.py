"""Which stages a model is cut into; what they answer is held in tests/routes/test_native_partition.py."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from fakes import partitions

pytest.importorskip("onnx_ir")

from wavefit.native.partition import Partition, partition


def _cut(made: onnx.ModelProto, tmp_path: Path, **shapes: tuple[int, ...]) -> Partition | str:
    path = tmp_path / "model.onnx"
    onnx.save(made, str(path))
    return partition(path, shapes)


def _ops(found: Partition) -> list[tuple[str, list[str]]]:
    return [(stage.kind, [node.op_type for node in stage.model.graph]) for stage in found.stages]


def test_a_detectors_tail_is_the_cpus(tmp_path: Path) -> None:
    found = _cut(partitions.detector(), tmp_path, image=(2, 3, 16, 16))
    assert isinstance(found, Partition)
    engine = ["Conv", "Reshape", "Split", "Sigmoid", "Abs", "Transpose"]  # the Reshape's sizes are known
    assert _ops(found) == [("engine", engine), ("cpu", ["NonMaxSuppression", "TopK"])]
    first, tail = found.stages
    assert (first.inputs, set(first.outputs)) == (("image",), {"scores", "boxes"})
    assert tail.shapes == {"boxes": (2, 16, 4), "scores": (2, 3, 16)}
    assert set(tail.outputs) == {"chosen", "best"}
    assert {each.op for each in found.unsupported} == {"NonMaxSuppression", "TopK"}
    assert found.cpu_nodes == 2


def test_what_does_not_wait_for_the_cpu_comes_first(tmp_path: Path) -> None:
    found = _cut(partitions.sorted_inside(), tmp_path, image=(1, 3, 9, 7))
    assert isinstance(found, Partition)
    assert _ops(found) == [
        ("engine", ["Conv", "Relu", "Conv"]),
        ("cpu", ["TopK"]),
        ("engine", ["Conv", "Add"]),
    ]
    assert set(found.stages[2].inputs) == {"greatest", "beside"}


def test_subgraphs_and_doubles_are_the_cpus_and_a_stage_without_weight_is(tmp_path: Path) -> None:
    found = _cut(partitions.chosen_branch(), tmp_path, x=(2, 4))
    assert isinstance(found, Partition)
    assert _ops(found) == [("engine", ["MatMul", "ReduceSum", "Greater"]), ("cpu", ["If", "Cast", "Mul"])]
    assert set(found.stages[1].inputs) == {"positive", "p"}  # the branches read p


def test_weights_are_shared_with_no_copy(tmp_path: Path) -> None:
    found = _cut(partitions.sorted_inside(), tmp_path, image=(1, 3, 9, 7))
    assert isinstance(found, Partition)
    held = [set(stage.model.graph.initializers) for stage in found.stages]
    assert held == [{"a", "c"}, {"four"}, {"b"}]


def test_nothing_of_weight_is_refused(tmp_path: Path) -> None:
    found = _cut(partitions.nothing_of_weight(), tmp_path, x=(2, 4))
    assert found == "the engine can run none of the model's convolutions and products"
