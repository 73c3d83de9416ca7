"""Inputs as people write them (``--input x:1x3x224x224``), and seeded random arrays for them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from wavefit.errors import InputError
from wavefit.schema import Dim, TensorSpec

if TYPE_CHECKING:
    import numpy as np

DTYPES = (
    *("float32", "float16", "float64", "bool"),
    *("int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8"),
)
_DIM = re.compile(r"\?|[0-9]+|[A-Za-wyz_][A-Za-wyz0-9_]*")  # a name has no "x": that separates dimensions
_FORM = "write NAME:SHAPE or NAME:SHAPE:TYPE, as in x:1x3x224x224 or ids:Nx128:int64"
_MAX_ELEMENTS = 1 << 31


def parse_input(text: str) -> TensorSpec:
    """Reads ``name:1x3x224x224``, ``name:Nx3x224x224`` or ``name:1x128:int64``.

    The name may hold colons itself ("serving_default_x:0"). A dimension is a size, a name without the letter "x", or
    "?" where nothing is known; "scalar" is the shape of rank 0. The type is float32 where none is given.

    Raises:
        InputError: the text has another form; the message says which part.
    """
    rest, _, last = text.rpartition(":")
    dtype = "float32"
    if last in DTYPES:
        dtype = last
        rest, _, last = rest.rpartition(":")
    elif _looks_like_type(rest, last):
        raise InputError(f"--input {text!r}: unknown type {last!r}", f"known: {', '.join(DTYPES)}")
    shape = _shape(last)
    if not rest or shape is None:
        raise InputError(f"--input {text!r} cannot be read", _FORM)
    _check_sizes(text, shape)
    return TensorSpec(name=rest, dtype=dtype, shape=shape)


def parse_inputs(texts: Sequence[str]) -> tuple[TensorSpec, ...]:
    """Reads several, each of its own name.

    Raises:
        InputError: one cannot be read, or two have the same name.
    """
    specs = tuple(parse_input(text) for text in texts)
    names = [spec.name for spec in specs]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"--input {name!r} is given twice", "give each input once")
    return specs


def parse_axes(texts: Sequence[str]) -> tuple[tuple[str, int], ...]:
    """Reads ``NAME:AXIS`` options.

    Raises:
        InputError: one has no name or no axis.
    """
    axes = []
    for text in texts:
        name, _, axis = text.rpartition(":")
        if not name or not axis.isdecimal():
            raise InputError(f"--dynamic {text!r} is not NAME:AXIS", "write it as x:2")
        axes.append((name, int(axis)))
    return tuple(dict.fromkeys(axes))


def _shape(text: str) -> tuple[Dim, ...] | None:
    if text == "scalar":
        return ()
    parts = text.split("x")
    if not all(_DIM.fullmatch(part) for part in parts):
        return None
    return tuple(_dim(part) for part in parts)


def _looks_like_type(before: str, last: str) -> bool:
    """Whether a shape stands before this already: "x:1x3:float23", but not "tensor:0:N"."""
    name, _, shape = before.rpartition(":")
    found = _shape(shape) if name else None
    return (
        found is not None and 0 not in found and not any(isinstance(dim, int) for dim in _shape(last) or ())
    )


def _dim(part: str) -> Dim:
    if part == "?":
        return None
    return int(part) if part.isdecimal() else part


def _check_sizes(text: str, shape: tuple[Dim, ...]) -> None:
    elements = 1
    for dim in shape:
        if dim == 0:
            raise InputError(f"--input {text!r}: a dimension of 0 holds nothing", "sizes start at 1")
        elements *= dim if isinstance(dim, int) else 1
    if elements > _MAX_ELEMENTS:
        raise InputError(f"--input {text!r} has {elements} elements", f"at most {_MAX_ELEMENTS} are allowed")


def random_array(
    spec: TensorSpec, shape: Sequence[int], rng: np.random.Generator, limit: int = 2
) -> np.ndarray:
    """Standard normal floats, integers below ``limit`` (indices must stay in their table), or fair booleans.

    Raises:
        InputError: of another type, text for one.
    """
    if spec.dtype not in DTYPES:
        raise InputError(
            f"input {spec.name!r} takes {spec.dtype}, for which there is no random data",
            "export it with another type",
        )
    if spec.dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if spec.dtype.startswith(("int", "uint")):
        return rng.integers(0, min(limit, 127), shape).astype(spec.dtype)
    return rng.standard_normal(shape).astype(spec.dtype)
