"""What pyopencl raises, as refusals that name a cause."""

from __future__ import annotations

from types import TracebackType

from wavefit.errors import RouteError

_MEMORY = ("MEM_OBJECT_ALLOCATION_FAILURE", "OUT_OF_RESOURCES", "OUT_OF_HOST_MEMORY", "INVALID_BUFFER_SIZE")


class translated:
    """Turns what OpenCL raises into a RouteError that names the cause where it is known.

    Args:
        what: the device, as a sentence calls it.
    """

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        import pyopencl as cl

        self._errors = (cl.Error, MemoryError)

    def __exit__(self, kind: object, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None or not isinstance(error, self._errors):
            return
        text = " ".join(str(error).split())
        if isinstance(error, MemoryError) or any(word in text for word in _MEMORY):
            raise RouteError(
                f"{self._what} has too little memory: {text[:200]}", "use a smaller --batch"
            ) from error
        raise RouteError(f"{self._what}: OpenCL failed: {text[:300]}") from error
