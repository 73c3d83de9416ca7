"""Whole networks compiled for nine AMD targets: no scratch, no spill, four waves a SIMD, local memory that fits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import onnx
import pytest
from fakes.networks import bert, mobilenet_v2
from native.passes.test_integers import SHAPE, Net, residual

from wavefit.kernels import audit, toolchain
from wavefit.kernels.cache import Cache
from wavefit.native.opencl.audit import of_model


def _resnet50() -> onnx.ModelProto:
    """onnx's own graph, whose weights are constants: the shapes are what is looked at."""
    return onnx.load(Path(onnx.__file__).parent / "backend/test/data/light/light_resnet50.onnx")


NETWORKS: list[tuple[Callable[[], onnx.ModelProto], dict[str, tuple[int, ...]]]] = [
    (_resnet50, {"gpu_0/data_0": (1, 3, 224, 224)}),
    (mobilenet_v2, {"image": (1, 3, 224, 224)}),
    (bert, {"ids": (1, 128), "mask": (1, 128)}),
]


def audited(
    path: Path, shapes: dict[str, tuple[int, ...]], targets: Sequence[str], half: bool = False
) -> list[audit.Row]:
    """The rows of a network's kernels, none of which breaks a rule."""
    found = toolchain.find()
    if isinstance(found, toolchain.Missing):
        pytest.skip(found.reason)
    jobs = of_model(path, shapes, targets, half)
    assert {target for _, target in jobs} == set(targets)
    rows = audit.audit(jobs, found, lambda text: None, Cache(path.parent))
    assert [(row.target, row.name, row.problems) for row in rows if not row.good] == []
    assert len(rows) >= len(jobs)
    return rows


@pytest.mark.slow
@pytest.mark.parametrize(("make", "shapes"), NETWORKS)
def test_no_kernel_of_a_network_breaks_a_rule_on_any_target(
    make: Callable[[], onnx.ModelProto], shapes: dict[str, tuple[int, ...]], tmp_path: Path
) -> None:
    onnx.save(make(), str(tmp_path / "net.onnx"))
    assert len(audit.TARGETS) == 9
    audited(tmp_path / "net.onnx", shapes, audit.TARGETS)


@pytest.mark.slow
@pytest.mark.parametrize(("make", "shapes"), [NETWORKS[0], NETWORKS[2]])
def test_nor_does_one_in_half_whose_products_are_two_at_a_time(
    make: Callable[[], onnx.ModelProto], shapes: dict[str, tuple[int, ...]], tmp_path: Path
) -> None:
    """gfx90c adds in half for a step (v_pk_fma_f16), the others in float (v_dot2_f32_f16)."""
    onnx.save(make(), str(tmp_path / "net.onnx"))
    rows = audited(tmp_path / "net.onnx", shapes, ("gfx90c", "gfx1103", "gfx942"), half=True)
    for target, kind in (("gfx90c", "packed"), ("gfx1103", "dot"), ("gfx942", "dot")):
        having = [
            row
            for row in rows
            if row.target == target and row.resources is not None and row.resources.instructions.get(kind)
        ]
        assert len(having) >= 2, target


@pytest.mark.parametrize("activation", ["uint8", "int8"])
def test_nor_does_a_quantised_one(activation: str, tmp_path: Path) -> None:
    net = Net(activation)
    rows = audited(
        net.save(tmp_path / "net.onnx", residual(net)), {"x": SHAPE}, ("gfx90c", "gfx1035", "gfx1103")
    )
    dotted = {
        row.target for row in rows if row.resources is not None and row.resources.instructions.get("dot")
    }
    assert dotted == {"gfx1035", "gfx1103"}
