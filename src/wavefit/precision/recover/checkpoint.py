"""A training's state on the disk: tensors and numbers alone, so that reading it runs no code."""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path
from typing import Any

import torch


def save(path: Path, state: dict[str, Any]) -> None:
    """Writes the state whole, or leaves the one before."""
    draft = path.with_name(f".{path.name}.draft")
    torch.save(state, draft)
    draft.replace(path)


def load(path: Path, key: str) -> dict[str, Any] | None:
    """The state of the training of that key; None where there is none, or the file is of another or damaged."""
    if not path.is_file() or not zipfile.is_zipfile(path):
        return None
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, pickle.UnpicklingError):  # what torch.load raises for a torn file
        return None
    return state if isinstance(state, dict) and state.get("key") == key else None
