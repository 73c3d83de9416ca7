"""Which builds of ONNX Runtime are installed. Reads package metadata and imports nothing of them."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
from pathlib import Path

from wavefit.device.ort_builds import BUILDS as BUILDS


def version(package: str) -> str | None:
    """An installed package's version."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def numbers(version: str) -> tuple[int, ...]:
    """A version to compare: "7.0.2" is (7, 0, 2)."""
    return tuple(int(part) for part in re.findall(r"\d+", version))


def installed() -> dict[str, str]:
    """The ONNX Runtime builds of this environment and their versions."""
    return {name: found for name in BUILDS if (found := version(name)) is not None}


def problem(wanted: str, extra: str) -> tuple[str, str] | None:
    """Why the build ``wanted`` (of the extra ``wavefit[extra]``) cannot be used, and the fix; None where it can."""
    found = installed()
    install = f"pip install 'wavefit[{extra}]'"
    others = [name for name in found if name != wanted]
    if wanted not in found:
        instead = f" ({listed(others, found)} has no such provider)" if others else ""
        remove = f"pip uninstall -y {' '.join(others)} && " if others else ""
        return f"the package {wanted} is not installed{instead}", remove + install
    if others:
        reason = f"{listed([wanted, *others], found)} share one folder and overwrite each other"
        return reason, f"pip uninstall -y {' '.join([wanted, *others])} && {install}"
    return None


def listed(names: list[str], versions: dict[str, str]) -> str:
    """``onnxruntime 1.32.0 and onnxruntime-migraphx 1.27.1``."""
    return " and ".join(f"{name} {versions[name]}" for name in names)


def provider_knows(library: str, option: str) -> bool:
    """Whether a provider's library names an option.

    A provider rejects a session with an option that it does not know, and the names changed between versions, so
    the library itself is asked. False where there is no such library.

    Args:
        library: the file's name in onnxruntime's folder, without prefix and ending.
        option: the option's full name.
    """
    return any(option.encode() in path.read_bytes() for path in _capi_files(library))


def _capi_files(library: str) -> list[Path]:
    spec = importlib.util.find_spec("onnxruntime")
    folders = (spec.submodule_search_locations if spec else None) or ()
    names = (f"lib{library}.so", f"{library}.dll")
    return [path for folder in folders for name in names if (path := Path(folder) / "capi" / name).is_file()]
