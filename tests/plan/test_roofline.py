"""The roofline, against products whose FLOPs and bytes are known."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes import models

from wavefit.model.load import load
from wavefit.model.shapes import bind
from wavefit.plan.roofline import roofline, tiles
from wavefit.plan.trace import Trace, trace
from wavefit.schema import Device, Figure


def gpu(**peaks: float) -> Device:
    figures = {name: Figure(value=value, unit="", source="invented") for name, value in peaks.items()}
    return Device(id="gpu0", kind="gpu", integrated=False, peaks=figures)


def gemm(folder: Path, rows: int, inner: int, columns: int) -> Trace:
    model = load(models.save(models.mlp(widths=(inner, columns)), folder / "gemm.onnx"))
    return trace(model, bind(model, rows))


def test_a_square_product_is_bound_by_compute(tmp_path: Path) -> None:
    """2 n^3 FLOPs and 3 n^2 x 4 bytes: at n = 1024, 170 FLOPs a byte. On 50 TFLOP/s and 3 TB/s that is compute."""
    roof = roofline(gemm(tmp_path, 1024, 1024, 1024), gpu(fp32=50e12, bandwidth=3e12, launch_s=5e-6), "fp32")
    product, addition = roof.nodes
    assert product.compute_s == pytest.approx(2 * 1024**3 / 50e12)
    assert product.memory_s == pytest.approx(3 * 1024**2 * 4 / 3e12)
    assert product.bound == "compute"
    assert product.total_s == pytest.approx(2 * 1024**3 / 50e12 + 5e-6)
    assert addition.bound == "launch"  # 2.8 us of memory, 5 us of launch
    assert roof.total_s == pytest.approx((product.total_s or 0) + (addition.total_s or 0))


def test_a_product_with_one_row_is_bound_by_memory(tmp_path: Path) -> None:
    roof = roofline(gemm(tmp_path, 1, 4096, 4096), gpu(fp32=50e12, bandwidth=3e12), "fp32")
    assert roof.nodes[0].bound == "memory"
    assert roof.nodes[0].memory_s == pytest.approx(4 * (4096 * 4096 + 2 * 4096) / 3e12)
    assert roof.launch_s is None


def test_half_precision_takes_the_matrix_units_and_half_the_bytes(tmp_path: Path) -> None:
    found = gemm(tmp_path, 1024, 1024, 1024)
    device = gpu(fp32=50e12, fp16=100e12, fp16_matrix=800e12, bandwidth=3e12)
    roof = roofline(found, device, "fp16")
    assert roof.nodes[0].compute_s == pytest.approx(2 * 1024**3 / 800e12)
    assert roof.nodes[0].memory_s == pytest.approx(3 * 1024**2 * 2 / 3e12)
    assert roof.nodes[1].compute_s == pytest.approx(1024**2 / 100e12)  # an addition has no matrix unit


def test_int8_is_a_quarter_of_the_bytes(tmp_path: Path) -> None:
    found = gemm(tmp_path, 64, 1024, 1024)
    roof = roofline(found, gpu(int8_matrix=1600e12, fp32=50e12, bandwidth=3e12), "int8")
    assert roof.nodes[0].memory_s == pytest.approx((1024 * 1024 + 2 * 64 * 1024) / 3e12)
    assert roof.nodes[0].compute_s == pytest.approx(2 * 64 * 1024 * 1024 / 1600e12)


def test_a_fused_addition_moves_nothing_and_is_not_launched(tmp_path: Path) -> None:
    found = gemm(tmp_path, 64, 1024, 1024)
    device = gpu(fp32=50e12, bandwidth=3e12, launch_s=5e-6)
    assert roofline(found, device, "fp32").nodes[1].memory_s == pytest.approx(
        4 * (2 * 64 * 1024 + 1024) / 3e12
    )
    addition = roofline(found, device, "fp32", fused=True).nodes[1]
    assert (addition.memory_s, addition.launch_s) == (0, 0)


def test_unknown_peaks_give_none(tmp_path: Path) -> None:
    found = gemm(tmp_path, 8, 16, 16)
    roof = roofline(found, gpu(), "fp32")
    assert (roof.compute_s, roof.memory_s, roof.launch_s, roof.total_s) == (None,) * 4
    assert roof.bound_by == {}
    only = roofline(found, gpu(fp32=1e12), "fp32")
    assert only.compute_s is not None
    assert only.total_s is None


def test_a_peak_of_another_precision_is_not_taken(tmp_path: Path) -> None:
    assert (
        roofline(gemm(tmp_path, 8, 16, 16), gpu(fp32=1e12, bandwidth=1e12), "fp16").nodes[0].total_s is None
    )


def test_resnet_50_by_its_published_work(tmp_path: Path) -> None:
    """4.1 GMAC: He et al., table 1, count 3.8 x 10^9 without the projections of the shortcuts."""
    import onnx

    light = Path(onnx.__file__).parent / "backend/test/data/light/light_resnet50.onnx"
    model = load(light)
    found = trace(model, bind(model, 1))
    seconds = roofline(found, gpu(fp32=1e12, bandwidth=1e12), "fp32").compute_s
    assert seconds == pytest.approx(2 * 4.1e9 / 1e12, rel=0.05)


def test_tiles_fit_what_they_are_for() -> None:
    device = Device(id="g", kind="gpu", lds_bytes=65536, caches={"l2_bytes": 6 * 2**20})
    l2, lds = tiles(device, "fp32")
    assert (l2.memory, lds.memory) == ("L2", "LDS")
    assert 3 * l2.side**2 * 4 <= 6 * 2**20 < 3 * (l2.side + 16) ** 2 * 4
    assert lds.side == 256  # 2 buffers x 2 strips x 16 deep x 4 bytes = 256 bytes a row
    assert tiles(Device(id="g", kind="gpu"), "fp32") == ()


def test_a_normalisation_across_channels_takes_a_power_of_every_element_on_the_cpu(tmp_path: Path) -> None:
    """8 x 96 x 109 x 109 elements took 927 / 3 ms on an EPYC, of which a plain count of FLOPs sees a tenth."""
    import onnx
    from onnx import TensorProto, helper

    shape = [8, 96, 109, 109]
    takes, gives = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "xy")
    node = helper.make_node("LRN", ["x"], ["y"], size=5)
    graph = helper.make_graph([node], "lrn", [takes], [gives])
    path = tmp_path / "lrn.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), str(path))
    model = load(path)
    peaks = {"fp32": 140e9, "bandwidth": 2e10}
    figures = {name: Figure(value=value, unit="", source="measured") for name, value in peaks.items()}
    cpu = Device(id="cpu", kind="cpu", compute_units=2, peaks=figures)
    total = roofline(trace(model, bind(model, 8)), cpu, "fp32").total_s
    assert total is not None
    assert 0.5 < total / (0.927 / 3) < 2
