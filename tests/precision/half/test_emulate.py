"""Rounding in an fp32 graph against numpy's own half."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from fakes import models
from onnx import helper

from wavefit.errors import InputError
from wavefit.precision import graph
from wavefit.precision.half.emulate import emulated
from wavefit.schema import Precision

HALVES = {"fp16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}


def rounded(array: np.ndarray, low: str) -> np.ndarray:
    """numpy's rounding to half, as float32."""
    with np.errstate(all="ignore"):
        return array.astype(HALVES[low]).astype(np.float32)


def same_bits(got: np.ndarray, want: np.ndarray) -> bool:
    """Equal bit for bit, any NaN for any NaN."""
    both = np.isnan(got) & np.isnan(want)
    return bool(np.all(both | (got.view(np.uint32) == want.view(np.uint32))))


def chain(tmp_path: Path, *operators: tuple[str, list[str]], weights: dict[str, object], opset: int = 17):
    """x [N] -> one node after another, named n0, n1...; an operator's own input "_" is what came before."""
    nodes = []
    for number, (kind, names) in enumerate(operators):
        before = "x" if number == 0 else f"v{number - 1}"
        given = [before if name == "_" else name for name in names]
        nodes.append(helper.make_node(kind, given, [f"v{number}"], f"n{number}"))
    stored = [models.weight(name, np.asarray(array, np.float32)) for name, array in weights.items()]
    output = models.value(f"v{len(nodes) - 1}", None)
    proto = models.model(nodes, [models.value("x", ["N"])], [output], stored, opset)
    return graph.load(models.save(proto, tmp_path / "chain.onnx"))


def numbers() -> np.ndarray:
    """Every kind of float32: all bit patterns, both sides of half's limits, ties, subnormals."""
    random = np.random.default_rng(0)
    limits = [
        65504,
        65519.99,
        65520,
        65536,
        3.4e38,
        np.inf,
        np.nan,
        0,
        2**-14,
        2**-24,
        2**-25,
        2**-25 * 1.001,
    ]
    ties = [1 + 2**-11, 1 + 3 * 2**-11, 1 + 2**-8, 1 + 2**-9, 1 + 3 * 2**-9, 2048 + 1, 2048 + 3, 1e-45]
    some = np.array([*limits, *ties], np.float32)
    bits = random.integers(0, 2**32, 20_000, dtype=np.uint32).view(np.float32)
    small = random.normal(0, 1e-7, 5_000).astype(np.float32)
    return np.concatenate([some, -some, bits, small, random.normal(0, 6e4, 5_000).astype(np.float32)])


@pytest.mark.parametrize("low", ["fp16", "bf16"])
@pytest.mark.parametrize("opset", [9, 13, 17, 21])
def test_rounds_bit_for_bit_as_numpy_does(tmp_path: Path, low: Precision, opset: int) -> None:
    if low == "bf16" and opset < 13:
        pytest.skip("ONNX has no bfloat16 Cast before opset 13")
    proto = models.model(
        [helper.make_node("Transpose", ["x"], ["y"], "t")],
        [models.value("x", ["N"])],
        [models.value("y", ["N"])],
        opset=opset,
    )
    model = graph.load(models.save(proto, tmp_path / "m.onnx"))
    data = numbers()
    got = graph.Runner(emulated(model, {"t": low}))({"x": data})["y"]
    assert same_bits(got, rounded(data, low))
    assert same_bits(graph.Runner(emulated(model, {}))({"x": data})["y"], data)


@pytest.mark.parametrize("low", ["fp16", "bf16"])
def test_every_step_of_a_chain_is_rounded(tmp_path: Path, low: Precision) -> None:
    weights = {"k": 1.2345678, "b": 3e4, "c": 0.1}
    steps = (("Mul", ["_", "k"]), ("Add", ["_", "b"]), ("Mul", ["_", "_"]), ("Sub", ["_", "c"]))
    model = chain(tmp_path, *steps, weights=weights, opset=22)
    data = np.random.default_rng(1).normal(0, 1e4, 4_000).astype(np.float32)
    k, b, c = (rounded(np.float32(weights[name]), low) for name in "kbc")
    with np.errstate(over="ignore"):
        v0 = rounded(rounded(data, low) * k, low)
        v1 = rounded(v0 + b, low)
        v2 = rounded(v1 * v1, low)
        v3 = rounded(v2 - c, low)
    run = graph.Runner(
        emulated(model, dict.fromkeys(["n0", "n1", "n2", "n3"], low)), ("v0", "v1", "v2", "v3")
    )
    for name, want in (("v0", v0), ("v1", v1), ("v2", v2), ("v3", v3)):
        assert same_bits(run({"x": data})[name], want), name
    assert np.isinf(v2).any() == (low == "fp16")  # the case shows overflow where there is any


