"""What kind of file this is, told from its name and first bytes before anything else of it is read."""

from __future__ import annotations

import stat
from pathlib import Path

from wavefit.errors import InputError

MAX_PROTOBUF_BYTES = 2**31 - 1  # protobuf's own limit for one message

_TO_ONNX = "convert it first: pip install 'wavefit[tensorflow]' and python -m tf2onnx.convert"
_PICKLE = "export the module instead: wavefit export package.module:factory, or give a .pt2 exported program"
_ENGINE = "give the ONNX file that it was built from, with its QuantizeLinear/DequantizeLinear nodes kept"

# Suffix -> what such a file is, what to do. Asked only where the content is not recognised.
_BY_SUFFIX: dict[str, tuple[str, str]] = {
    **dict.fromkeys(
        (".engine", ".plan", ".trt"),
        ("is a TensorRT engine, compiled for one NVIDIA GPU", _ENGINE),
    ),
    **dict.fromkeys(
        (".pt", ".pth", ".pkl", ".pickle", ".ckpt"),
        ("is a PyTorch pickle, and reading a pickle runs the code in it", _PICKLE),
    ),
    ".pt2": ("is a PyTorch exported program", "turn it into ONNX: wavefit export MODEL.pt2"),
    ".tflite": ("is a TensorFlow Lite model", f"{_TO_ONNX} --tflite MODEL.tflite --output MODEL.onnx"),
    ".pb": ("is a TensorFlow graph", f"{_TO_ONNX} --graphdef MODEL.pb --output MODEL.onnx"),
    **dict.fromkeys((".h5", ".keras"), ("is a Keras model", "save it as a SavedModel, then " + _TO_ONNX)),
    ".safetensors": ("holds weights without a graph", _PICKLE),
    ".gguf": ("is a GGUF file, made for llama.cpp", "give the ONNX export of that model"),
    ".xml": ("is no ONNX file (OpenVINO IR?)", "give the ONNX file that it was converted from"),
}

# Start of the file -> the suffix whose sentence fits. Pickles of protocol 2 to 5 start with 0x80 and the protocol.
_BY_START: tuple[tuple[bytes, str], ...] = (
    (b"PK\x03\x04", ".pt"),
    *((bytes((0x80, protocol)), ".pt") for protocol in range(2, 6)),
    (b"\x89HDF\r\n", ".h5"),
    (b"GGUF", ".gguf"),
    (b"<?xml", ".xml"),
)

_LFS = b"version https://git-lfs"


def check_file(path: Path) -> None:
    """Refuses what cannot be an ONNX file, reading at most its first bytes.

    Raises:
        InputError: no regular, readable, non-empty file named .onnx, or a format that is not ONNX; with the way round.
    """
    size = _size(path)
    start = _start(path)
    suffix = path.suffix.lower()
    if start.startswith(_LFS):
        raise InputError(f"{path} is a Git LFS pointer, not the model itself", "fetch it: git lfs pull")
    if not size:
        raise InputError(f"{path} is empty", "export or download the model again")
    kind = _kind(start, suffix)
    if kind is not None:
        raise InputError(f"{path} {kind[0]}", kind[1])
    if suffix != ".onnx":
        raise InputError(f"{path} is not named .onnx", "if it is an ONNX file, rename it")
    if size > MAX_PROTOBUF_BYTES:
        raise InputError(
            f"{path} has {size} bytes, more than a protobuf file may have (2 GiB)",
            "save the weights beside it: onnx.save(..., save_as_external_data=True)",
        )


def _size(path: Path) -> int:
    try:
        info = path.stat()
    except FileNotFoundError:
        raise InputError(f"{path} does not exist", "check the path") from None
    except (OSError, ValueError) as error:  # ValueError: a null byte in the path
        raise InputError(f"{str(path)!r} cannot be read: {_why(error)}") from error
    if stat.S_ISDIR(info.st_mode):
        raise _directory(path)
    if not stat.S_ISREG(info.st_mode):
        raise InputError(f"{path} is not a regular file", "give the path of an .onnx file")
    return info.st_size


def _directory(path: Path) -> InputError:
    if (path / "saved_model.pb").exists():
        return InputError(
            f"{path} is a TensorFlow SavedModel", f"{_TO_ONNX} --saved-model {path} --output MODEL.onnx"
        )
    inside = sorted(path.glob("*.onnx"))
    hint = f"did you mean {inside[0]}?" if inside else "give the path of an .onnx file"
    return InputError(f"{path} is a directory", hint)


def _start(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(64)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {_why(error)}", "check its permissions") from error


def _kind(start: bytes, suffix: str) -> tuple[str, str] | None:
    if start[4:8] == b"TFL3":  # FlatBuffers: the identifier follows the root offset
        return _BY_SUFFIX[".tflite"]
    if start[4:8] == b"ORTM":
        return ("is in ONNX Runtime's own .ort format", "give the .onnx file that it was made from")
    if start[8:10] == b'{"':  # a little-endian length, then JSON
        return _BY_SUFFIX[".safetensors"]
    if start.startswith(b"PK\x03\x04") and suffix == ".pt2":
        return _BY_SUFFIX[".pt2"]
    for magic, like in _BY_START:
        if start.startswith(magic):
            return _BY_SUFFIX[like]
    return _BY_SUFFIX.get(suffix)


def _why(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
