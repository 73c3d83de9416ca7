"""What an opened plan is: a thing that runs inputs to outputs and says where it ran."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from wavefit.errors import InputError, RouteError
from wavefit.schema import Placement, TensorSpec

Arrays = dict[str, np.ndarray]


class Session(ABC):
    """An opened plan. The public methods check, the ``_impl`` methods work.

    Args:
        inputs: the model's inputs; a symbolic dimension admits any size.
        outputs: the model's outputs.

    Attributes:
        compile_s: seconds of opening that went into compiling kernels; None where the runtime does not tell.
        notes: what its user should know of how it was opened, one sentence each.
    """

    compile_s: float | None = None
    notes: tuple[str, ...] = ()

    def __init__(self, inputs: tuple[TensorSpec, ...], outputs: tuple[TensorSpec, ...]) -> None:
        self.inputs = inputs
        self.outputs = outputs
        self._closed = False

    def run(self, inputs: Mapping[str, np.ndarray]) -> Arrays:
        """Runs one batch and waits for it.

        Returns:
            Every output by name, on the host, in the model's order.

        Raises:
            InputError: an input is missing, unknown, or of another type or shape.
            RouteError: the runtime failed, or the session is closed.
        """
        self._check(inputs)
        return self._run_impl(inputs)

    def stream(self, batches: Iterable[Mapping[str, np.ndarray]]) -> Iterator[Arrays]:
        """Answers successive batches in order; a runtime that can brings one in while it computes another.

        A batch is taken from ``batches`` when there is room for it, which may be before the one ahead is answered.
        The session must not be run otherwise until the last answer has been taken.

        Raises:
            As :meth:`run`, at the batch that is at fault; those ahead of it may not have been answered by then.
        """
        return self._stream_impl(self._checked(batches))

    def _checked(self, batches: Iterable[Mapping[str, np.ndarray]]) -> Iterator[Mapping[str, np.ndarray]]:
        for inputs in batches:
            self._check(inputs)
            yield inputs

    def _check(self, inputs: Mapping[str, np.ndarray]) -> None:
        if self._closed:
            raise RouteError("the session is closed", "open it again")
        check_inputs(self.inputs, inputs)

    def placement(self) -> Placement | None:
        """Which nodes ran where, from a profiled run; None where the runtime cannot tell. May take seconds."""
        return self._placement_impl()

    def device_peak_bytes(self) -> int | None:
        """Most device memory this session has held; None where the runtime cannot tell."""
        return self._device_peak_bytes_impl()

    def close(self) -> None:
        """Frees the runtime's resources. Closing twice is harmless."""
        if not self._closed:
            self._closed = True
            self._close_impl()

    @abstractmethod
    def _run_impl(self, inputs: Mapping[str, np.ndarray]) -> Arrays: ...

    def _stream_impl(self, batches: Iterator[Mapping[str, np.ndarray]]) -> Iterator[Arrays]:
        return map(self._run_impl, batches)

    def _placement_impl(self) -> Placement | None:
        return None

    def _device_peak_bytes_impl(self) -> int | None:
        return None

    def _close_impl(self) -> None:
        return None


def check_inputs(specs: tuple[TensorSpec, ...], inputs: Mapping[str, np.ndarray]) -> None:
    """Holds given arrays against the model's inputs.

    Raises:
        InputError: an input is missing, unknown, or of another type or shape; the message names it.
    """
    for spec in specs:
        array = inputs.get(spec.name)
        if array is None:
            raise InputError(f"input {spec.name!r} is missing", f"this model takes {_names(specs)}")
        if array.dtype.name != spec.dtype and not (spec.dtype == "string" and array.dtype.kind in "OUS"):
            raise InputError(f"input {spec.name!r} is {array.dtype.name}, the model takes {spec.dtype}")
        if spec.shape is not None and not _fits(spec.shape, array.shape):
            raise InputError(
                f"input {spec.name!r} has shape {show(array.shape)}, the model takes {show(spec.shape)}"
            )
    if len(inputs) > len(specs):
        extra = sorted(set(inputs) - {spec.name for spec in specs})
        raise InputError(f"the model has no input {extra[0]!r}", f"it takes {_names(specs)}")


def show(shape: tuple[object, ...]) -> str:
    """A shape as people write it: ``1x3x224x224``, ``Nx10``, ``?`` for an unknown size, ``scalar`` for rank 0."""
    return "x".join("?" if dim is None else str(dim) for dim in shape) or "scalar"


def _fits(expected: tuple[object, ...], actual: tuple[int, ...]) -> bool:
    if len(expected) != len(actual):
        return False
    return all(not isinstance(want, int) or want == have for want, have in zip(expected, actual, strict=True))


def _names(specs: tuple[TensorSpec, ...]) -> str:
    return ", ".join(spec.name for spec in specs)
