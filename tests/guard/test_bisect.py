"""The first bad node, on runtimes that are really broken at a known node."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from fakes import models
from guard.helpers import Change, ProtoSession, plan, quiet, scale_weight, write
from onnx import TensorProto, helper

from wavefit.errors import RouteError
from wavefit.guard.bisect import first_bad_node
from wavefit.guard.reference import make_reference
from wavefit.model.load import load
from wavefit.model.samples import random_samples
from wavefit.routes.session import Session
from wavefit.schema import BadNode, Model, Precision

WIDTHS = (16, 24, 24, 24, 24, 24, 24, 24, 24, 24, 24, 4)


class Runtime:
    """Opens every graph with the same fault in it, and counts the openings."""

    def __init__(self, model: Model, change: Change | None, refuse: tuple[str, ...] = ()) -> None:
        self.model, self.change, self.refuse = model, change, refuse
        self.opened: list[tuple[str, ...]] = []

    def __call__(self, path: Path, extra: tuple[str, ...]) -> Session:
        self.opened.append(extra)
        for name in extra:
            if name in self.refuse:
                raise RouteError(f"{name} cannot be an output")
        proto = onnx.load(str(path))
        if self.change is not None:
            self.change(proto)
        return ProtoSession(self.model, proto)


def find(
    model: Model,
    workdir: Path,
    change: Change | None,
    precision: Precision = "fp32",
    refuse: tuple[str, ...] = (),
) -> tuple[BadNode | None, Runtime]:
    runtime = Runtime(model, change, refuse)
    reference = make_reference(model, random_samples(model, {}, 8, 0), quiet)
    return first_bad_node(model, reference, plan(model, 8, precision), runtime, workdir), runtime


@pytest.fixture(name="model")
def model_(tmp_path: Path) -> Model:
    return write(models.mlp(widths=WIDTHS), tmp_path / "m.onnx")


@pytest.mark.parametrize("layer", [0, 4, 9, 10])
def test_a_wrong_weight_is_found_at_its_node(model: Model, tmp_path: Path, layer: int) -> None:
    bad, runtime = find(model, tmp_path, scale_weight(f"w{layer}", 1.01))
    assert bad is not None
    assert (bad.name, bad.op, bad.output) == (f"matmul{layer}", "MatMul", f"m{layer}")
    assert bad.rel_l2 == pytest.approx(0.01, rel=0.05)
    assert "relative L2" in bad.detail
    assert len(runtime.opened) <= 1 + 6  # 32 nodes


def test_a_sound_runtime_has_no_bad_node(model: Model, tmp_path: Path) -> None:
    bad, runtime = find(model, tmp_path, None)
    assert bad is None
    assert runtime.opened == [()]


def insert_after(tensor: str, *ops: tuple[str, dict]) -> Change:
    """A change that puts operators between the node that makes a tensor and its readers."""

    def change(proto: onnx.ModelProto) -> None:
        place = next(i for i, node in enumerate(proto.graph.node) if tensor in node.output)
        proto.graph.node[place].output[0] = current = f"{tensor}_before"
        for number, (op, attributes) in enumerate(ops):
            out = tensor if number == len(ops) - 1 else f"{tensor}_{number}"
            proto.graph.node.insert(place + 1 + number, helper.make_node(op, [current], [out], **attributes))
            current = out

    return change


def test_an_overflow_in_half_precision_is_found(tmp_path: Path) -> None:
    proto = models.mlp(widths=WIDTHS)
    scale_weight("w5", 1e7)(proto)  # fp16 ends at 65504
    scale_weight("w6", 1e-7)(proto)
    model = write(proto, tmp_path / "m.onnx")
    island = insert_after("m5", ("Cast", {"to": TensorProto.FLOAT16}), ("Cast", {"to": TensorProto.FLOAT}))
    bad, _ = find(model, tmp_path, island, "fp16")
    assert bad is not None
    assert (bad.name, bad.output) == ("matmul5", "m5")
    assert "Inf" in bad.detail


def test_a_node_that_makes_nan_is_found(model: Model, tmp_path: Path) -> None:
    bad, _ = find(model, tmp_path, insert_after("r3", ("Log", {}), ("Exp", {}), ("Sqrt", {}), ("Log", {})))
    assert bad is not None
    assert (bad.name, bad.output) == ("relu3", "r3")


def test_a_fault_in_one_of_two_branches_is_found_there(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    nodes, weights = [], []
    for side in ("a", "b"):
        current = "x"
        for layer in range(6):
            name = f"{side}{layer}"
            weights.append(models.weight(f"w_{name}", rng.normal(0, 0.4, (8, 8)).astype(np.float32)))
            nodes.append(helper.make_node("MatMul", [current, f"w_{name}"], [name], f"node_{name}"))
            current = name
    nodes.append(helper.make_node("Add", ["a5", "b5"], ["y"], "join"))
    proto = models.model(nodes, [models.value("x", ["N", 8])], [models.value("y", ["N", 8])], weights)
    model = write(proto, tmp_path / "m.onnx")
    for name in ("a0", "a4", "b2"):
        bad, _ = find(model, tmp_path, scale_weight(f"w_{name}", 1.1))
        assert bad is not None
        assert bad.name == f"node_{name}"


def test_tensors_that_cannot_be_exposed_are_passed_over_and_said(model: Model, tmp_path: Path) -> None:
    bad, _ = find(model, tmp_path, scale_weight("w4", 1.01), refuse=("m4", "a4"))
    assert bad is not None
    assert bad.name == "relu4"  # the first that can be looked at
    assert "matmul4" in bad.detail
    assert "m4 cannot be an output" in bad.detail or "a4 cannot be an output" in bad.detail
    all_inside = tuple(f"{kind}{layer}" for kind in "mar" for layer in range(11))
    nothing, runtime = find(model, tmp_path, scale_weight("w4", 1.01), refuse=all_inside)
    assert nothing is not None
    assert nothing.output == "y"
    assert len(runtime.opened) <= 1 + 32


def test_a_fault_that_exposure_hides_is_pinned_between_its_neighbours(model: Model, tmp_path: Path) -> None:
    runtime: Callable[[Path, tuple[str, ...]], Session]

    def runtime(path: Path, extra: tuple[str, ...]) -> Session:
        proto = onnx.load(str(path))
        if not {"m4", "a4"} & {out.name for out in proto.graph.output}:  # a broken fusion of matmul4 to relu4
            scale_weight("w4", 1.01)(proto)
        return ProtoSession(model, proto)

    reference = make_reference(model, random_samples(model, {}, 8, 0), quiet)
    bad = first_bad_node(model, reference, plan(model, 8), runtime, tmp_path)
    assert bad is not None
    assert bad.name == "relu4"
    assert "gone once its output is exposed" in bad.detail


def test_a_search_without_time_says_how_far_it_got(model: Model, tmp_path: Path) -> None:
    runtime = Runtime(model, scale_weight("w3", 1.01))
    reference = make_reference(model, random_samples(model, {}, 8, 0), quiet)
    bad = first_bad_node(model, reference, plan(model, 8), runtime, tmp_path, limit_s=0.0)
    assert bad is not None
    assert bad.output == "y"
    assert "no time left" in bad.detail
    assert runtime.opened == [()]  # the model itself, no probe


def test_external_data_go_with_the_probes(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "work").mkdir()
    model = load(models.save_external(models.mlp(widths=WIDTHS), tmp_path / "model" / "m.onnx"))
    before = sorted(entry.name for entry in (tmp_path / "model").iterdir())
    bad, _ = find(model, tmp_path / "work", scale_external("w3"))
    assert bad is not None
    assert bad.name == "matmul3"
    assert sorted(entry.name for entry in (tmp_path / "model").iterdir()) == before
    assert not list((tmp_path / "work").glob("*.onnx"))  # a dozen copies of a large model would fill the disk


def scale_external(name: str) -> Change:
    def change(proto: onnx.ModelProto) -> None:
        weight = next(tensor for tensor in proto.graph.initializer if tensor.name == name)
        scaled = onnx.numpy_helper.to_array(weight) * np.float32(1.01)
        weight.CopyFrom(onnx.numpy_helper.from_array(scaled, name))

    return change
