from __future__ import annotations

import importlib.util
import sys
import tempfile
from pathlib import Path

import pytest
from fakes import linux, software

import wavefit.cli
from wavefit.device import runtimes
from wavefit.doctor import selftest
from wavefit.doctor.checks import selftests
from wavefit.doctor.machine import Machine, this_process
from wavefit.doctor.selftest import LARGEST_ERROR, Order, Outcome, Tested
from wavefit.schema import Failure

CPU = "CPUExecutionProvider"


@pytest.mark.parametrize(
    ("order", "package"),
    [
        (Order(runtime="numpy", gpu=False), "numpy"),
        (Order(runtime="onnxruntime", provider=CPU, gpu=False), "onnxruntime"),
        (Order(runtime="opencl", gpu=False), "pyopencl"),
        pytest.param(Order(runtime="torch", gpu=False), "torch", marks=pytest.mark.torch),
    ],
)
def test_a_runtime_on_the_cpu_is_right(order: Order, package: str) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    tested = selftest.run(order)
    assert isinstance(tested, Tested), tested
    if order.runtime != "opencl":
        assert len(tested.outcomes) == 1
    for outcome in tested.outcomes:
        assert outcome.same
        assert 0 < outcome.error < LARGEST_ERROR, "fp32 is never equal to float64"


def test_a_provider_that_is_not_there_is_a_refusal() -> None:
    failure = selftest.run(Order(runtime="onnxruntime", provider="ROCMExecutionProvider"))
    assert isinstance(failure, Failure)
    assert failure.kind == "refused"
    assert "ROCMExecutionProvider" in failure.reason


def test_a_runtime_past_its_deadline_is_ended() -> None:
    failure = selftest.run(Order(runtime="numpy", gpu=False), deadline_s=0.01)
    assert isinstance(failure, Failure)
    assert failure.kind == "timeout"


def test_a_second_copy_that_hangs_points_to_sdma(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HSA_ENABLE_SDMA", raising=False)
    failure = Failure(kind="timeout", stage=selftest.SECOND_COPY, reason="no answer")
    finding = selftests.judged(Order(runtime="torch"), failure)
    assert finding.status == "problem"
    assert "SDMA" in finding.cause
    assert [fix.command for fix in finding.fixes] == ["export HSA_ENABLE_SDMA=0"]
    elsewhere = selftests.judged(
        Order(runtime="torch"), Failure(kind="timeout", stage="matmul", reason="no answer")
    )
    assert elsewhere.fixes == ()
    monkeypatch.setenv("HSA_ENABLE_SDMA", "0")
    assert selftests.judged(Order(runtime="torch"), failure).fixes == (), "it is set already"


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        (Outcome(device="d", error=3e-7, same=True), "ok"),
        (Outcome(device="d", error=3e-4, same=True), "problem"),
        (Outcome(device="d", error=1e9, same=True), "problem"),
        (Outcome(device="d", error=3e-7, same=False), "problem"),
    ],
)
def test_the_verdict_on_an_outcome(outcome: Outcome, status: str) -> None:
    right = Outcome(device="other", error=3e-7, same=True)
    finding = selftests.judged(Order(runtime="opencl"), Tested(outcomes=(right, outcome)))
    assert finding.status == status
    assert any(outcome.device in line for line in finding.evidence)


def test_what_is_tried_follows_from_what_is_here(tmp_path: Path) -> None:
    packages = {"onnxruntime": "1.32.0", "pyopencl": "2026.1", "torch": "2.9.0"}
    without = software.machine(tmp_path / "none", gpus="", packages=packages)
    assert [(order.runtime, order.gpu) for order in selftests.orders(without)] == [
        ("numpy", False),
        ("onnxruntime", False),
        ("opencl", False),
    ]
    wrong = software.machine(tmp_path / "cuda", packages=packages, installed={"torch": software.CUDA})
    assert [order.runtime for order in selftests.orders(wrong)] == ["hip", "opencl"], "no CUDA build"
    more = {"onnxruntime-migraphx": "1.27.1"}
    right = software.machine(tmp_path / "rocm", packages=more, installed={"torch": software.ROCM})
    assert [order.provider for order in selftests.orders(right)] == ["", "", "MIGraphXExecutionProvider"]


def test_hip_is_not_tried_where_the_compute_driver_leaves_every_gpu_out(tmp_path: Path) -> None:
    """kernel_version tells that; a HIP that sees nothing would say it again."""
    linux.without_compute(linux.healthy(tmp_path))
    assert [order.runtime for order in selftests.orders(linux.machine(tmp_path))] == ["numpy"]


def test_in_wsl_hip_is_tried_though_linux_names_no_gpu(tmp_path: Path) -> None:
    wsl = software.machine(tmp_path, gpus="", files={"dev/dxg": ""})
    assert [order.runtime for order in selftests.orders(wsl)] == ["hip"]


def test_nothing_runs_for_a_recorded_machine(tmp_path: Path) -> None:
    assert selftests.check(software.machine(tmp_path)) == []


def test_a_machine_that_cannot_be_written_is_told_what_was_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """tempfile tries its folders in turn, and none of them can be written."""
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: ["/proc/none"])
    (found,) = selftests.check(Machine(process=this_process()))
    assert (found.status, "self-tests were not run" in found.title) == ("note", True)
    seen = runtimes.ask_all(lambda text: None)
    assert seen
    assert all(each.note is not None for each in seen if each.version is None)
    monkeypatch.setattr(sys, "argv", ["wavefit", "doctor", "--root", __file__])  # would be unpacked there
    with pytest.raises(SystemExit) as stop:
        wavefit.cli.main()
    assert stop.value.code == 1


def test_this_machine_passes() -> None:
    found = selftests.check(Machine(process=this_process()))
    assert found
    assert {finding.check for finding in found} == {"selftests"}
