"""Whole networks compiled for nine AMD targets: no scratch, no spill, four waves a SIMD, local memory that fits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from fakes.networks import bert, mobilenet_v2

from wavefit.kernels import audit, toolchain
from wavefit.kernels.cache import Cache
from wavefit.native.opencl.audit import of_model


def _resnet50() -> onnx.ModelProto:
    """onnx's own graph, whose weights are constants: the shapes are what is looked at."""
    return onnx.load(Path(onnx.__file__).parent / "backend/test/data/light/light_resnet50.onnx")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "shapes"),
    [
        (_resnet50, {"gpu_0/data_0": (1, 3, 224, 224)}),
        (mobilenet_v2, {"image": (1, 3, 224, 224)}),
        (bert, {"ids": (1, 128), "mask": (1, 128)}),
    ],
)
def test_no_kernel_of_a_network_breaks_a_rule_on_any_target(
    make: Callable[[], onnx.ModelProto], shapes: dict[str, tuple[int, ...]], tmp_path: Path
) -> None:
    found = toolchain.find()
    if isinstance(found, toolchain.Missing):
        pytest.skip(found.reason)
    path = tmp_path / "net.onnx"
    onnx.save(make(), str(path))
    jobs = of_model(path, shapes, audit.TARGETS)
    assert len({target for _, target in jobs}) == 9
    rows = audit.audit(jobs, found, lambda text: None, Cache(tmp_path))
    assert [(row.target, row.name, row.problems) for row in rows if not row.good] == []
    assert len(rows) >= len(jobs)
