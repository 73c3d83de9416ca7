"""Products of a few rows against numpy in float64: factors that lie any way, sizes that fit no work-group."""

from __future__ import annotations

import numpy as np
import pytest
from native.opencl.harness import run  # type: ignore[import-not-found]

from wavefit.native import limits as devices
from wavefit.native import specimens
from wavefit.native.opencl import kernels
from wavefit.native.opencl.chooser import Chooser
from wavefit.native.operation import Config, Limits, Operation, View, channels_last, row_major
from wavefit.native.pointwise import Apply, Pointwise

pytest.importorskip("pyopencl")

GPU = Limits(name="a GPU", wave=32, work_group=256, local_bytes=49152, registers=512)
ADD_RELU = Pointwise(
    operands=2, steps=(Apply(function="add", arguments=(0, 1)), Apply(function="relu", arguments=(2,)))
)


def _config(across: int, down: int, split: int = 1, unroll: int = 1) -> Config:
    return {"across": across, "down": down, "split": split, "unroll": unroll}


def _dense(*shape: int, turned: bool = False, dtype: str = "float32") -> View:
    if not turned:
        return View(shape=shape, strides=row_major(shape), dtype=dtype)
    *batch, rows, columns = shape
    strides = list(row_major((*batch, columns, rows)))
    strides[-2], strides[-1] = strides[-1], strides[-2]
    return View(shape=shape, strides=tuple(strides), dtype=dtype)


def _product(a: View, b: View, out: View, added: View | None = None) -> Operation:
    return Operation(
        op="MatMul",
        inputs=(a, b) if added is None else (a, b, added),
        outputs=(out,),
        own=2,
        epilogue=None if added is None else ADD_RELU,
        constant=(False, True, False)[: 2 if added is None else 3],
    )


def _arrays(operation: Operation) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [
        rng.standard_normal(view.shape).astype(view.dtype) for view in operation.inputs if view is not None
    ]


def _check(operation: Operation, config: Config) -> None:
    assert "gemv" in kernels.claiming(operation)
    arrays = _arrays(operation)
    (got,) = run("gemv", operation, config, arrays)
    want = arrays[0].astype(np.float64) @ arrays[1].astype(np.float64)
    if operation.epilogue is not None:
        want = np.maximum(want + arrays[2], 0)
    tolerance = 2e-3 if operation.output.dtype == "float16" else 2e-6
    assert np.linalg.norm(got - want) <= tolerance * np.linalg.norm(want)


@pytest.mark.parametrize("turned", [False, True], ids=["columns", "depth"])
@pytest.mark.parametrize(
    ("rows", "columns", "depth", "config"),
    [
        (1, 1, 1, _config(1, 32)),
        (1, 4, 3, _config(8, 8)),  # less than one step of depth
        (1, 31, 129, _config(8, 8)),  # one column and one step's quarter short of whole work-groups
        (2, 32, 128, _config(8, 8, unroll=2)),
        (3, 33, 131, _config(2, 16, split=2)),
        (8, 37, 67, _config(4, 4)),  # more rows than are added up together
        (5, 68, 256, _config(16, 4, split=4, unroll=2)),
        (1, 20, 64, _config(64, 1)),  # nothing to add up
    ],
)
def test_sizes(turned: bool, rows: int, columns: int, depth: int, config: Config) -> None:
    _check(
        _product(_dense(rows, depth), _dense(depth, columns, turned=turned), _dense(rows, columns)), config
    )


def test_rows_whose_elements_lie_apart() -> None:
    _check(_product(_dense(3, 37, turned=True), _dense(37, 12), _dense(3, 12)), _config(2, 8))


@pytest.mark.parametrize("split", [1, 2])
def test_batches_an_epilogue_and_a_place_in_a_concat(split: int) -> None:
    """Heads of one token's attention: keys lie along the depth, and the result beside other features."""
    heads, length, size = 3, 21, 32
    queries = View(shape=(2, heads, 1, size), strides=(heads * size, size, heads * size, 1))
    keys = View(
        shape=(2, heads, size, length), strides=(length * heads * size, size, 1, heads * size), offset=8
    )
    out = View(shape=(2, heads, 1, length), strides=(100, 30, 100, 1), offset=2)
    _check(_product(queries, keys, out, _dense(2, 1, 1, length)), _config(2, 4, split))


def test_a_shared_factor_makes_batches_rows() -> None:
    _check(_product(_dense(2, 3, 1, 40), _dense(40, 9), _dense(2, 3, 1, 9), _dense(9)), _config(1, 8))


