"""onnx's own backend cases end to end on the device: imported, passed over, laid out, computed.

The smallest case of each operator that the importer claims is a test; all of them run with
``PYTHONPATH=tests python tests/native/opencl/test_onnx_cases.py`` (eight minutes on a CPU, most of them for compiling).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from native.onnx_cases import Case, cases

from wavefit.native import engine
from wavefit.native.limits import of_opencl
from wavefit.native.opencl.chooser import Chooser
from wavefit.native.opencl.executor import Executor
from wavefit.native.program import Program

cl = pytest.importorskip("pyopencl")

_COARSE = ("test_averagepool_2d_ceil_last_window_starts_on_pad",)  # whose expected numbers have four digits
_HEAVY = ("Conv", "ConvTranspose", "MatMul", "Gemm")  # long to compile; the kernels' own tests have them


def _device() -> Any:
    return next(device for platform in cl.get_platforms() for device in platform.get_devices())


def _smallest() -> list[Case]:
    """For each operator, the case with the fewest elements."""
    found: dict[str, Case] = {}
    for case in cases():
        op = case.model.graph.node[0].op_type
        best = found.get(op)
        if op not in _HEAVY and (best is None or _elements(case) < _elements(best)):
            found[op] = case
    return list(found.values())


def _elements(case: Case) -> int:
    return sum(np.size(each) for each in (*case.inputs.values(), *case.outputs.values()))


def _worst(case: Case, folder: Path) -> float | None:
    """The largest relative L2 over the outputs, over what their type allows; None where the engine refuses."""
    path = folder / "case.onnx"
    onnx.save(case.model, str(path))
    device = _device()
    shapes = {name: np.shape(array) for name, array in case.inputs.items()}
    program = engine.prepare(path, shapes, Chooser(of_opencl(device, None)))
    if not isinstance(program, Program):
        return None
    executor = Executor(program, device)
    got = executor.run({name: np.asarray(array) for name, array in case.inputs.items()})
    executor.close()
    return max(_off(got[name], np.asarray(want), case.name) for name, want in case.outputs.items())


def _off(got: np.ndarray, want: np.ndarray, name: str) -> float:
    assert got.shape == want.shape
    assert got.dtype == want.dtype
    if want.dtype.kind != "f":
        return 0.0 if np.array_equal(got, want) else np.inf
    finite = np.isfinite(want)
    if not np.array_equal(np.where(finite, 0, want), np.where(np.isfinite(got), 0, got), equal_nan=True):
        return np.inf
    allowed = 2e-3 if want.dtype == np.float16 or name in _COARSE else 1e-5
    scale = float(np.linalg.norm(want[finite].astype(float))) or 1.0
    return float(np.linalg.norm((got - want)[finite].astype(float))) / scale / allowed


def test_the_smallest_case_of_each_operator(tmp_path: Path) -> None:
    wrong, refused = [], []
    found = _smallest()
    for case in found:
        worst = _worst(case, tmp_path)
        if worst is None:
            refused.append(case.name)
        elif not worst <= 1:
            wrong.append((case.name, worst))
    assert not wrong
    assert len(refused) < len(found) / 10, refused
    assert len(found) > 90


def main() -> None:
    import tempfile

    counts = {"right": 0, "wrong": 0, "refused": 0}
    with tempfile.TemporaryDirectory() as folder:
        for case in cases():
            worst = _worst(case, Path(folder))
            verdict = "refused" if worst is None else "right" if worst <= 1 else "wrong"
            counts[verdict] += 1
            if verdict == "wrong":
                print(case.name, worst)
    print(counts)


if __name__ == "__main__":
    main()
