"""The self-test's file: what it says, how it goes on after a crash, and that its references are ONNX's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from wavefit.errors import InputError, RouteError
from wavefit.native import specimens
from wavefit.native.opencl import kernels, selftest
from wavefit.native.operation import Limits, Operation
from wavefit.native.reference import compute
from wavefit.schema import Device, Runtime

cl = pytest.importorskip("pyopencl")

LIMITS = Limits(name="a GPU", wave=32, registers=1024, waves=16, simds=2, dot=True, fp16=True)


def device_here() -> Device:
    """The first OpenCL device."""
    try:
        platform = next(each for each in cl.get_platforms() if each.get_devices())
    except (cl.LogicError, StopIteration):
        pytest.skip("no OpenCL device is here")
    seen = Runtime(name="opencl", index=0, platform=platform.name.strip())
    return Device(id="here", kind="cpu", runtimes=(seen,))


def test_every_template_is_run() -> None:
    tested = {case.template for case in selftest.cases(LIMITS)}
    assert set(kernels.names()) - tested == set(), "give specimens.odd() an operation for them"


def test_names_are_unique() -> None:
    names = [case.name for case in selftest.cases(LIMITS)]
    assert len(names) == len(set(names))


def test_a_run_goes_on_after_the_case_that_ended_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = [case for case in selftest.cases(LIMITS) if case.template == "softmax"][:4]
    monkeypatch.setattr(selftest, "cases", lambda _: iter(few))
    file, device = tmp_path / "test.jsonl", device_here()
    selftest.append(file, selftest._head(device))
    selftest.append(file, selftest.Begun(case=few[0].name))  # and then the machine went down
    said: list[str] = []
    summary = selftest.selftest(device, file, tmp_path / "work", said.append)
    assert f"{few[3].name}, 4 of 4" in said
    assert summary.right == 3
    assert summary.not_right == (few[0].name,)
    assert "3 of 4 cases are right" in summary.sentence
    results = [line for line in selftest.read(file) if isinstance(line, selftest.Result)]
    assert [line.verdict for line in results] == ["crash", "right", "right", "right"]
    assert all(line.error is not None and line.error < 1e-5 for line in results[1:])
    before = file.read_bytes()
    again = selftest.selftest(device, file, tmp_path / "work", lambda _: None)
    assert again == summary
    assert file.read_bytes().startswith(before)  # nothing ran twice: a summary alone was added
    assert len(selftest.read(file)) == len(before.splitlines()) + 1


def test_a_child_that_never_comes_to_a_case_ends_the_test(tmp_path: Path) -> None:
    with pytest.raises(RouteError, match="no answer within the deadline"):
        selftest.selftest(device_here(), tmp_path / "test.jsonl", tmp_path / "work", lambda _: None, 0.05)


def test_another_devices_file_is_left_alone(tmp_path: Path) -> None:
    file, device = tmp_path / "test.jsonl", device_here()
    head = selftest._head(device)
    selftest.append(file, msgspec.structs.replace(head, driver="another"))
    with pytest.raises(InputError, match="another device, driver or version"):
        selftest.selftest(device, file, tmp_path / "work", lambda _: None)


@pytest.mark.parametrize("content", [b"", b"{}\n", b"hello\n", b'{"type":"begun","case":"a"}\n'])
def test_what_is_no_self_test_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "test.jsonl"
    file.write_bytes(content)
    with pytest.raises(InputError, match="is no file of a self-test"):
        selftest.read(file)


def _onnx(operation: Operation, arrays: list[np.ndarray | None]) -> np.ndarray:
    """The same node by onnx's own reference, without its epilogue."""
    from onnx import helper
    from onnx.reference import ReferenceEvaluator

    own = [each for each in arrays[: operation.own] if each is not None]
    names = [f"i{number}" for number in range(len(own))]
    attributes = {
        key: list(value) if isinstance(value, tuple) else value for key, value in operation.attributes.items()
    }
    if operation.op == "Softmax":
        op = "LogSoftmax" if attributes.pop("log") else "Softmax"
    else:
        op = operation.op
    if op in ("Resize", "Pad"):
        return _with_numbers_as_inputs(op, own[0], attributes)
    if op == "MaxPool":
        attributes.pop("count_include_pad")
    node = helper.make_node(op, names, ["o"], **attributes)
    return ReferenceEvaluator(node).run(None, dict(zip(names, own, strict=True)))[0]


def _with_numbers_as_inputs(op: str, x: np.ndarray, attributes: dict[str, Any]) -> np.ndarray:
    from onnx import helper
    from onnx.reference import ReferenceEvaluator

    given: dict[str, np.ndarray] = {"x": x}
    names = ["x", "", "scales"] if op == "Resize" else ["x", "pads", "value"]
    if op == "Resize":
        given["scales"] = np.array(attributes.pop("scales"), np.float32)
        attributes.pop("extrapolation_value")
    else:
        given["pads"] = np.array(attributes.pop("pads"), np.int64)
        given["value"] = np.array(attributes.pop("value", 0.0), np.float32)
    node = helper.make_node(op, names, ["o"], **attributes)
    return ReferenceEvaluator(node).run(None, given)[0]


@pytest.mark.parametrize(
    "name",
    [
        "3x3 stride 2 odd",
        "3x3 groups, dilated",
        "depthwise 5x5 stride 2",
        "1-D",
        "transposed 3x3",
        "max pool",
        "average pool",
        "average pool with padding",
        "softmax over channels",
        "log-softmax",
        "layer norm",
        "instance norm",
        "words",
        "nearest",
        "linear",
        "pad",
        "mirrored",
        "largest",
        "batch, second turned",
    ],
)
def test_references_are_onnxs(name: str) -> None:
    operation = specimens.odd()[name]
    arrays = selftest.data(operation)
    want = _onnx(operation, arrays)
    np.testing.assert_allclose(compute(operation, arrays), want, rtol=1e-4, atol=1e-4)


def test_lrn_is_onnx_runtimes() -> None:
    """Not onnx's own reference, whose window ends elsewhere."""
    ort = pytest.importorskip("onnxruntime")
    from onnx import TensorProto, helper

    operation = specimens.odd()["lrn"]
    (x,) = selftest.data(operation)
    assert x is not None
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, x.shape) for name in "xy"]
    graph = helper.make_graph(
        [helper.make_node("LRN", ["x"], ["y"], **operation.attributes)], "g", *([e] for e in ends)
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(compute(operation, [x]), session.run(None, {"x": x})[0], rtol=1e-5, atol=1e-6)
