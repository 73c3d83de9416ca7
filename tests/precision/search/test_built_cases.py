"""The whole search on the built cases: what a user gets who gives the file, the data and a precision."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

pytest.importorskip("onnx_ir")
pytest.importorskip("onnxruntime")

import onnxruntime as ort
from fakes import records
from precision.cases import (
    attention_overflow,
    depthwise_spread,
    detector_tail,
    layernorm_65536,
    scaled_chain,
    subnormals,
)
from precision.cases.blocks import Case, Net

from wavefit.bench.prepare import Preparing, prepare
from wavefit.model.load import load
from wavefit.precision.search.records import Made, Making, Wanted
from wavefit.precision.search.variants import make_variants
from wavefit.schema import Data, Precision, Request

HALF: dict[str, Callable[[Path], Case]] = {
    "attention": attention_overflow.build,
    "layernorm": lambda path: layernorm_65536.build(path, "operator"),
    "layernorm-sums": lambda path: layernorm_65536.build(path, "sum"),
    "subnormals": lambda path: subnormals.build(path, "squares"),
    "small-units": lambda path: subnormals.build(path, "units"),
}
CPU = records.cpu(features=("avx2", "avx_vnni"))


class Quiet:
    """What a child tells its parent, told to nobody."""

    def __call__(self, text: str) -> None: ...

    def stage(self, name: str) -> None: ...

    def left_s(self) -> float:
        return 600.0


def searched(
    case: Case,
    folder: Path,
    precision: Precision,
    route: str = "ort_cpu",
    mixed: bool = False,
    key: str = "k",
) -> Made:
    data = folder / "data.npz"
    np.savez(data, **case.inputs, labels=case.labels)  # type: ignore[arg-type]
    request = Request(
        precisions=("fp32", precision), data=Data(path=str(data), metric=case.metric), mixed=mixed
    )
    model = load(case.path)
    prepared = prepare(Preparing(model=model, request=request, folder=str(folder / "reference")), Quiet())  # type: ignore[arg-type]
    device = CPU if route == "ort_cpu" else records.gpu()
    wanted = (Wanted(precision=precision, route=route, device=device),)
    payload = Making(
        key=key,
        model=model,
        request=request,
        reference=prepared.folder,
        folder=str(folder / "variants"),
        wanted=wanted,
    )
    return make_variants(payload, Quiet())  # type: ignore[arg-type]


@pytest.mark.parametrize("name", HALF)
def test_half_keeps_exactly_what_must_stay(name: str, tmp_path: Path) -> None:
    case = HALF[name](tmp_path / "m.onnx")
    (variant,) = searched(case, tmp_path, "fp16").variants
    assert {kept.node for kept in variant.kept} | {
        node for each in variant.scaled for node in each.nodes
    } >= case.minimal
    if not variant.scaled:
        assert {kept.node for kept in variant.kept} == case.minimal
    assert all(kept.reason and kept.figures for kept in variant.kept)
    assert len(variant.kept) <= 0.05 * sum(variant.nodes.values())
    assert variant.task is not None
    assert variant.task.drop <= 0


def test_a_chain_of_large_numbers_is_scaled_and_nothing_of_it_is_kept(tmp_path: Path) -> None:
    case = scaled_chain.build(tmp_path / "m.onnx")
    (variant,) = searched(case, tmp_path, "fp16").variants
    assert variant.scaled
    assert variant.kept == ()
    assert set(variant.nodes) == {"fp16"}


def test_a_depthwise_network_of_spread_channels_stays_within_a_point(tmp_path: Path) -> None:
    case = depthwise_spread.build(tmp_path / "m.onnx")
    (variant,) = searched(case, tmp_path, "int8").variants
    assert variant.recipe["cross-layer equalisation"] is True
    assert variant.kept == ()
    assert variant.task is not None
    assert variant.task.drop <= 0.01


def test_a_detectors_tail_stays(tmp_path: Path) -> None:
    case = detector_tail.build(tmp_path / "m.onnx")
    (variant,) = searched(case, tmp_path, "int8").variants
    assert {kept.node for kept in variant.kept} == case.minimal
    assert all("does not pass" in kept.reason for kept in variant.kept)
    assert variant.task is not None
    assert variant.task.drop <= 0


def test_a_model_without_int8_kernels_is_a_refusal_with_the_reason(tmp_path: Path) -> None:
    net = Net(seed=3)
    net.add("Exp", [net.add("Neg", ["x"], "neg")], "logits")
    net.write(tmp_path / "m.onnx", [4], "logits", classes=4)
    inputs = {"x": np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)}
    case = Case(tmp_path / "m.onnx", inputs, np.argmin(inputs["x"], 1), frozenset())
    made = searched(case, tmp_path, "int8")
    (refusal,) = made.refusals
    assert made.variants == ()
    assert refusal.precision == "int8"
    assert "no node of the model has an int8 kernel" in refusal.reason


def test_a_gpu_gets_int8_with_its_other_nodes_in_half(tmp_path: Path) -> None:
    case = detector_tail.build(tmp_path / "m.onnx")
    made = searched(case, tmp_path, "int8", "ort_migraphx", mixed=True)
    mixes = [variant for variant in made.variants if variant.recipe.get("other nodes") == "fp16"]
    assert mixes
    for variant in mixes:
        assert variant.target == "migraphx"
        assert set(variant.nodes) >= {"fp16", "int8"}
        assert variant.task is not None
        assert variant.task.drop <= 0
        graph = onnx.load(variant.model.path).graph
        assert {tensor.data_type for tensor in graph.initializer} >= {
            onnx.TensorProto.FLOAT16,
            onnx.TensorProto.INT8,
        }
        ort.InferenceSession(variant.model.path, providers=["CPUExecutionProvider"])
        zero_points = {
            int(onnx.numpy_helper.to_array(tensor).max(initial=0))
            for tensor in graph.initializer
            if tensor.data_type == onnx.TensorProto.INT8 and not tensor.dims
        }
        assert zero_points <= {0}  # MIGraphX runs symmetric int8
        assert not _casts_beside_kernels(graph)


def _casts_beside_kernels(graph: onnx.GraphProto) -> list[str]:
    """Casts between what an int8 kernel makes and its QuantizeLinear."""
    makers = {name: node for node in graph.node for name in node.output}
    found = []
    for node in graph.node:
        cast = makers.get(node.input[0]) if node.op_type == "QuantizeLinear" else None
        if cast is None or cast.op_type != "Cast" or cast.input[0] not in makers:
            continue
        maker = makers[cast.input[0]]
        if "DequantizeLinear" in [makers[name].op_type for name in maker.input if name in makers]:
            found.append(cast.name)
    return found


@pytest.mark.parametrize("scale", [1.0, 1000.0])
def test_other_data_are_judged_anew(tmp_path: Path, scale: float) -> None:
    """x * x overflows half from x = 256 on: what passes on small numbers must not be taken for all."""
    net = Net(seed=3)
    net.add("Mul", ["x", "x"], "logits")
    net.write(tmp_path / "m.onnx", [4], "logits", classes=4)
    for size in (1.0, scale):
        inputs = {"x": (size * np.random.default_rng(0).uniform(0.5, 1, (40, 4))).astype(np.float32)}
        case = Case(tmp_path / "m.onnx", inputs, np.argmax(inputs["x"], 1), frozenset())
        made = searched(case, tmp_path, "fp16", key=f"{size}")
    assert bool(made.variants) == (scale == 1.0)
