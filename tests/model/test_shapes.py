"""Binding of symbolic dimensions."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes import models
from onnx import TensorProto, helper

from wavefit.errors import InputError
from wavefit.model.load import load
from wavefit.model.shapes import bind, fixed_batch, missing_sizes
from wavefit.schema import Model


def make(folder: Path, *shapes: list[int | str | None]) -> Model:
    """A model with one float input ``in0``, ``in1``, ... of each shape, and one output for each."""
    inputs = [models.value(f"in{index}", shape) for index, shape in enumerate(shapes)]
    outputs = [models.value(f"out{index}", shape) for index, shape in enumerate(shapes)]
    nodes = [helper.make_node("Relu", [f"in{index}"], [f"out{index}"]) for index in range(len(shapes))]
    return load(models.save(models.model(nodes, inputs, outputs), folder / "m.onnx"))


def test_the_batch_goes_into_every_dimension_of_that_name(tmp_path: Path) -> None:
    model = make(tmp_path, ["N", 3, "N"], ["N", 7])
    assert model.batch == "N"
    assert bind(model, 5) == {"in0": (5, 3, 5), "in1": (5, 7)}


def test_other_symbolic_dimensions_take_their_sizes(tmp_path: Path) -> None:
    model = make(tmp_path, ["N", "seq"], ["N", "seq"])
    assert model.dynamic == ("N", "seq")
    assert missing_sizes(model) == ("seq",)
    assert missing_sizes(model, {"seq": 9}) == ()
    assert bind(model, 2, {"seq": 9}) == {"in0": (2, 9), "in1": (2, 9)}


def test_unnamed_dimensions_are_called_by_input_and_axis(tmp_path: Path) -> None:
    model = make(tmp_path, [None, 3, None], [None, 4])
    assert model.dynamic == ("in0:0", "in0:2", "in1:0")
    assert model.batch == "in0:0"
    assert missing_sizes(model) == ("in0:2",)
    assert bind(model, 6, {"in0:2": 8}) == {"in0": (6, 3, 8), "in1": (6, 4)}


def test_scalars_and_fixed_first_dimensions_stay_as_they_are(tmp_path: Path) -> None:
    model = make(tmp_path, [], ["N", 3], [1, 2])
    assert model.batch == "N"
    assert bind(model, 4) == {"in0": (), "in1": (4, 3), "in2": (1, 2)}


def test_a_state_with_the_batch_on_its_second_axis_follows_it(tmp_path: Path) -> None:
    assert bind(make(tmp_path, ["N", 16], [2, "N", 64]), 3) == {"in0": (3, 16), "in1": (2, 3, 64)}


def test_two_symbolic_first_dimensions_are_no_batch(tmp_path: Path) -> None:
    model = make(tmp_path, ["A", 3], ["B", 4])
    assert model.batch is None
    assert bind(model, 1, {"A": 2, "B": 5}) == {"in0": (2, 3), "in1": (5, 4)}


def test_a_fixed_batch_is_taken_as_it_is(tmp_path: Path) -> None:
    model = make(tmp_path, [4, 3], [4, 2])
    assert (model.batch, fixed_batch(model)) == (None, 4)
    assert bind(model, 4) == {"in0": (4, 3), "in1": (4, 2)}


@pytest.mark.parametrize(
    ("shapes", "batch", "sizes", "says"),
    [
        ([["N", "seq"]], 1, {}, ["'seq'", "axis 1", "'in0'", "--size seq=VALUE"]),
        ([[None, None]], 1, {}, ["'in0:1'", "--size in0:1=VALUE"]),
        ([["N", 3]], 0, {}, ["batch is 0"]),
        ([["N", 3]], 2, {"seq": 4}, ["seq=4", "no such symbolic dimension", "it has: N"]),
        ([["N", "seq"]], 2, {"seq": 0}, ["seq=0", "1 or more"]),
        ([["N", 3]], 2, {"N": 4}, ["contradicts the batch of 2"]),
        ([[4, 3]], 8, {}, ["fixed batch of 4, not 8", "--batch 4", "--dynamic-batch", "m.onnx"]),
        ([[4, 3]], 1, {}, ["fixed batch of 4, not 1"]),
        ([[1, 3], [2, 3]], 2, {}, ["fixed batch of 1, not 2"]),
        ([["A", 3], ["B", 4]], 1, {"A": 2}, ["'B'", "--size B=VALUE"]),
    ],
)
def test_what_cannot_be_bound_is_one_sentence(
    tmp_path: Path, shapes: list[list[int | str | None]], batch: int, sizes: dict[str, int], says: list[str]
) -> None:
    with pytest.raises(InputError) as caught:
        bind(make(tmp_path, *shapes), batch, sizes)
    text = str(caught.value)
    assert "\n" not in text
    for part in says:
        assert part in text


def test_scalar_inputs_alone_have_a_batch_of_one(tmp_path: Path) -> None:
    nodes = [helper.make_node("Add", ["a", "b"], ["c"])]
    scalars = [models.value(name, [], TensorProto.INT64) for name in "abc"]
    model = load(models.save(models.model(nodes, scalars[:2], scalars[2:]), tmp_path / "s.onnx"))
    assert bind(model, 1) == {"a": (), "b": ()}
    with pytest.raises(InputError, match="fixed batch of 1, not 2"):
        bind(model, 2)
