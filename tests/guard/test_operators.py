"""The float64 run's own operators against ONNX's conformance cases, and against PyTorch in double."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from wavefit.guard import operators
from wavefit.guard.resize import Resize

OURS = [*operators.FAST, Resize]

COUNTS = {"conv": 6, "convtranspose": 11, "maxpool": 18, "averagepool": 19, "resize": 39}
"""Fewest conformance cases that each of onnx's modules has held since 1.17."""

CORRECTED = ("test_averagepool_3d_dilations_large_count_include_pad_is_1_ceil_mode_is_True",)
"""Cases whose expected values onnx has since changed: others in 1.17 than in 1.23."""


def conformance(module: str) -> list[Any]:
    """ONNX's own node cases: a model, its inputs and the outputs expected."""
    from onnx.backend.test.case import node

    loaded = importlib.import_module(f"{node.__name__}.{module}")
    kind = next(name for name in vars(loaded) if name.lower() == module)
    return [case for case in node._NodeTestCases if case.model.graph.node[0].op_type == kind]


@pytest.mark.parametrize("module", sorted(COUNTS))
def test_onnx_conformance(module: str) -> None:
    cases = conformance(module)
    assert len(cases) >= COUNTS[module]
    for case in cases:
        if case.name in CORRECTED and tuple(map(int, onnx.__version__.split(".")[:2])) < (1, 23):
            continue
        evaluator = ReferenceEvaluator(case.model, new_ops=OURS)
        assert type(evaluator.rt_nodes_[0]) in OURS
        for inputs, outputs in case.data_sets:
            feeds = dict(zip(evaluator.input_names, inputs, strict=True))
            for have, want in zip(evaluator.run(None, feeds), outputs, strict=True):
                assert have.shape == want.shape, case.name
                np.testing.assert_allclose(have, want, rtol=case.rtol, atol=1e-6, err_msg=case.name)


def run(op: str, arrays: list[np.ndarray], **attributes: Any) -> np.ndarray:
    """One node in float64."""
    names = [f"x{index}" for index in range(len(arrays))]
    node = helper.make_node(op, names, ["y"], **attributes)
    values = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in zip(names, arrays, strict=True)
    ]
    output = helper.make_tensor_value_info("y", TensorProto.DOUBLE, None)
    model = helper.make_model(
        helper.make_graph([node], "g", values, [output]), opset_imports=[helper.make_opsetid("", 19)]
    )
    evaluator = ReferenceEvaluator(model, new_ops=OURS)
    return evaluator.run(None, dict(zip(names, arrays, strict=True)))[0]


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape)


CONVOLUTIONS = [  # input, weights, stride, padding, dilation, groups
    ((2, 3, 12, 11), (4, 3, 3, 3), (1, 1), (1, 1), (1, 1), 1),
    ((1, 8, 13, 9), (8, 1, 3, 5), (2, 1), (0, 2), (1, 1), 8),
    ((3, 6, 10, 10), (4, 3, 3, 3), (3, 2), (2, 1), (2, 3), 2),
    ((2, 4, 20), (6, 4, 5), (2,), (3,), (2,), 1),
    ((1, 2, 6, 7, 5), (3, 2, 2, 3, 2), (1, 2, 1), (1, 0, 1), (1, 1, 2), 1),
    ((1, 16, 1, 1), (32, 16, 1, 1), (1, 1), (0, 0), (1, 1), 1),
]


@pytest.mark.torch
@pytest.mark.parametrize(("x", "w", "stride", "padding", "dilation", "groups"), CONVOLUTIONS)
def test_conv_is_torch_in_double(
    x: Any, w: Any, stride: Any, padding: Any, dilation: Any, groups: int
) -> None:
    torch = pytest.importorskip("torch")
    a, b, bias = normal(*x), normal(*w), normal(w[0])
    have = run("Conv", [a, b, bias], strides=stride, pads=padding * 2, dilations=dilation, group=groups)
    function = getattr(torch.nn.functional, f"conv{len(stride)}d")
    want = function(*map(torch.from_numpy, (a, b, bias)), stride, padding, dilation, groups).numpy()
    assert have.dtype == np.float64
    np.testing.assert_allclose(have, want, rtol=1e-12, atol=1e-12)


