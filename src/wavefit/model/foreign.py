"""Running code that is not ours: the user's modules, and PyTorch, which may be missing."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from wavefit.errors import InputError

_PYTORCH = "pip install 'wavefit[torch]'"


class attempt:
    """Runs code that is not ours (the user's module, an exporter) and keeps what it raises in ``error``.

    Such code may raise anything; it is the user's to see, so nothing is swallowed: callers turn ``error`` into a
    reason.
    """

    error: Exception | None = None

    def __enter__(self) -> attempt:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: TracebackType | None) -> bool:
        if isinstance(error, Exception) and not isinstance(error, InputError):
            self.error = error
            return True
        return False


def require_torch() -> Any:
    """The package torch.

    Raises:
        InputError: it is not installed.
    """
    try:
        import torch
    except ImportError as error:
        raise InputError(
            f"this model needs PyTorch, which does not import here ({error})", _PYTORCH
        ) from error
    return torch
