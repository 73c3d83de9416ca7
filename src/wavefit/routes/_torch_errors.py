"""PyTorch's errors in wavefit's words."""

from __future__ import annotations

import zipfile

import torch

from wavefit.errors import RouteError

# RuntimeError is the base of torch.cuda.OutOfMemoryError, of dynamo's and of inductor's errors; the others are what its
# Python parts raise for programs and machines that they cannot handle.
_KINDS = (
    RuntimeError,
    ValueError,
    TypeError,
    AssertionError,
    ImportError,
    OSError,
    KeyError,
    AttributeError,
    zipfile.BadZipFile,
    getattr(torch._dynamo.exc, "FailOnRecompileLimitHit", RuntimeError),  # an Exception of its own
)


class translated:
    """Turns what PyTorch raises into a RouteError that starts with ``what``."""

    def __init__(self, what: str, fix: str = "") -> None:
        self.what = what
        self.fix = fix

    def __enter__(self) -> translated:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, RouteError) or not isinstance(error, _KINDS):
            return
        if is_out_of_memory(error):
            raise RouteError(
                f"out of memory: {self.what}: {first_line(error)}", "use a smaller --batch or fp16"
            ) from error
        raise RouteError(f"{self.what}: {first_line(error)}", self.fix) from error


def is_out_of_memory(error: BaseException) -> bool:
    """Also in graph capture and on the host, where PyTorch raises a plain RuntimeError."""
    text = str(error).lower()
    return (
        isinstance(error, torch.cuda.OutOfMemoryError)
        or "out of memory" in text
        or "not enough memory" in text
    )


def first_line(error: BaseException) -> str:
    text = [line for line in str(error).strip().splitlines() if line.strip()]
    return text[0].strip() if text else type(error).__name__
