"""Pools against ONNX Runtime: windows over edges, dilated, with and without their pads counted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from native.opencl.checks import LIMITS, check, image, numbers, operation, rows, spread  # type: ignore[import-not-found]  # type: ignore[import-not-found]
from native.opencl.harness import run  # type: ignore[import-not-found]

from wavefit.native.opencl import kernels
from wavefit.native.operation import View

pytest.importorskip("pyopencl")

CASES = {
    "resnet's": ((2, 5, 11, 13), (3, 3), (2, 2), (1, 1, 1, 1), (1, 1), 0, 0),
    "uneven": ((1, 8, 9, 10), (3, 2), (2, 1), (1, 0, 2, 1), (1, 1), 0, 1),
    "inside": ((1, 4, 6, 7), (2, 2), (2, 2), (0, 0, 0, 0), (1, 1), 0, 0),
    "rounded up": ((1, 3, 7, 8), (3, 3), (2, 2), (0, 0, 0, 0), (1, 1), 1, 0),
    "signal": ((1, 3, 9), (3,), (1,), (2, 2), (2,), 0, 1),
    "dilated": ((1, 3, 9, 8), (3, 3), (2, 2), (1, 1, 2, 2), (2, 2), 0, 0),
    "volume": ((1, 3, 5, 6, 7), (3, 2, 2), (2, 1, 2), (1, 0, 0, 1, 0, 1), (1, 1, 1), 0, 0),
    "point": ((1, 1, 1, 1), (1, 1), (1, 1), (0, 0, 0, 0), (1, 1), 0, 0),
}


def _onnxruntime(op: str, case: Any, x: np.ndarray) -> np.ndarray:
    onnx = pytest.importorskip("onnx")
    ort = pytest.importorskip("onnxruntime")
    _, kernel, strides, pads, dilations, ceil, padded = case
    more = {"count_include_pad": padded} if op == "AveragePool" else {}
    given = {
        "kernel_shape": kernel,
        "strides": strides,
        "pads": pads,
        "dilations": dilations,
        "ceil_mode": ceil,
    }
    node = onnx.helper.make_node(op, ["x"], ["y"], **given, **more)
    ends = [onnx.helper.make_tensor_value_info(name, 1, [None] * x.ndim) for name in "xy"]
    graph = onnx.helper.make_graph([node], "pool", ends[:1], ends[1:])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 19)], ir_version=9)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": x})[0])


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("name", list(CASES))
@pytest.mark.parametrize("lay", [rows, image])
def test_pools(op: str, name: str, lay: Any) -> None:
    case = CASES[name]
    x = lay(*case[0])
    array = numbers(x)
    want = _onnxruntime(op, case, array)
    names = ("kernel_shape", "strides", "pads", "dilations")
    given = dict(zip(names, case[1:5], strict=True))
    made = operation(op, [x], lay(*want.shape), **given, count_include_pad=case[6])
    vectors = {}
    for config in kernels.get("pool").configurations(made, LIMITS):
        vectors.setdefault(config["vector"], config)
    for config in vectors.values():
        (got,) = run("pool", made, config, [array])
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def _plain(size: int = 2) -> dict[str, Any]:
    return {
        "kernel_shape": (size, size),
        "strides": (1, 1),
        "pads": (0,) * 4,
        "dilations": (1, 1),
        "count_include_pad": 0,
    }


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
def test_halves_in_a_wider_buffer_with_an_epilogue(op: str) -> None:
    x = View(shape=(1, 8, 4, 5), strides=(4 * 5 * 12, 1, 60, 12), offset=4, dtype="float16")
    made = operation(op, [x], image(1, 8, 3, 4), rows(8, 1, 1), **_plain())
    check(made, [numbers(x), numbers(made.input(1), 1)], few=6)


def test_between_two_layouts() -> None:
    made = operation("MaxPool", [rows(2, 3, 5, 6)], image(2, 3, 4, 5), **_plain())
    check(made, [numbers(made.input(0))])
    made = operation("MaxPool", [spread(2, 3, 5, 6)], spread(2, 3, 4, 5), **_plain())
    check(made, [numbers(made.input(0))])


def test_the_largest_of_integers_below_zero() -> None:
    x = image(1, 4, 3, 3, dtype="int8")
    array = -1 - np.abs(numbers(x))
    made = operation("MaxPool", [x], image(1, 4, 2, 2, dtype="int8"), **_plain())
    check(made, [array.astype("int8")])