def test_only_what_is_assigned_is_rounded(tmp_path: Path) -> None:
    model = chain(tmp_path, *(3 * [("Mul", ["_", "k"])]), weights={"k": 1.1})
    data = np.random.default_rng(2).normal(0, 1, 1_000).astype(np.float32)
    k = np.float32(1.1)
    first = data * k
    second = rounded(rounded(first, "fp16") * rounded(k, "fp16"), "fp16")
    run = graph.Runner(emulated(model, {"n1": "fp16", "n2": "int8"}), ("v0", "v1", "v2"))({"x": data})
    assert same_bits(run["v0"], first)
    assert same_bits(run["v1"], second)
    assert same_bits(run["v2"], second * k)  # the constant that n0 and n2 read is not rounded for them


def test_both_kinds_of_half_in_one_graph(tmp_path: Path) -> None:
    model = chain(tmp_path, *(3 * [("Neg", ["_"])]), weights={})
    data = numbers()
    assignment: dict[str, Precision] = {"n0": "fp16", "n1": "bf16", "n2": "fp16"}
    got = graph.Runner(emulated(model, assignment))({"x": data})["v2"]
    assert same_bits(got, -rounded(rounded(rounded(data, "fp16"), "bf16"), "fp16"))


def test_a_sum_of_squares_overflows(tmp_path: Path) -> None:
    """65,536 numbers of 2: their squares sum to 262,144, past half's 65,504; each step alone is held by half."""
    model = chain(tmp_path, ("Mul", ["_", "_"]), ("ReduceSum", ["_"]), ("Sqrt", ["_"]), weights={})
    data = np.full(65_536, 2, np.float32)
    all_half = graph.Runner(emulated(model, dict.fromkeys(["n0", "n1", "n2"], "fp16")))({"x": data})
    kept = graph.Runner(emulated(model, {"n0": "fp16", "n2": "fp16"}))({"x": data})
    assert np.isinf(all_half["v2"]).all()
    assert np.isinf(kept["v2"]).all()  # the root reads the sum in half
    alone = graph.Runner(emulated(model, {"n0": "fp16"}))({"x": data})
    assert alone["v2"].item() == 512.0


def test_matrix_products_sum_in_fp32(tmp_path: Path) -> None:
    """Against float64 on the rounded operands: half an ulp of half, more than a half accumulator would keep."""
    path = models.save(models.mlp(widths=(4096, 8)), tmp_path / "m.onnx")
    model = graph.load(path)
    x = np.random.default_rng(3).normal(0, 1, (4, 4096)).astype(np.float32)
    got = graph.Runner(emulated(model, {"matmul0": "fp16"}), ("m0",))({"x": x})["m0"]
    weight = graph.constant(model.graph.initializers["w0"])
    assert weight is not None
    exact = rounded(x, "fp16").astype(np.float64) @ rounded(weight, "fp16").astype(np.float64)
    assert np.all(np.abs(got - exact) <= np.abs(exact) * 2**-11 + 1e-5)
    assert same_bits(got, rounded(got, "fp16"))


def test_names_and_the_callers_graph_stay(tmp_path: Path) -> None:
    model = graph.load(models.save(models.conv_net(), tmp_path / "m.onnx"))
    before = ir.to_proto(model).SerializeToString(deterministic=True)
    lowered = emulated(model, dict.fromkeys(graph.nodes(model), "fp16"))
    assert ir.to_proto(model).SerializeToString(deterministic=True) == before
    assert set(graph.nodes(model)) <= set(graph.nodes(lowered))
    assert [value.name for value in lowered.graph.inputs] == ["image"]
    assert [value.name for value in lowered.graph.outputs] == ["logits"]
    assert all(value.dtype == model.graph.inputs[0].dtype for value in lowered.graph.outputs)
    graph.save(lowered, tmp_path / "lowered.onnx")


def test_a_body_reads_the_rounded_value(tmp_path: Path) -> None:
    branch = [models.value("p", None)]
    body = helper.make_graph([helper.make_node("Mul", ["v", "v"], ["p"], "in_then")], "then", [], branch)
    other = helper.make_graph([helper.make_node("Identity", ["v"], ["p"], "in_else")], "else", [], branch)
    proto = models.model(
        [
            helper.make_node("Exp", ["x"], ["v"], "exp"),
            helper.make_node("If", ["yes"], ["y"], "branch", then_branch=body, else_branch=other),
        ],
        [models.value("x", ["N"])],
        [models.value("y", ["N"])],
        [onnx.numpy_helper.from_array(np.array(True), "yes")],
    )
    model = graph.load(models.save(proto, tmp_path / "m.onnx"))
    x = np.random.default_rng(4).normal(0, 1, 100).astype(np.float32)
    v = graph.Runner(model, ("v",))({"x": rounded(x, "fp16")})["v"]
    got = graph.Runner(emulated(model, {"exp": "fp16", "branch": "fp16"}))({"x": x})["y"]
    assert same_bits(got, rounded(v, "fp16") ** 2)  # and the branch itself computes in fp32


def test_bad_assignments_are_said(tmp_path: Path) -> None:
    model = chain(tmp_path, ("Neg", ["_"]), weights={}, opset=9)
    with pytest.raises(InputError, match="'nobody'"):
        emulated(model, {"nobody": "fp16"})
    with pytest.raises(InputError, match="opset is 9, and Cast takes no bfloat16"):
        emulated(model, {"n0": "bf16"})
