"""Runs the peers: each in an environment of its own below the cache folder, in a child process with a deadline."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import time
import venv
from dataclasses import dataclass
from pathlib import Path

_CHILD = Path(__file__).parent / "_precision_child.py"
_INSTALL_DEADLINE_S = 1800.0

# Quark 0.13 needs torch for its Python API and names onnxruntime 1.22.2 to 1.28 in its extra "cli".
_ENVIRONMENTS = {
    "ort": ("onnxruntime==1.32.0", "onnx==1.23.2", "sympy"),
    "common": ("onnxconverter-common==1.16.0", "onnxruntime==1.32.0", "onnx==1.23.2"),
    "quark": ("amd-quark==0.13", "torch==2.13.0", "onnxruntime==1.28.0"),
}
PEERS = {
    "ort-int8": "ort",
    "ort-pre-int8": "ort",
    "ort-tuned-int8": "ort",
    "quark-cnn-int8": "quark",
    "quark-xint8": "quark",
    "common-fp16": "common",
    "common-auto-fp16": "common",
    "ort-fp16": "ort",
}
FAMILIES = tuple(_ENVIRONMENTS)


@dataclass(frozen=True)
class Made:
    """A quantiser's file, or why there is none."""

    name: str
    path: Path | None
    seconds: float
    failure: str = ""


def python_of(family: str, cache: Path) -> Path:
    """The family's interpreter; its environment is made where it is not there, or was of other packages."""
    folder = cache / "venvs" / family
    python = folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    marker, wanted = folder / "installed.txt", "\n".join(_ENVIRONMENTS[family])
    if not marker.exists() or marker.read_text() != wanted:
        print(f"installing {', '.join(_ENVIRONMENTS[family])} below {folder}", file=sys.stderr)
        venv.create(folder, with_pip=True, clear=True)
        command = [str(python), "-m", "pip", "install", "-q", *_ENVIRONMENTS[family]]
        subprocess.run(command, check=True, timeout=_INSTALL_DEADLINE_S)
        marker.write_text(wanted)
    return python


def make(name: str, model: Path, data: Path, folder: Path, cache: Path, deadline_s: float) -> Made:
    """One peer's file for one model; what it printed lies in ``NAME.log`` beside it.

    A file that this peer made of the same model, data and packages is taken as it lies there.
    """
    python = python_of(PEERS[name], cache)
    folder.mkdir(parents=True, exist_ok=True)
    out, log, known = folder / f"{name}.onnx", folder / f"{name}.log", folder / f"{name}.json"
    key = _key(name, model, data)
    if known.exists() and (kept := json.loads(known.read_text()))["key"] == key:
        return Made(name, out if out.exists() else None, kept["seconds"], kept["failure"])
    out.unlink(missing_ok=True)
    start = time.perf_counter()
    failure = _run([str(python), str(_CHILD), name, str(model), str(data), str(out)], log, deadline_s)
    seconds = time.perf_counter() - start
    if failure:
        out.unlink(missing_ok=True)
    known.write_text(json.dumps({"key": key, "seconds": seconds, "failure": failure}))
    return Made(name, None if failure else out, seconds, failure)


def _run(command: list[str], log: Path, deadline_s: float) -> str:
    """What went wrong, or nothing."""
    with log.open("w") as file:
        try:
            code = subprocess.run(
                command, stdout=file, stderr=subprocess.STDOUT, timeout=deadline_s, cwd=log.parent
            ).returncode
        except subprocess.TimeoutExpired:
            return f"nothing after {deadline_s:.0f} s"
    return (_last_line(log) or f"exit {code}") if code else ""


def _key(name: str, model: Path, data: Path) -> str:
    parts = (model.read_bytes(), data.read_bytes(), _CHILD.read_bytes(), *_ENVIRONMENTS[PEERS[name]])
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part if isinstance(part, bytes) else part.encode())
    return digest.hexdigest()


def _last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1][:160] if lines else ""
