"""What OpenCL says, as refusals that name a cause."""

from __future__ import annotations

from types import TracebackType

from wavefit.errors import RouteError

_MEMORY = ("MEM_OBJECT_ALLOCATION_FAILURE", "OUT_OF_RESOURCES", "OUT_OF_HOST_MEMORY", "INVALID_BUFFER_SIZE")


def refusal(what: str, said: str) -> RouteError:
    """The cause where it is known. Drivers that allocate late say only at a launch that memory is short.

    Args:
        what: the device, as a sentence calls it.
        said: pyopencl's message, or a status by name.
    """
    text = " ".join(said.split())
    if any(word in text for word in _MEMORY):
        return too_little_memory(what, text[:200])
    return RouteError(f"{what}: OpenCL failed: {text[:300]}")


def too_little_memory(what: str, why: str) -> RouteError:
    return RouteError(f"{what} has too little memory: {why}", "use a smaller --batch")


class translated:
    """Turns what OpenCL raises into a RouteError.

    Args:
        what: the device, as a sentence calls it.
    """

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        import pyopencl as cl

        self._error = cl.Error

    def __exit__(self, kind: object, error: BaseException | None, trace: TracebackType | None) -> None:
        if isinstance(error, MemoryError):  # also pyopencl's, which is both
            raise too_little_memory(self._what, " ".join(str(error).split())[:200]) from error
        if isinstance(error, self._error):
            raise refusal(self._what, str(error)) from error
