"""The packages of ONNX Runtime that install the same folder."""

from __future__ import annotations

import importlib.util
from pathlib import Path

BUILDS = (
    "onnxruntime",
    "onnxruntime-migraphx",
    "onnxruntime-rocm",
    "onnxruntime-webgpu",
    "onnxruntime-directml",
    "onnxruntime-gpu",
    "onnxruntime-openvino",
)
"""Packages that install the same folder ``onnxruntime``: the last one installed overwrites parts of the others."""


def folder() -> Path | None:
    """The folder of the package ``onnxruntime``, without importing it."""
    spec = importlib.util.find_spec("onnxruntime")
    folders = spec.submodule_search_locations if spec else None
    return Path(next(iter(folders))) if folders else None
