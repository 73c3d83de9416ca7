"""Inputs as people write them."""

from __future__ import annotations

import numpy as np
import pytest

from wavefit.errors import InputError
from wavefit.model.inputs import parse_axes, parse_input, parse_inputs, random_array
from wavefit.schema import TensorSpec


@pytest.mark.parametrize(
    ("text", "name", "dtype", "shape"),
    [
        ("x:1x3x224x224", "x", "float32", (1, 3, 224, 224)),
        ("x:1x3x224x224:float16", "x", "float16", (1, 3, 224, 224)),
        ("x:Nx3x224x224", "x", "float32", ("N", 3, 224, 224)),
        ("ids:batchxseq:int64", "ids", "int64", ("batch", "seq")),
        ("x:?x3", "x", "float32", (None, 3)),
        ("t:scalar", "t", "float32", ()),
        ("t:7", "t", "float32", (7,)),
        ("serving_default_x:0:1x28x28", "serving_default_x:0", "float32", (1, 28, 28)),
        ("serving_default_x:0:1x28x28:uint8", "serving_default_x:0", "uint8", (1, 28, 28)),
        ("a/b:2x2", "a/b", "float32", (2, 2)),
    ],
)
def test_reads_name_shape_and_type(text, name, dtype, shape):
    assert parse_input(text) == TensorSpec(name=name, dtype=dtype, shape=shape)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "cannot be read"),
        ("x", "cannot be read"),
        (":1x3", "cannot be read"),
        ("x:", "cannot be read"),
        ("x:1x", "cannot be read"),
        ("x:1xx3", "cannot be read"),
        ("x:1,3,224", "cannot be read"),
        ("x:-1x3", "cannot be read"),
        ("x:1.5x3", "cannot be read"),
        ("x:1x3:float23", "unknown type 'float23'"),
        ("x:1x3:fp-32", "unknown type 'fp-32'"),
        ("x:0x3", "a dimension of 0"),
        ("x:99999x99999x99999", "elements"),
    ],
)
def test_refuses_in_one_sentence(text, says):
    with pytest.raises(InputError, match=says) as caught:
        parse_input(text)
    assert "\n" not in str(caught.value)


def test_refuses_the_same_name_twice():
    with pytest.raises(InputError, match="'x' is given twice"):
        parse_inputs(["x:1x3", "y:1", "x:1x4"])


def test_reads_axes():
    assert parse_axes(["x:2", "serving_default_x:0:3", "x:2"]) == (("x", 2), ("serving_default_x:0", 3))


@pytest.mark.parametrize("text", ["x", "x:", ":2", "x:height", "x:-1"])
def test_refuses_what_is_no_axis(text):
    with pytest.raises(InputError, match="NAME:AXIS"):
        parse_axes([text])


def test_no_random_text():
    with pytest.raises(InputError, match="'x' takes string, for which there is no random data"):
        random_array(TensorSpec(name="x", dtype="string", shape=(1,)), (1,), np.random.default_rng(0))


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int64", "uint8", "int8", "bool"])
def test_random_arrays_repeat_and_stay_in_their_table(dtype):
    spec = TensorSpec(name="x", dtype=dtype, shape=(4, 50))
    arrays = [random_array(spec, (4, 50), np.random.default_rng(7), limit=3) for _ in range(2)]
    assert arrays[0].dtype.name == dtype
    assert np.array_equal(arrays[0], arrays[1])
    assert len(np.unique(arrays[0])) > 1
    if dtype in ("int64", "uint8", "int8"):
        assert set(np.unique(arrays[0])) == {0, 1, 2}
