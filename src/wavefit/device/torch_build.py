"""Which PyTorch is installed, read from its files: importing it may take seconds or hang on a broken driver."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import NamedTuple

from wavefit.device.files import read_text

ROCM_INSTALL = "pip install torch --index-url https://download.pytorch.org/whl/rocm7.2"
ROCM_NEWER = "or the ROCm that https://pytorch.org/get-started/locally names now"


class Build(NamedTuple):
    """A PyTorch build: at most one of ``hip`` and ``cuda`` is set, neither in a CPU-only build."""

    version: str
    hip: str | None
    cuda: str | None

    @property
    def kind(self) -> str:
        return "ROCm" if self.hip else "CUDA" if self.cuda else "CPU-only"


def installed() -> Build | None:
    """The PyTorch that ``import torch`` would import, None where there is none."""
    where = folder()
    return read(where / "version.py") if where else None


def folder() -> Path | None:
    """The folder of the package ``torch``."""
    spec = importlib.util.find_spec("torch")
    folders = spec.submodule_search_locations if spec else None
    return Path(next(iter(folders))) if folders else None


def read(version_file: Path) -> Build | None:
    """What a ``torch/version.py`` says (torch.version.hip and torch.version.cuda); None without a version."""
    return parse(read_text(version_file) or "")


def parse(text: str) -> Build | None:
    """The same, from the file's text."""
    version = _assigned("__version__", text)
    return Build(version, _assigned("hip", text), _assigned("cuda", text)) if version else None


def _assigned(name: str, text: str) -> str | None:
    found = re.search(rf"^{name}\s*(?::[^=]+)?=\s*['\"]([^'\"]+)['\"]", text, re.MULTILINE)
    return found.group(1) if found else None
