"""The proof of an export: the ONNX file run beside what it was made from, at several batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wavefit.errors import InputError
from wavefit.schema import Struct

if TYPE_CHECKING:
    import numpy as np

BATCHES = (1, 2, 3, 5)
"""1 is special to exporters, 2 is the example that they saw, 3 and 5 are neither nor multiples of it."""

_LONGEST = 500  # characters quoted from ONNX Runtime

BOUND = 1e-4
"""Largest relative L2 error of a float32 output. Two right float32 programs differ by the order of their sums: some
1e-7 for one layer, 1e-6 to 1e-5 for deep nets. A wrong axis, weight or batch gives 1e-2 or more."""

HALF_BOUND = 2e-2
"""The same for float16 and bfloat16 outputs, which keep 11 and 8 bits."""


class OutputProof(Struct, frozen=True, kw_only=True):
    """One output at one batch: the ONNX file against its source."""

    output: str
    shape: tuple[int, ...]  # of the ONNX file's output
    expected_shape: tuple[int, ...]
    rel_l2: float | None  # None where the shapes differ or a value is not finite in one only
    max_abs: float | None
    bound: float
    alike: bool = False  # items differ by less than the bound: mixed-up items would pass

    @property
    def passed(self) -> bool:
        return self.shape == self.expected_shape and self.rel_l2 is not None and self.rel_l2 <= self.bound


class Proof(Struct, frozen=True, kw_only=True):
    """One run of the ONNX file and of its source on the same seeded random inputs."""

    batch: int
    shapes: dict[str, tuple[int, ...]]  # of the inputs
    outputs: tuple[OutputProof, ...] = ()
    failure: str = ""  # what ONNX Runtime said, where it could not run this batch

    @property
    def passed(self) -> bool:
        return not self.failure and all(output.passed for output in self.outputs)

    @property
    def reason(self) -> str:
        """Why it failed, in one clause; "" where it passed."""
        if self.failure:
            return f"at batch {self.batch} ONNX Runtime says: {self.failure}"
        for output in self.outputs:
            if output.shape != output.expected_shape:
                want, have = _show(output.expected_shape), _show(output.shape)
                return (
                    f"at batch {self.batch} output {output.output!r} has shape {have}, it should have {want}"
                )
            if not output.passed:
                size = "not finite" if output.rel_l2 is None else f"{output.rel_l2:.1e}"
                what = f"at batch {self.batch} output {output.output!r} is off"
                return f"{what}: relative L2 {size}, allowed {output.bound:g}"
        return ""


@dataclass(frozen=True)
class Case:
    """Inputs, and what the source answers to them, in the order of its outputs."""

    batch: int
    inputs: Mapping[str, np.ndarray]
    expected: Sequence[np.ndarray]


def prove(path: Path, cases: Sequence[Case]) -> tuple[Proof, ...]:
    """Runs the file on ONNX Runtime's CPU provider without graph optimisations, so that its own nodes are tested.

    Raises:
        InputError: ONNX Runtime is not installed.
    """
    try:
        session = open_session(path)
    except runtime_errors() as error:
        return tuple(_failed(case, error) for case in cases)
    return tuple(_prove(session, case) for case in cases)


def open_session(path: Path) -> Any:
    """A plain CPU session that runs the file's nodes as they stand.

    Raises:
        InputError: ONNX Runtime is not installed.
    """
    ort = _runtime()
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _runtime() -> Any:
    try:
        import onnxruntime
    except ImportError:
        raise InputError(
            "an export is proven with ONNX Runtime, which is not installed", "pip install 'wavefit[cpu]'"
        ) from None
    return onnxruntime


def runtime_errors() -> tuple[type[BaseException], ...]:
    """What ONNX Runtime raises: its own classes have no common base but Exception."""
    _runtime()
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    own = (kind for kind in vars(state).values() if isinstance(kind, type) and issubclass(kind, Exception))
    return (*own, RuntimeError, ValueError)


def _prove(session: Any, case: Case) -> Proof:
    names = [output.name for output in session.get_outputs()]
    try:
        found = session.run(names, dict(case.inputs))
    except runtime_errors() as error:
        return _failed(case, error)
    if len(found) != len(case.expected):
        failure = f"it has {len(found)} outputs, its source {len(case.expected)}"
        return Proof(batch=case.batch, shapes=_shapes(case), failure=failure)
    outputs = tuple(
        _compare(name, have, want) for name, have, want in zip(names, found, case.expected, strict=True)
    )
    return Proof(batch=case.batch, shapes=_shapes(case), outputs=outputs)


def _failed(case: Case, error: BaseException) -> Proof:
    return Proof(batch=case.batch, shapes=_shapes(case), failure=first_line(error))


def first_line(error: BaseException) -> str:
    """The first line of what ONNX Runtime said, without its prefix."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0].removeprefix("[ONNXRuntimeError] : ")[:_LONGEST]


def _shapes(case: Case) -> dict[str, tuple[int, ...]]:
    return {name: tuple(array.shape) for name, array in case.inputs.items()}


def _compare(name: str, have: np.ndarray, want: np.ndarray) -> OutputProof:
    rel_l2, max_abs = difference(have, want) if have.shape == want.shape else (None, None)
    bound = HALF_BOUND if have.dtype.itemsize == 2 and have.dtype.kind not in "iu" else BOUND
    return OutputProof(
        output=name,
        shape=tuple(have.shape),
        expected_shape=tuple(want.shape),
        rel_l2=rel_l2,
        max_abs=max_abs,
        bound=bound,
        alike=_alike(want, bound),
    )


def _alike(want: np.ndarray, bound: float) -> bool:
    """Whether every item's answer is the first one's, as far as the proof could tell."""
    import numpy as np

    if want.ndim == 0 or len(want) < 2:
        return False
    spread, _ = difference(np.broadcast_to(want[:1], want.shape), want)
    return spread is not None and spread <= bound


def doubts(proofs: Sequence[Proof]) -> tuple[str, ...]:
    """What the proofs could not prove, one sentence an output."""
    alike = [
        {output.output for output in proof.outputs if output.alike} for proof in proofs if proof.batch > 1
    ]
    names = sorted(set.intersection(*alike)) if alike else []
    return tuple(
        f"output {name!r} is almost the same for every item: comparing it proves little" for name in names
    )


def difference(have: np.ndarray, want: np.ndarray) -> tuple[float | None, float | None]:
    """|have - want| / |want| in the L2 norm and the largest absolute difference, both in float64.

    Values that are not finite must be the same in both and are then left out; else the answer is (None, None).
    """
    import numpy as np

    a, b = have.astype(np.float64).ravel(), want.astype(np.float64).ravel()
    finite = np.isfinite(a) & np.isfinite(b)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return None, None
    gap = np.abs(a[finite] - b[finite])
    if not gap.size:
        return 0.0, 0.0
    norm = float(np.linalg.norm(b[finite]))
    distance = float(np.linalg.norm(gap))
    return (distance / norm if norm else distance), float(gap.max())


def _show(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "scalar"