@pytest.mark.parametrize("turned", [False, True])
def test_half_storage(turned: bool) -> None:
    a, b, out = (
        _dense(3, 72, dtype="float16"),
        _dense(72, 20, turned=turned, dtype="float16"),
        _dense(3, 20, dtype="float16"),
    )
    _check(_product(a, b, out), _config(8, 8))


@pytest.mark.parametrize("split", [1, 2])
def test_a_convolution_of_one_pixel(split: int) -> None:
    """Squeeze-and-excitation: x (N, C, 1, 1), which lies in a wider buffer."""
    n, ins, outs = 2, 70, 13
    x = View(shape=(n, ins, 1, 1), strides=(90, 1, 90, 90), offset=4)
    y = View(shape=(n, outs, 1, 1), strides=channels_last((n, outs, 1, 1)))
    weights, bias = _dense(outs, ins, 1, 1), _dense(outs)
    operation = Operation(
        op="Conv",
        inputs=(x, weights, bias, y),
        outputs=(y,),
        attributes={"strides": (1, 1), "pads": (0,) * 4, "dilations": (1, 1), "group": 1},
        constant=(False, True, True, False),
        own=3,
        epilogue=ADD_RELU,
    )
    assert "gemv" in kernels.claiming(operation)
    arrays = _arrays(operation)
    (got,) = run("gemv", operation, _config(1, 8, split), arrays)
    sums = np.einsum("nchw,oc->nohw", arrays[0].astype(np.float64), arrays[1][:, :, 0, 0].astype(np.float64))
    want = np.maximum(sums + arrays[2][:, None, None] + arrays[3], 0)
    assert np.linalg.norm(got - want) <= 2e-6 * np.linalg.norm(want)


@pytest.mark.parametrize("number", [0, 1, -1])
@pytest.mark.parametrize("turned", [False, True])
def test_what_a_gpu_would_take(number: int, turned: bool) -> None:
    operation = _product(_dense(4, 516), _dense(516, 100, turned=turned), _dense(4, 100))
    configs = list(kernels.get("gemv").configurations(operation, GPU))
    assert len(configs) > 3
    _check(operation, configs[number])


def test_many_rows_are_left_to_tiles() -> None:
    assert "gemv" not in kernels.claiming(_product(_dense(9, 8), _dense(8, 8), _dense(9, 8)))
    padded = specimens.conv(specimens.image(1, 8, 1, 1), 8, (1, 1), pad=1)
    assert "gemv" not in kernels.claiming(padded)


@pytest.mark.parametrize("gfx", ["gfx90c", "gfx1030", "gfx1103", "gfx942"])
def test_configurations_keep_to_the_device(gfx: str) -> None:
    held = devices.of_gfx(gfx)
    for operation in (
        _product(_dense(1, 2048), _dense(2048, 1000, turned=True), _dense(1, 1000)),
        _product(_dense(8, 25088), _dense(25088, 4096), _dense(8, 4096)),
        _product(_dense(1, 3), _dense(3, 1), _dense(1, 1)),
    ):
        configs = list(kernels.get("gemv").configurations(operation, held))
        assert configs
        for config in configs:
            made = kernels.get("gemv").build(operation, config)
            (items,) = made.launches[0].kernel.local_size
            assert items % held.wave == 0
            assert items <= held.work_group
            assert made.launches[0].kernel.local_bytes <= held.local_bytes


def test_one_row_is_taken_by_it_and_a_square_is_not() -> None:
    """A classifier's layer reads 8 MB once: whatever a tile does with 7 rows that are not there, it waits longer."""
    chooser = Chooser(devices.of_gfx("gfx1103"))
    row = _product(_dense(1, 2048), _dense(2048, 1000, turned=True), _dense(1, 1000))
    square = _product(_dense(512, 512), _dense(512, 512), _dense(512, 512))
    assert chooser.build(row).template == "gemv"
    assert chooser.build(square).template == "matmul"


def test_what_a_device_can_hardly_hold_is_left_to_tiles() -> None:
    """8 rows take more than the 64 registers that leave 4 waves to a SIMD of GCN."""
    operation = _product(_dense(8, 768), _dense(768, 768), _dense(8, 768))
    assert Chooser(devices.of_gfx("gfx90c")).build(operation).template == "matmul"
    assert Chooser(devices.of_gfx("gfx1103")).build(operation).template == "gemv"
