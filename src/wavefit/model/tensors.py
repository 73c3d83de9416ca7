"""The tensors that a model stores: how many bytes they declare, how many are there, and whether they are finite.

Nothing here takes memory by a declared size: sizes are held against the bytes present first.
"""

from __future__ import annotations

import math
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from wavefit.errors import InputError
from wavefit.model.graph import Stored

# onnx.proto's TensorProto.DataType -> numpy's name, bits of one element, the typed field that may hold it.
TYPES: dict[int, tuple[str, int, str]] = {
    1: ("float32", 32, "float_data"),
    2: ("uint8", 8, "int32_data"),
    3: ("int8", 8, "int32_data"),
    4: ("uint16", 16, "int32_data"),
    5: ("int16", 16, "int32_data"),
    6: ("int32", 32, "int32_data"),
    7: ("int64", 64, "int64_data"),
    8: ("string", 0, "string_data"),
    9: ("bool", 8, "int32_data"),
    10: ("float16", 16, "int32_data"),
    11: ("float64", 64, "double_data"),
    12: ("uint32", 32, "uint64_data"),
    13: ("uint64", 64, "uint64_data"),
    14: ("complex64", 64, "float_data"),
    15: ("complex128", 128, "double_data"),
    16: ("bfloat16", 16, "int32_data"),
    17: ("float8_e4m3fn", 8, "int32_data"),
    18: ("float8_e4m3fnuz", 8, "int32_data"),
    19: ("float8_e5m2", 8, "int32_data"),
    20: ("float8_e5m2fnuz", 8, "int32_data"),
    21: ("uint4", 4, "int32_data"),
    22: ("int4", 4, "int32_data"),
    23: ("float4_e2m1fn", 4, "int32_data"),
    24: ("float8_e8m0fnu", 8, "int32_data"),
    25: ("uint2", 2, "int32_data"),
    26: ("int2", 2, "int32_data"),
}

EXTERNAL = 1  # TensorProto.DataLocation

# Float type -> unsigned integer of its size, its exponent bits, its mantissa bits: NaN and Inf have all exponent bits.
_FLOATS: dict[int, tuple[str, int, int]] = {
    1: ("<u4", 0x7F800000, 0x007FFFFF),
    10: ("<u2", 0x7C00, 0x03FF),
    11: ("<u8", 0x7FF0000000000000, 0x000FFFFFFFFFFFFF),
    16: ("<u2", 0x7F80, 0x007F),
}
_CHUNK = 1 << 22  # elements looked at at once


def elements(tensor: Any) -> int:
    return math.prod(tensor.dims)


