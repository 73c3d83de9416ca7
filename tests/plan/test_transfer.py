"""The link, and the classic bound on the batch."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes import models

from wavefit.model.load import load
from wavefit.model.shapes import bind
from wavefit.plan.peaks import link_bandwidth, transfer_bandwidth
from wavefit.plan.trace import Trace, trace
from wavefit.plan.transfer import classic_max_batch, transfer
from wavefit.schema import Device, Figure, Link


@pytest.fixture
def found(tmp_path: Path) -> Trace:
    model = load(models.save(models.conv_net(), tmp_path / "net.onnx"))
    return trace(model, bind(model, 4))


@pytest.mark.parametrize(
    ("speed", "width", "gigabytes"),  # one way, as Wikipedia's "PCI Express", comparison table, has them
    [
        (2.5, 1, 0.25),
        (5.0, 16, 8.0),
        (8.0, 16, 15.754),
        (16.0, 8, 15.754),
        (16.0, 16, 31.508),
        (32.0, 16, 63.015),
    ],
)
def test_a_links_rate(speed: float, width: int, gigabytes: float) -> None:
    figure = link_bandwidth(Link(speed_gts=speed, width=width))
    assert figure is not None
    assert figure.value == pytest.approx(gigabytes * 1e9, rel=1e-3)
    assert f"{speed:g} GT/s x{width}" in figure.source


def test_an_unknown_link_has_no_rate() -> None:
    assert link_bandwidth(None) is None
    assert link_bandwidth(Link(speed_gts=16.0)) is None
    assert link_bandwidth(Link(width=16)) is None


def test_a_measured_rate_is_preferred() -> None:
    measured = Figure(value=25e9, unit="B/s", source="measured: 256 MiB, pinned")
    device = Device(id="g", kind="gpu", link=Link(speed_gts=16.0, width=16), peaks={"h2d_pinned": measured})
    assert transfer_bandwidth(device) is measured


def test_a_query_moves_inputs_and_outputs_not_weights(found: Trace) -> None:
    device = Device(id="g", kind="gpu", integrated=False, link=Link(speed_gts=16.0, width=16))
    moved = transfer(found, device, parameters=314, precision="fp32")
    assert (moved.bytes_in, moved.bytes_out) == (4 * 3 * 8 * 8 * 4, 4 * 10 * 4)
    assert moved.seconds == pytest.approx((3072 + 160) / (31.508e9 * 0.8), rel=1e-3)


def test_shared_memory_copies_nothing(found: Trace) -> None:
    for device in (Device(id="cpu", kind="cpu"), Device(id="g", kind="gpu", integrated=True)):
        moved = transfer(found, device, 314, "fp32")
        assert moved.unified is True
        assert moved.seconds == 0
        assert moved.classic_max_batch is None


def test_whether_the_memory_is_shared_may_be_unknown(found: Trace) -> None:
    moved = transfer(found, Device(id="g", kind="gpu"), 314, "fp32")
    assert (moved.unified, moved.seconds, moved.classic_max_batch) == (None, None, None)


def test_the_classic_bound() -> None:
    """PCIe 4.0 x16 at 31.508 GB/s, 80 % of it, ResNet-50's 25.557 million parameters of 4 bytes: 246 a second."""
    link = link_bandwidth(Link(speed_gts=16.0, width=16))
    assert classic_max_batch(link, 25_557_032, "fp32", 0.8) == 246
    assert classic_max_batch(link, 25_557_032, "fp16", 0.8) == 493
    assert classic_max_batch(None, 25_557_032, "fp32") is None
    assert classic_max_batch(link, 0, "fp32") is None
