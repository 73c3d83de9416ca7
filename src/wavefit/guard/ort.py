"""The fp32 reference run: ONNX Runtime on the CPU, graph optimisation off, one node after another as the file says."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from wavefit.errors import InputError
from wavefit.schema import Model


class OrtReference:
    """A session without any optimisation.

    Args:
        model: names its outputs.
        path: the file to open, the model's own or one with more outputs.
        outputs: the outputs wanted; the model's where left out.

    Raises:
        InputError: ONNX Runtime is missing, or does not take the model.
    """

    def __init__(self, model: Model, path: Path, outputs: tuple[str, ...] = ()) -> None:
        ort = _onnxruntime()
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 4
        self.outputs = list(outputs or (spec.name for spec in model.outputs))
        try:
            self._session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        except _errors() as error:
            raise InputError(f"{model.name}: the reference cannot be run: {_first_line(error)}") from error

    def __call__(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Runs one batch.

        Raises:
            InputError: the run failed, or an output is no tensor.
        """
        try:
            values = self._session.run(self.outputs, dict(inputs))
        except _errors() as error:
            raise InputError(
                f"the reference run failed, so the model cannot run on this data: {_first_line(error)}",
                "export it again, or give data that it takes with --data",
            ) from error
        for name, value in zip(self.outputs, values, strict=True):
            if not isinstance(value, np.ndarray):
                kind = type(value).__name__
                raise InputError(f"output {name!r} is a {kind}, not a tensor: it cannot be compared")
        return dict(zip(self.outputs, values, strict=True))


def _onnxruntime() -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise InputError("the reference needs ONNX Runtime", "pip install 'wavefit[cpu]'") from error
    return onnxruntime


def _errors() -> tuple[type[BaseException], ...]:
    """Everything that ONNX Runtime's binding raises; its own classes share no base but Exception."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    own = (kind for kind in vars(state).values() if isinstance(kind, type) and issubclass(kind, Exception))
    return (*own, RuntimeError, ValueError)


def _first_line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return (text[0] if text else type(error).__name__).removeprefix("[ONNXRuntimeError] : ")
