"""Where wavefit keeps what it may make again."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def user_cache() -> Path:
    """wavefit's folder among the user's caches, as each system places it (XDG base directories on Linux)."""
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData/Local") / "wavefit" / "cache"
    if sys.platform == "darwin":
        return Path.home() / "Library/Caches/wavefit"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "wavefit"
