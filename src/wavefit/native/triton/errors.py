"""What PyTorch and Triton raise on a device, as refusals that name a cause."""

from __future__ import annotations

from types import TracebackType

from wavefit.errors import RouteError


class translated:
    """Turns what the runtimes raise into a RouteError.

    Args:
        what: the device, as a sentence calls it.
    """

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None or isinstance(error, RouteError):
            return
        import torch
        from triton.runtime.errors import OutOfResources

        said = " ".join(str(error).split())[:300]
        if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
            raise RouteError(
                f"{self._what} has too little memory: {said}", "use a smaller --batch"
            ) from error
        if isinstance(error, OutOfResources):
            raise RouteError(f"{self._what}: a kernel takes more than it has: {said}") from error
        if isinstance(error, RuntimeError):
            raise RouteError(f"{self._what}: {said}") from error
