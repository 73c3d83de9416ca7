"""The engine and ONNX Runtime's CPU provider in turn, where the user allows it: answers, placement, refusals."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from fakes import partitions

cl = pytest.importorskip("pyopencl")
ort = pytest.importorskip("onnxruntime")
pytest.importorskip("onnx_ir")

from wavefit import routes  # noqa: E402
from wavefit.cli._options import (  # noqa: E402
    DataOptions,
    GoalOptions,
    LoadOptions,
    ShapeOptions,
    WhereOptions,
    build_request,
)
from wavefit.errors import InputError  # noqa: E402
from wavefit.guard.placement import reasons  # noqa: E402
from wavefit.model.load import load  # noqa: E402
from wavefit.schema import Device, Model, Placement, Plan, Request, Runtime, Unsupported  # noqa: E402

ROUTE = "native_opencl"
ALLOWED = Request(routes=(ROUTE,), allow_cpu=True, batches=(2,))


@pytest.fixture(scope="module")
def device() -> Device:
    platform = next(platform for platform in cl.get_platforms() if platform.get_devices())
    runtime = Runtime(name="opencl", version="", platform=platform.name.strip(), index=0)
    return Device(id="cpu", kind="cpu", runtimes=(runtime,))


def _saved(made: onnx.ModelProto, tmp_path: Path) -> Model:
    path = tmp_path / "model.onnx"
    onnx.save(made, str(path))
    return load(path)


@pytest.mark.parametrize(
    ("make", "cpu_nodes"),
    [(partitions.detector, 2), (partitions.sorted_inside, 1), (partitions.chosen_branch, 3)],
)
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_answers_are_onnx_runtimes(
    make: Callable[[], onnx.ModelProto], cpu_nodes: int, precision: str, device: Device, tmp_path: Path
) -> None:
    model = _saved(make(), tmp_path)
    request = Request(routes=(ROUTE,), allow_cpu=True, batches=(2,), precisions=(precision,))
    (plan,) = routes.get(ROUTE).plans([device], model, request)
    assert isinstance(plan, Plan), plan
    assert plan.options["cpu_nodes"] == cpu_nodes
    session = routes.get(ROUTE).open(plan, model, device, tmp_path)
    rng = np.random.default_rng(1)
    inputs = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in plan.shapes.items()}
    got = session.run(inputs)
    want = ort.InferenceSession(model.path, providers=["CPUExecutionProvider"]).run(None, inputs)
    assert list(got) == [spec.name for spec in model.outputs]
    for have, exact in zip(got.values(), want, strict=True):
        assert have.dtype == exact.dtype
        assert have.shape == exact.shape
        bound = 1e-5 if precision == "fp32" else 2e-3
        assert np.linalg.norm(have - exact) <= bound * np.linalg.norm(exact)
    _placed(session.placement(), cpu_nodes)
    assert (session.device_peak_bytes() or 0) > sum(array.nbytes for array in inputs.values())
    session.close()


def _placed(placement: Placement | None, cpu_nodes: int) -> None:
    """Both providers, with their nodes and times; a user who demands the GPU alone is told of the rest."""
    assert placement is not None
    shares = {share.provider: share for share in placement.providers}
    assert shares.keys() == {"native OpenCL", "CPUExecutionProvider"}
    assert all(
        share.nodes > 0 and share.time_s is not None and share.time_s > 0 for share in placement.providers
    )
    assert shares["CPUExecutionProvider"].nodes == cpu_nodes
    assert {node.provider for node in placement.cpu_nodes} == {"CPUExecutionProvider"}
    (told,) = reasons(placement, Device(id="gpu0", kind="gpu"), require_gpu=True)
    assert "ran on the CPU" in told
    assert reasons(placement, Device(id="gpu0", kind="gpu"), require_gpu=False) == ()


def test_streams_answer_in_order(device: Device, tmp_path: Path) -> None:
    model = _saved(partitions.sorted_inside(), tmp_path)
    (plan,) = routes.get(ROUTE).plans([device], model, ALLOWED)
    session = routes.get(ROUTE).open(plan, model, device, tmp_path)
    rng = np.random.default_rng(2)
    batches = [{"image": rng.standard_normal((2, 3, 9, 7)).astype(np.float32)} for _ in range(3)]
    for answer, batch in zip(list(session.stream(batches)), batches, strict=True):
        np.testing.assert_array_equal(answer["y"], session.run(batch)["y"])
    session.close()


def test_without_leave_it_is_refused_and_told_of_the_option(device: Device, tmp_path: Path) -> None:
    model = _saved(partitions.sorted_inside(), tmp_path)
    (refused,) = routes.get(ROUTE).plans([device], model, Request(routes=(ROUTE,)))
    assert isinstance(refused, Unsupported)
    assert "TopK node 'TopK_greatest'" in refused.reason
    assert refused.fix.startswith("add --allow-cpu ")
    (refused,) = routes.get(ROUTE).plans([device], model, Request(routes=(ROUTE,), require_gpu=True))
    assert "--allow-cpu" not in refused.fix


def test_a_part_without_weight_is_refused(device: Device, tmp_path: Path) -> None:
    model = _saved(partitions.nothing_of_weight(), tmp_path)
    (refused,) = routes.get(ROUTE).plans([device], model, ALLOWED)
    assert isinstance(refused, Unsupported)
    assert "none of the model's convolutions and products" in refused.reason


def test_leave_and_its_opposite_are_the_users_mistake() -> None:
    where = WhereOptions(allow_cpu=True, require_gpu=True)
    with pytest.raises(InputError, match="opposites"):
        build_request(ShapeOptions(), DataOptions(), where, LoadOptions(), GoalOptions())
