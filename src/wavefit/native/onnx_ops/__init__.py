"""ONNX's operators in the engine's terms: a file for each family, found by its name.

A family is a module here (no leading underscore) with ``OPERATORS``: for the name of each operator ("Conv",
"com.microsoft.Gelu") the function that puts it into canonical form. Adding one edits nothing else.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from functools import cache

from wavefit.native.onnx_ops._call import Call

Handler = Callable[[Call], str | None]
"""Adds nodes for one ONNX node; returns why it cannot, with nothing added that is used."""


@cache
def operators() -> dict[str, Handler]:
    """All operators that the importer knows, those too that it only knows to refuse."""
    names = sorted(entry.name for entry in pkgutil.iter_modules(__path__) if not entry.name.startswith("_"))
    found: dict[str, Handler] = {}
    for name in names:
        found.update(importlib.import_module(f"{__name__}.{name}").OPERATORS)
    return found
