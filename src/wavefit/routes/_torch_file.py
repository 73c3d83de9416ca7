"""Reading a .pt2, and which PyTorch wrote it."""

from __future__ import annotations

import json
import warnings
import zipfile
from pathlib import Path
from typing import Any

import torch

from wavefit.errors import InputError, RouteError
from wavefit.model import pt2
from wavefit.routes._torch_errors import translated


def read(path: Path) -> Any:
    """The exported program of a .pt2.

    Raises:
        RouteError: it holds code, is no exported program, or cannot be loaded here; then the message names the version
            of PyTorch that wrote it and the one that runs.
    """
    try:
        pt2.check(path)  # a bundle may come from anywhere, and torch.export.load runs what a file tells it to
    except InputError as error:
        raise RouteError(error.what, error.fix) from error
    here = torch.__version__
    what = f"PyTorch {here} cannot load {path.name}, written by PyTorch {written_by(path) or '?'}"
    with translated(what, f"export the model again with PyTorch {here}"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given buffer is not writable")  # PyTorch copies from it only
        return torch.export.load(path)


def written_by(path: Path) -> str | None:
    """The version of PyTorch that wrote a .pt2, None where the file does not tell."""
    try:
        with zipfile.ZipFile(path) as archive:
            parts = [name for name in archive.namelist() if name.endswith("models/model.json")]
            return json.loads(archive.read(parts[0])).get("torch_version") if parts else None
    except (OSError, zipfile.BadZipFile, ValueError):
        return None
