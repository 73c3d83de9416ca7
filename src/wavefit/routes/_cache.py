"""Where compiled programs are kept between runs."""

from __future__ import annotations

from pathlib import Path

from wavefit.device.user_cache import user_cache as user_cache


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
