"""TensorFlow models, through tf2onnx where that is installed."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from wavefit.errors import InputError

_OPSET = 18
_DEADLINE_S = 1800.0
_LONGEST = 300


def is_tensorflow(path: Path) -> bool:
    """Whether this is a SavedModel folder or a .tflite file."""
    if path.is_dir():
        return (path / "saved_model.pb").is_file()
    return path.suffix.lower() == ".tflite" and path.is_file()


def convert(path: Path, out: Path, say: Callable[[str], None]) -> Path:
    """Converts a SavedModel or .tflite file to ``out`` in a process of its own: TensorFlow may abort.

    Raises:
        InputError: tf2onnx is not installed, or could not convert the model.
    """
    kind = "SavedModel" if path.is_dir() else "TensorFlow Lite model"
    if importlib.util.find_spec("tf2onnx") is None:
        raise InputError(
            f"{path} is a {kind}, which needs tf2onnx to become ONNX", "pip install 'wavefit[tensorflow]'"
        )
    say(f"converting the {kind} with tf2onnx")
    with tempfile.TemporaryDirectory(prefix=".wavefit-", dir=out.parent) as folder:
        draft = Path(folder) / out.name
        _run(path, draft)
        _name_batch(draft)
        draft.replace(out)
    return out


def _name_batch(path: Path) -> None:
    """tf2onnx gives each unknown size a name of its own ("unk__12"): unknown first sizes are one, the batch."""
    import onnx

    model = onnx.load(str(path))
    for entry in (*model.graph.input, *model.graph.output):
        dims = entry.type.tensor_type.shape.dim
        if dims and dims[0].dim_param.startswith("unk__"):
            dims[0].dim_param = "batch"
    del model.graph.value_info[:]
    onnx.save(model, str(path))


def _run(path: Path, draft: Path) -> None:
    option = "--saved-model" if path.is_dir() else "--tflite"
    command = [sys.executable, "-m", "tf2onnx.convert", option, str(path), "--output", str(draft)]
    try:
        done = subprocess.run(
            [*command, "--opset", str(_OPSET)],
            capture_output=True,
            text=True,
            timeout=_DEADLINE_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise InputError(f"{path}: tf2onnx did not end within {_DEADLINE_S:.0f} s") from None
    if done.returncode or not draft.exists():
        lines = [line for line in done.stderr.strip().splitlines() if line.strip()] or ["it said nothing"]
        raise InputError(f"{path}: tf2onnx could not convert it: {lines[-1].strip()[:_LONGEST]}")
