"""AMD Quark as one more quantiser, where it is installed: its Q/DQ file is judged like wavefit's own.

Configuration INT8_CNN_DEFAULT, Quark's for convolutional networks in standard Q/DQ operators (Quark's documentation,
"Full List of Quantization Configuration Features" for ONNX). XINT8 is for NPUs: powers of two as scales.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from wavefit.errors import InputError
from wavefit.model.samples import Samples
from wavefit.precision import graph

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir

CONFIGURATION = "INT8_CNN_DEFAULT"
_PACKAGE = "amd-quark"


def version() -> str | None:
    """Of the package; None where it is not installed."""
    try:
        return metadata.version(_PACKAGE)
    except metadata.PackageNotFoundError:
        return None


def quantized(model: ir.Model, samples: Samples, folder: Path, batch: int) -> ir.Model:
    """The graph as Quark quantises it, with the names of the nodes that it leaves.

    Args:
        folder: for its files; it also writes into the current folder, which is that one meanwhile.
        batch: items a run.

    Raises:
        InputError: Quark cannot be imported, or does not take the graph.
    """
    if version() is None:
        raise InputError("AMD Quark is not installed", f"pip install {_PACKAGE}")
    folder.mkdir(parents=True, exist_ok=True)
    given, made = folder / "given.onnx", folder / "made.onnx"
    graph.save(model, given)
    try:
        from quark.onnx import ModelQuantizer
        from quark.onnx.quantization.config import Config, get_default_config
    except (ImportError, OSError) as error:
        raise InputError(f"AMD Quark {version()} cannot be imported: {error}") from error
    quantizer = ModelQuantizer(Config(global_quant_config=get_default_config(CONFIGURATION)))
    with _inside(folder):
        try:
            quantizer.quantize_model(str(given), str(made), _Reader(samples, batch))
        except (RuntimeError, ValueError, KeyError, TypeError, AttributeError, OSError) as error:
            raise InputError(f"AMD Quark does not quantise this model: {error}") from error
    return graph.load(made)


class _Reader:
    """Calibration data as Quark asks for it: a batch of inputs by name, None at the end."""

    def __init__(self, samples: Samples, batch: int) -> None:
        self._batches = iter([samples.batch(start, batch) for start in range(0, samples.count, batch)])

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self._batches, None)


@contextlib.contextmanager
def _inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
