"""Sample data from ``.npz`` and ``.npy`` files: headers are held against the model before an array is read."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from wavefit.errors import InputError
from wavefit.model.samples import (
    Samples,
    check_bytes,
    check_labels,
    item_shapes,
    numpy_dtype,
    whole_inputs,
)
from wavefit.schema import Model

_LABELS = "labels"


@dataclass(frozen=True)
class _Header:
    """What an array's header says, and the bytes that follow it."""

    shape: tuple[int, ...]
    dtype: np.dtype
    data_bytes: int


def load_arrays(model: Model, path: Path, labels: Path | None, sizes: Mapping[str, int]) -> Samples:
    """Reads an ``.npz`` with one array an input and, if wished, ``labels``; or an ``.npy`` for the only input.

    Raises:
        InputError: no such array, another type or shape than the model takes, NaN or infinite values, a damaged
            file, more data than may be taken, or labels that do not fit.
    """
    names = [spec.name for spec in model.inputs]
    if path.suffix == ".npy":
        if len(names) != 1:
            raise InputError(
                f"{path} holds one array, the model takes {len(names)} inputs ({', '.join(names)})",
                "give an .npz with an array for each",
            )
        headers = {names[0]: _npy_header(path)}
    else:
        headers = _npz_headers(path)
    with_labels = _LABELS in headers and _LABELS not in names
    _check_headers(model, path, headers, sizes)
    arrays = _read(path, [*names, *([_LABELS] if with_labels else [])])
    inputs = {name: arrays[name] for name in names}
    for name, array in inputs.items():
        _check_values(path, name, array)
    whole = whole_inputs(model)
    samples = Samples(inputs, None, f"{path.name}", whole)
    given = read_labels(labels) if labels is not None else arrays.get(_LABELS)
    if given is None:
        return samples
    where = str(labels) if labels is not None else f"{path}, array {_LABELS!r}"
    return Samples(inputs, check_labels(model, given, samples.count, where), samples.source, whole)


def load_array(model: Model, name: str, path: Path) -> np.ndarray:
    """One input's array from an ``.npy``; its shape is left to whoever runs it.

    Raises:
        InputError: the file is missing, damaged, of another type, too large, or holds NaN or infinite values.
    """
    if path.suffix != ".npy":
        raise InputError(f"{path} is no .npy", f"give --input {name}=FILE.npy")
    header = _npy_header(path)
    spec = next(spec for spec in model.inputs if spec.name == name)
    if header.dtype != numpy_dtype(spec):
        raise InputError(
            f"{path} is {header.dtype}, input {name!r} takes {spec.dtype}",
            f"save it as .astype({spec.dtype!r})",
        )
    check_bytes({name: (header.shape, header.dtype)}, str(path))
    array = _read(path, [name])[name]
    _check_values(path, name, array)
    return array


def read_labels(path: Path) -> np.ndarray:
    """Class numbers from a text file, one a line, or from an ``.npy``.

    Raises:
        InputError: a line is no integer, or the file is empty or no text.
    """
    if path.suffix == ".npy":
        header = _npy_header(path)
        check_bytes({"labels": (header.shape, header.dtype)}, str(path))
        return _read(path, ["labels"])["labels"]
    lines = text_lines(path)
    for number, line in enumerate(lines, 1):
        if not is_integer(line):
            raise InputError(
                f"{path}, line {number}: {line!r} is not a class number", "write one integer a line"
            )
    return np.array([int(line) for line in lines], np.int64)


def text_lines(path: Path) -> list[str]:
    """The lines of a label file, blank ones left out.

    Raises:
        InputError: it is no text, or has no line.
    """
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (UnicodeDecodeError, OSError) as error:
        raise InputError(f"{path} could not be read as text: {error}") from error
    if not lines:
        raise InputError(f"{path} is empty", "write one class number a line")
    return lines


def is_integer(text: str) -> bool:
    """Whether text is a class number that fits 64 bits."""
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdigit() and len(digits) < 19


