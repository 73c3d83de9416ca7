"""Operators that the engine does not compute, each with the reason that a user reads."""

from __future__ import annotations

from collections.abc import Callable

from wavefit.native.onnx_ops._call import Call

_SORTS = "it sorts or selects, which is done on the CPU at the tail of a model"
_RANDOM = "its output is random"
_RECURRENT = "recurrent layers are not computed"
_REASONS = {
    "Bernoulli": _RANDOM,
    "GRU": _RECURRENT,
    "LSTM": _RECURRENT,
    "Loop": "loops are not unrolled",
    "Multinomial": _RANDOM,
    "NonMaxSuppression": _SORTS,
    "NonZero": "the size of its output depends on the data",
    "RNN": _RECURRENT,
    "RandomNormal": _RANDOM,
    "RandomNormalLike": _RANDOM,
    "RandomUniform": _RANDOM,
    "RandomUniformLike": _RANDOM,
    "Scan": "loops are not unrolled",
    "TopK": _SORTS,
    "Unique": "the size of its output depends on the data",
}
REFUSED = frozenset(_REASONS)


def _refuse(call: Call) -> str:
    return _REASONS[call.op]


OPERATORS: dict[str, Callable[[Call], str]] = dict.fromkeys(_REASONS, _refuse)