def needed_bytes(tensor: Any) -> int:
    """Bytes that the declared shape and type take when packed."""
    return -(-elements(tensor) * TYPES[tensor.data_type][1] // 8)


def check_size(item: Stored, folder: Path) -> None:
    """Holds a tensor's declared shape against the data that are there.

    Raises:
        InputError: an unknown type, a negative dimension, more or less data than declared, or external data that
            is missing, too short, or not a plain file below ``folder``.
    """
    tensor, label = item.tensor, item.label
    if tensor.data_type not in TYPES:
        raise InputError(
            f"{label} has the unknown element type {tensor.data_type}", "update the package onnx"
        )
    if any(dim < 0 for dim in tensor.dims):
        raise InputError(f"{label} has a negative dimension: {list(tensor.dims)}", "export the model again")
    shape = "x".join(map(str, tensor.dims)) or "scalar"
    name = TYPES[tensor.data_type][0]
    if tensor.data_location == EXTERNAL:
        present, needed, unit = external_range(item, folder)[2], needed_bytes(tensor), "bytes"
    elif tensor.HasField("raw_data"):
        present, needed, unit = len(tensor.raw_data), needed_bytes(tensor), "bytes"
    else:
        present, needed, unit = len(getattr(tensor, TYPES[tensor.data_type][2])), _values(tensor), "values"
    if present != needed:
        raise InputError(
            f"{label} declares {name} {shape}, {needed} {unit}, but holds {present}",
            "the file is damaged or was tampered with: export or download it again",
        )


def _values(tensor: Any) -> int:
    """Entries of the typed field: complex numbers take two, types below a byte share one."""
    bits = TYPES[tensor.data_type][1]
    if tensor.data_type in (14, 15):
        return 2 * elements(tensor)
    return -(-elements(tensor) * bits // 8) if 0 < bits < 8 else elements(tensor)


def external_range(item: Stored, folder: Path) -> tuple[Path, int, int]:
    """Where an external tensor's data lie: file, offset and length in bytes.

    Raises:
        InputError: the entry is malformed, or points outside ``folder`` or the file.
    """
    entries = {entry.key: entry.value for entry in item.tensor.external_data}
    if len(entries) != len(item.tensor.external_data):
        raise InputError(f"{item.label} has an external-data key twice", "export the model again")
    path = external_path(item, entries.get("location", ""), folder)
    size = path.stat().st_size
    offset = _number(item, entries, "offset", 0)
    length = _number(item, entries, "length", max(size - offset, 0))
    if offset + length > size:
        raise InputError(
            f"{item.label} lies at bytes {offset} to {offset + length} of {path}, which has only {size}",
            "copy or download the whole file again",
        )
    return path, offset, length


def external_path(item: Stored, location: str, folder: Path) -> Path:
    """The external file, after checking that it is a plain file below the model's own folder."""
    parts = re.split(r"[/\\]", location)
    if (
        not location
        or location.startswith(("/", "\\"))
        or ".." in parts
        or ":" in parts[0]
        or "\0" in location
    ):
        raise InputError(
            f"{item.label} takes its data from {location!r}, outside the model's folder",
            "only files below the folder of the .onnx file are read: move the data there and save the model again",
        )
    path = folder / location
    try:
        info = path.lstat()
        inside = path.parent.resolve().is_relative_to(folder.resolve())
    except OSError as error:
        raise InputError(
            f"{item.label} takes its data from {path}, which cannot be read: {error.strerror}",
            "put the data file back beside the model",
        ) from error
    linked, regular = stat.S_ISLNK(info.st_mode), stat.S_ISREG(info.st_mode)
    # The package onnx and ONNX Runtime refuse linked data too, as it may lead to any file of the machine.
    if linked or (regular and (info.st_nlink > 1 or not inside)):
        raise InputError(f"{path}, the data of {item.label}, is a link", "copy the real file there: cp -L")
    if not regular or not os.access(path, os.R_OK):
        raise InputError(
            f"{path}, the data of {item.label}, is not a readable file", "copy the real file there"
        )
    return path


def _number(item: Stored, entries: dict[str, str], key: str, default: int) -> int:
    text = entries.get(key)
    if text is None:
        return default
    if not re.fullmatch(r"[0-9]{1,19}", text, re.ASCII):
        raise InputError(
            f"{item.label} has the external-data {key} {text!r}", "it must be a whole number, 0 or more"
        )
    return int(text)


def check_finite(item: Stored, folder: Path) -> None:
    """Refuses NaN and Inf in a float tensor (float8 and narrower are not looked at).

    A tensor of nothing but zeros and infinities is an attention mask, and a scalar in a Constant node may be any
    number: both are let through.

    Raises:
        InputError: with the tensor's name and how many values.
    """
    tensor = item.tensor
    if tensor.data_type not in _FLOATS or (item.constant and elements(tensor) == 1):
        return
    nan = inf = other = 0
    for bits in _chunks(item, folder):
        _, exponent, mantissa = _FLOATS[tensor.data_type]
        special = (bits & bits.dtype.type(exponent)) == bits.dtype.type(exponent)
        count = int(np.count_nonzero(special))
        nans = int(np.count_nonzero(bits[special] & bits.dtype.type(mantissa))) if count else 0
        nan, inf = nan + nans, inf + count - nans
        other += int(np.count_nonzero(bits & bits.dtype.type(exponent | mantissa))) - count
    if nan or (inf and other):
        found = " and ".join(f"{n} {what}" for n, what in ((nan, "NaN"), (inf, "Inf")) if n)
        raise InputError(
            f"{item.label} holds {found} among its {elements(tensor)} values",
            "train or export the model again",
        )


def _chunks(item: Stored, folder: Path) -> Iterator[np.ndarray]:
    """The bit patterns of a float tensor, a few MB at a time; external data by mmap."""
    tensor = item.tensor
    kind = np.dtype(_FLOATS[tensor.data_type][0])
    data: np.ndarray
    if not elements(tensor):
        return
    if tensor.data_location == EXTERNAL:
        path, offset, length = external_range(item, folder)
        data = np.memmap(path, dtype=np.uint8, mode="r", offset=offset, shape=(length,)).view(kind)
    elif tensor.HasField("raw_data"):
        data = np.frombuffer(tensor.raw_data, dtype=kind)
    elif tensor.data_type in (1, 11):
        values = tensor.float_data if tensor.data_type == 1 else tensor.double_data
        data = np.array(values, dtype=f"<f{kind.itemsize}").view(kind)
    else:  # float16 and bfloat16 as integers
        data = (np.array(tensor.int32_data, dtype=np.int64) & 0xFFFF).astype(kind)
    for start in range(0, data.size, _CHUNK):
        yield data[start : start + _CHUNK]