def _npz_headers(path: Path) -> dict[str, _Header]:
    try:
        with zipfile.ZipFile(path) as archive:
            entries = {entry.filename.removesuffix(".npy"): entry for entry in archive.infolist()}
            headers = {}
            for name, entry in entries.items():
                with archive.open(entry) as file:
                    headers[name] = _header(file, entry.file_size, f"{path}, array {name!r}")
            return headers
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, OSError, EOFError) as error:
        raise InputError(f"{path} is not a readable .npz: {error}") from error


def _npy_header(path: Path) -> _Header:
    try:
        with path.open("rb") as file:
            return _header(file, path.stat().st_size, str(path))
    except OSError as error:
        raise InputError(f"{path} could not be read: {error.strerror}") from error


def _header(file: IO[bytes], size: int, where: str) -> _Header:
    """Reads an array's header only; refuses pickled objects and a header that promises other bytes than there are."""
    try:
        version = np.lib.format.read_magic(file)
        read = (
            np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        )
        shape, _, dtype = read(file)
    except ValueError as error:
        raise InputError(f"{where} is not a numpy array: {str(error).splitlines()[0]}") from error
    if dtype.hasobject:
        raise InputError(f"{where} holds pickled objects, which are never opened", "save it as plain numbers")
    items = 1
    for extent in shape:
        items *= extent
    here = size - file.tell()
    if items * dtype.itemsize != here:
        raise InputError(
            f"{where} should hold {items * dtype.itemsize} bytes and holds {here}", "write it again"
        )
    return _Header(shape, dtype, here)


def _check_headers(
    model: Model, path: Path, headers: Mapping[str, _Header], sizes: Mapping[str, int]
) -> None:
    shapes, whole = item_shapes(model, sizes), whole_inputs(model)
    counts: dict[str, int] = {}
    for spec in model.inputs:
        header = headers.get(spec.name)
        if header is None:
            raise InputError(
                f"{path} has no array {spec.name!r} for that input of the model",
                f"it has {', '.join(sorted(headers)) or 'none'}",
            )
        wanted = numpy_dtype(spec)
        if header.dtype != wanted:
            raise InputError(
                f"{path}, array {spec.name!r} is {header.dtype}, the model takes {wanted}",
                f"save it as .astype({spec.dtype!r})",
            )
        item = header.shape if spec.name in whole else header.shape[1:]
        if item != shapes[spec.name] or (spec.name not in whole and not header.shape):
            has, takes = _show(header.shape), _show(shapes[spec.name])
            takes = takes if spec.name in whole else f"Nx{takes}" if shapes[spec.name] else "N"
            raise InputError(f"{path}, array {spec.name!r} has shape {has}, the model takes {takes}")
        if spec.name not in whole:
            counts[spec.name] = header.shape[0]
    if len(set(counts.values())) > 1:
        said = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise InputError(f"{path}: inputs differ in their number of items ({said})")
    unknown = sorted(set(headers) - {spec.name for spec in model.inputs} - {_LABELS})
    if unknown:
        raise InputError(f"{path} has an array {unknown[0]!r} that is no input of the model")
    check_bytes({name: (header.shape, header.dtype) for name, header in headers.items()}, str(path))


def _read(path: Path, names: list[str]) -> dict[str, np.ndarray]:
    try:
        if path.suffix == ".npy":
            return {names[0]: np.load(path, allow_pickle=False)}
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in names}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(f"{path} could not be read: {str(error).splitlines()[0]}") from error


def _check_values(path: Path, name: str, array: np.ndarray) -> None:
    if array.dtype.kind in "iub":
        return
    bad = ~np.isfinite(array)
    if bad.any():
        where = tuple(int(index) for index in np.argwhere(bad)[0])
        raise InputError(
            f"{path}, array {name!r} has {int(bad.sum())} NaN or infinite values, the first at {where}",
            "remove those items",
        )


def _show(shape: tuple[int, ...]) -> str:
    return "x".join(str(size) for size in shape) or "scalar"
