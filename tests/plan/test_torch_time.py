"""PyTorch's time on a GPU, against what was timed on an H200 (PyTorch 2.11) and by hand."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from wavefit.model.load import load
from wavefit.model.shapes import bind
from wavefit.plan.predict import predict
from wavefit.schema import Device, Figure, Model, Plan, Prediction

# `wavefit devices --measure` on an H200, PyTorch 2.11, 2026-11-30.
MEASURED = {
    "bandwidth": 4.232e12,
    "fp32": 51.2e12,
    "fp16": 641e12,
    "launch_s": 8.45e-6,
    "h2d_pinned": 55.4e9,
    "d2h_pinned": 55.2e9,
    "dispatch_s": 9.43e-6,
    "dispatch_matmul_s": 13.1e-6,
    "dispatch_conv_s": 42.3e-6,
    "graph_node_s": 0.839e-6,
    "round_trip_s": 18.9e-6,
    "host_to_pinned": 86.2e9,
    "pinned_to_host": 3.38e9,
}


def h200(**others: float) -> Device:
    figures = {
        name: Figure(value=value, unit="", source="measured") for name, value in (MEASURED | others).items()
    }
    return Device(
        id="gpu0",
        kind="gpu",
        vendor="nvidia",
        name="NVIDIA H200",
        compute_units=132,
        integrated=False,
        peaks=figures,
    )


def linear(folder: Path, widths: tuple[int, ...]) -> Model:
    nodes, weights, current = [], [], "x"
    for layer, (rows, columns) in enumerate(itertools.pairwise(widths)):
        weights.append(numpy_helper.from_array(np.zeros((columns, rows), np.float32), f"w{layer}"))
        nodes.append(helper.make_node("Gemm", [current, f"w{layer}"], [f"g{layer}"], transB=1))
        nodes.append(helper.make_node("Relu", [f"g{layer}"], [f"r{layer}"]))
        current = f"r{layer}"
    nodes.pop()
    takes, gives = (
        helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", s])
        for n, s in (("x", widths[0]), (f"g{len(widths) - 2}", widths[-1]))
    )
    graph = helper.make_graph(nodes, "mlp", [takes], [gives], initializer=weights)
    path = folder / "mlp.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), str(path))
    return load(path)


@pytest.fixture
def mlp(tmp_path: Path) -> Model:
    return linear(tmp_path, (1024, 4096, 4096, 1000))


def said(model: Model, device: Device, mode: str, batch: int = 1, precision: str = "fp32") -> Prediction:
    plan = Plan(
        route="torch_gpu",
        device="gpu0",
        precision=precision,  # type: ignore[arg-type]
        batch=batch,
        shapes=bind(model, batch),
        options={"mode": mode},
    )
    found = predict(model, device, plan)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("mode", "precision", "batch", "measured_ms"),
    [("eager", "fp32", 1, 0.127), ("graph", "fp32", 1, 0.080), ("graph", "fp16", 1, 0.072),
     ("graph", "fp16", 32, 0.116)],
)  # fmt: skip
def test_as_timed_on_an_h200(mlp: Model, mode: str, precision: str, batch: int, measured_ms: float) -> None:
    total = said(mlp, h200(), mode, batch, precision).total_s
    assert total is not None
    assert 0.5 * measured_ms < 1e3 * total < 2 * measured_ms


def test_op_by_op_the_slower_of_host_and_gpu_sets_the_pace(mlp: Model) -> None:
    slow = h200(dispatch_s=1e-3, dispatch_matmul_s=2e-3)
    eager, graph = said(mlp, slow, "eager"), said(mlp, slow, "graph")
    assert eager.launch_s == pytest.approx(3 * 2e-3 + 2 * 1e-3)
    assert eager.total_s == pytest.approx((eager.launch_s or 0) + (eager.transfer_s or 0))
    assert graph == said(mlp, h200(), "graph")  # which is launched at once


def test_copies_are_the_round_trip_and_the_bytes(mlp: Model) -> None:
    there, back = 32 * 1024 * 4, 32 * 1000 * 4
    copies = 18.9e-6 + there / 55.4e9 + back * (1 / 55.2e9 + 1 / 3.38e9)
    assert said(mlp, h200(), "graph", 32).transfer_s == pytest.approx(copies)


def test_a_product_of_few_tiles_takes_as_long_as_one_of_all_units(tmp_path: Path) -> None:
    """64 x 4096 by 4096 x 4096 has 64 tiles of 64 x 64, one more row has 128: both one wave of 132 units."""
    model = linear(tmp_path, (4096, 4096))
    fast = h200(bandwidth=1e18, h2d_pinned=1e18, d2h_pinned=1e18, host_to_pinned=1e18, pinned_to_host=1e18)
    one, two, three = (said(model, fast, "graph", batch).total_s for batch in (64, 128, 192))
    assert one == pytest.approx(two)
    assert (three or 0) - 18.9e-6 > 1.9 * ((one or 0) - 18.9e-6)


def test_without_the_hosts_figures_it_is_the_roofline(mlp: Model) -> None:
    peaks = {name: figure for name, figure in h200().peaks.items() if not name.startswith("dispatch")}
    bare = Device(id="gpu0", kind="gpu", vendor="nvidia", integrated=False, peaks=peaks)
    found = said(mlp, bare, "graph")
    assert found.launch_s == pytest.approx(5 * 8.45e-6)
