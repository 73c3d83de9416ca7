"""Host memory of ONNX Runtime's CPU provider: the rules, on graphs whose sizes are known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from fakes import models
from onnx import helper

from wavefit.model.load import load
from wavefit.model.shapes import bind
from wavefit.plan.arena import Arena
from wavefit.plan.host import host
from wavefit.plan.layout import as_run
from wavefit.plan.liveness import liveness
from wavefit.plan.trace import Trace, trace

MIB = 2**20
LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"


def traced(proto: onnx.ModelProto, folder: Path, batch: int = 1) -> Trace:
    model = load(models.save(proto, folder / "net.onnx"))
    return trace(model, bind(model, batch))


def weight(name: str, *shape: int) -> onnx.TensorProto:
    return models.weight(name, np.ones(shape, np.float32))


def test_resnet_50_weighs_what_is_published() -> None:
    """25.6 million parameters, 102 MB in fp32 (torchvision's table of weights: 97.8 MiB)."""
    model = load(LIGHT / "light_resnet50.onnx")
    weights = sum(trace(model, bind(model, 1)).weights.values())
    made = 4 * 25_557_032 + 4 * 53_120  # and the running means and variances of 53 normalisations
    assert weights + _generated(model.path) == pytest.approx(made, rel=0.01)


def _generated(path: str) -> int:
    """The light file makes its weights by ConstantOfShape nodes."""
    graph = onnx.load(path).graph
    shapes = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}
    made = [shapes[node.input[0]] for node in graph.node if node.op_type == "ConstantOfShape"]
    return sum(4 * int(np.prod(shape)) for shape in made)


def test_a_convolutions_weights_are_held_three_times(tmp_path: Path) -> None:
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], "y")]
    proto = models.model(
        nodes,
        [models.value("x", ["N", 64, 4, 4])],
        [models.value("y", ["N", 512, 4, 4])],
        [weight("w", 512, 64, 1, 1)],
    )
    size = 4 * 512 * 64  # 128 KiB: no small tensor
    found = host(traced(proto, tmp_path), size)
    assert (found.weights, found.copies) == (size, 2 * size)
    assert found.peak == 3 * size + found.graph  # the run fits into the holes
    assert found.run == 0


def test_small_matrices_leave_holes_where_they_were_before_they_were_packed(tmp_path: Path) -> None:
    found = host(traced(models.mlp(widths=(256, 512, 512, 16)), tmp_path), 10**6)
    # Each is under 32 MiB: none goes back to the system.
    assert found.copies == found.heap == 4 * (256 * 512 + 512 * 512 + 512 * 16)


def test_activations_beyond_the_holes_are_new_memory(tmp_path: Path) -> None:
    small, large = (traced(models.conv_net(size=64), tmp_path, batch) for batch in (1, 256))
    assert host(small, 1000).peak < host(large, 1000).peak
    assert host(large, 1000).run >= 256 * 8 * 64 * 64 * 4


def test_a_batch_normalisation_and_relu_go_into_the_convolution(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "c"),
        helper.make_node("BatchNormalization", ["c", "s", "b", "m", "v"], ["n"], "n"),
        helper.make_node("Relu", ["n"], ["y"], "y"),
    ]
    proto = models.model(
        nodes,
        [models.value("x", ["N", 3, 8, 8])],
        [models.value("y", ["N", 16, 8, 8])],
        [weight("w", 16, 3, 1, 1), *(weight(name, 16) for name in "sbmv")],
    )
    steps = as_run(traced(proto, tmp_path)).steps
    assert [(step.op, step.outputs) for step in steps] == [("Conv", ("y",))]


def test_a_residual_addition_lies_in_the_shortcuts_place(tmp_path: Path) -> None:
    def conv(source: str, target: str) -> onnx.NodeProto:
        return helper.make_node("Conv", [source, "w"], [target], target)

    nodes = [
        conv("x", "a"),
        conv("a", "b"),
        conv("b", "c"),
        helper.make_node("Add", ["c", "a"], ["y"], "y"),
    ]
    proto = models.model(
        nodes,
        [models.value("x", ["N", 16, 8, 8])],
        [models.value("y", ["N", 16, 8, 8])],
        [weight("w", 16, 16, 1, 1)],
    )
    found = traced(proto, tmp_path)
    size = 16 * 8 * 8 * 4
    assert liveness(found, in_place=True, count_inputs=False).peak_bytes == 3 * size  # a, b, c
    steps = as_run(found).steps
    assert [step.op for step in steps] == ["Reorder", "Conv", "Conv", "FusedConv"]
    assert steps[-1].inputs[-1] == "a"
    assert steps[-1].outputs == ("y",)


def test_a_graph_without_convolutions_is_run_as_it_is(tmp_path: Path) -> None:
    found = traced(models.mlp(), tmp_path)
    assert as_run(found) is found


def test_the_arenas_regions_double_and_count_as_far_as_written() -> None:
    arena = Arena()
    first = arena.take(300_000)
    assert [region.size for region in arena.regions] == [MIB]
    assert arena.written == 300_032  # rounded up to 256
    arena.take(5 * MIB)
    assert [region.size for region in arena.regions] == [MIB, 8 * MIB]
    assert arena.written == 300_032 + 5 * MIB
    arena.give(first)
    arena.take(1000)
    assert arena.written == 300_032 + 5 * MIB


def test_the_arenas_holes_are_joined_and_used_again() -> None:
    arena = Arena()
    taken = [arena.take(100 * 1024) for _ in range(8)]
    written = arena.written
    for each in taken:
        arena.give(each)
    arena.take(700 * 1024)
    assert arena.written == written


def test_a_buffer_of_no_bytes_takes_nothing() -> None:
    arena = Arena()
    arena.give(arena.take(0))
    assert arena.written == 0