@pytest.mark.torch
@pytest.mark.parametrize(
    ("stride", "padding", "extra", "dilation", "groups"),
    [
        ((1, 1), (0, 0), (0, 0), (1, 1), 1),
        ((2, 3), (1, 2), (1, 0), (1, 2), 2),
        ((3, 2), (0, 1), (2, 1), (2, 1), 1),
    ],
)
def test_conv_transpose_is_torch_in_double(
    stride: Any, padding: Any, extra: Any, dilation: Any, groups: int
) -> None:
    torch = pytest.importorskip("torch")
    a, b, bias = normal(2, 4, 7, 6), normal(4, 3, 3, 4), normal(3 * groups)
    have = run(
        "ConvTranspose",
        [a, b, bias],
        strides=stride,
        pads=padding * 2,
        output_padding=extra,
        dilations=dilation,
        group=groups,
    )
    want = torch.nn.functional.conv_transpose2d(
        *map(torch.from_numpy, (a, b, bias)), stride, padding, extra, groups, dilation
    ).numpy()
    np.testing.assert_allclose(have, want, rtol=1e-12, atol=1e-12)


@pytest.mark.torch
@pytest.mark.parametrize("ceil", [False, True])
@pytest.mark.parametrize(
    ("kernel", "stride", "padding"),
    [((3, 3), (2, 2), (1, 1)), ((2, 5), (3, 2), (0, 2)), ((2, 2), (2, 2), (0, 0))],
)
def test_pools_are_torch_in_double(kernel: Any, stride: Any, padding: Any, ceil: bool) -> None:
    torch = pytest.importorskip("torch")
    x = normal(2, 3, 11, 14)
    settings = {"kernel_shape": kernel, "strides": stride, "pads": padding * 2, "ceil_mode": int(ceil)}
    tensor, functional = torch.from_numpy(x), torch.nn.functional
    want = functional.max_pool2d(tensor, kernel, stride, padding, ceil_mode=ceil).numpy()
    np.testing.assert_array_equal(run("MaxPool", [x], **settings), want)
    for counted in (False, True):
        want = functional.avg_pool2d(tensor, kernel, stride, padding, ceil, counted).numpy()
        have = run("AveragePool", [x], count_include_pad=int(counted), **settings)
        np.testing.assert_allclose(have, want, rtol=1e-12, atol=1e-14)


@pytest.mark.torch
@pytest.mark.parametrize(
    ("mode", "corners"), [("nearest", None), ("linear", False), ("linear", True), ("cubic", False)]
)
@pytest.mark.parametrize("size", [(22, 28), (7, 31), (11, 14)])
def test_resize_is_torch_in_double(mode: str, corners: bool | None, size: tuple[int, int]) -> None:
    torch = pytest.importorskip("torch")
    x = normal(2, 3, 11, 14)
    coordinates = {None: "asymmetric", False: "pytorch_half_pixel", True: "align_corners"}[corners]
    have = run(
        "Resize",
        [x, np.zeros(0), np.zeros(0), np.array([2, 3, *size])],
        mode=mode,
        coordinate_transformation_mode=coordinates,
        nearest_mode="floor",
    )
    torch_mode = {"nearest": "nearest", "linear": "bilinear", "cubic": "bicubic"}[mode]
    want = torch.nn.functional.interpolate(torch.from_numpy(x), size, mode=torch_mode, align_corners=corners)
    np.testing.assert_allclose(have, want.numpy(), rtol=1e-12, atol=1e-12)


def test_conv_in_blocks_equals_conv_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = [normal(2, 6, 17, 9), normal(4, 3, 3, 3)]
    whole = run("Conv", arrays, group=2, strides=[2, 1], pads=[1, 1, 1, 1])
    monkeypatch.setattr(operators, "_BLOCK", 1)
    np.testing.assert_allclose(
        run("Conv", arrays, group=2, strides=[2, 1], pads=[1, 1, 1, 1]), whole, rtol=1e-13
    )
