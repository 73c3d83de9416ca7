"""Outputs for people, and for files."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from wavefit.bundle.files import write_whole
from wavefit.errors import InputError
from wavefit.routes.session import Arrays, show
from wavefit.schema import Struct

_ROWS_SHOWN = 8


class Top(Struct, frozen=True, kw_only=True):
    """The largest values of one row, and where they stand."""

    index: tuple[int, ...]
    value: tuple[float, ...]


class Described(Struct, frozen=True, kw_only=True):
    """One output: its shape, and per row the largest values, or the range where it is no row of classes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    top: tuple[Top, ...] = ()
    min: float | None = None
    max: float | None = None
    mean: float | None = None


def describe(outputs: Arrays, top: int) -> tuple[Described, ...]:
    """Every output in short; ``top`` largest values for each of the first rows of a two-dimensional one."""
    return tuple(_describe(name, array, top) for name, array in outputs.items())


def _describe(name: str, array: np.ndarray, top: int) -> Described:
    about = {"name": name, "dtype": array.dtype.name, "shape": array.shape}
    if array.ndim == 2 and array.shape[1] > 1:
        return Described(**about, top=tuple(_top(row, top) for row in array[:_ROWS_SHOWN]))
    if array.size and array.dtype.kind in "fiub":
        numbers = array.astype(np.float64)
        return Described(**about, min=numbers.min(), max=numbers.max(), mean=numbers.mean())
    return Described(**about)


def _top(row: np.ndarray, count: int) -> Top:
    best = np.argsort(-row.astype(np.float64), kind="stable")[:count]
    return Top(index=tuple(int(place) for place in best), value=tuple(float(row[place]) for place in best))


def lines(described: tuple[Described, ...]) -> list[str]:
    """The same for the terminal."""
    found = []
    for output in described:
        found.append(f"{output.name}: {output.dtype} {show(output.shape)}")
        for number, row in enumerate(output.top):
            pairs = zip(row.index, row.value, strict=True)
            found.append(
                f"  item {number}: " + ", ".join(f"class {index} ({value:.4g})" for index, value in pairs)
            )
        if output.top and output.shape[0] > len(output.top):
            found.append(f"  and {output.shape[0] - len(output.top)} more items")
        if output.min is not None:
            found.append(f"  min {output.min:.4g}, max {output.max:.4g}, mean {output.mean:.4g}")
    return found


def save(path: Path, outputs: Arrays) -> None:
    """Writes every output into an ``.npz``.

    Raises:
        InputError: the name ends otherwise, or the folder cannot be written.
    """
    import io
    import zipfile

    if path.suffix != ".npz":
        raise InputError(f"--output {path} must end in .npz")
    sink = io.BytesIO()
    with zipfile.ZipFile(
        sink, "w"
    ) as archive:  # np.savez takes no output that is called like its parameters, "file"
        for name, array in outputs.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                plain = array.astype(np.str_) if array.dtype.kind == "O" else array  # text, never pickled
                np.lib.format.write_array(file, plain, allow_pickle=False)
    try:
        write_whole(path, sink.getvalue())
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from error
