"""Where compiled programs are kept between runs."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def compile_cache(runtime: str, key: str, base: Path | None = None) -> Path:
    """The folder of one compiled program, made if it is missing.

    Args:
        runtime: whose program: "migraphx".
        key: a hash of all that the program depends on.
        base: the folder of all caches; the user's own where None.
    """
    folder = (base or user_cache()) / runtime / key
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def user_cache() -> Path:
    """wavefit's folder among the user's caches, as each system places it (XDG base directories on Linux)."""
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData/Local") / "wavefit" / "cache"
    if sys.platform == "darwin":
        return Path.home() / "Library/Caches/wavefit"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "wavefit"
