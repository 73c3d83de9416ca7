"""One implementation run between guard zones: what it wrote, and where it should not have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from wavefit.native import views
from wavefit.native.operation import Buffer, Implementation, Operation, View
from wavefit.native.templates import Template
from wavefit.native.triton.memory import to_torch
from wavefit.native.triton.runner import prepared, target_of

_GUARD = 512  # bytes before and after every buffer: a multiple of every alignment that kernels are promised
_CANARY = 0xA5
_POISON = 0xFF  # NaN in every float type


@dataclass(frozen=True)
class Outcome:
    """What came of one run.

    Args:
        outputs: what each output's view shows.
        trespasses: buffers round which, or between whose elements, something was written.
    """

    outputs: tuple[np.ndarray, ...]
    trespasses: tuple[str, ...]


def run(
    operation: Operation,
    made: Implementation,
    template: Template,
    arrays: Sequence[np.ndarray | None],
    device: Any,
    cache: Path,
    runs: int = 1,
) -> Outcome:
    """Runs an operation.

    Args:
        operation: its views say how the arrays lie in their buffers.
        made: its kernels.
        template: that made them; packs constants.
        arrays: one for each input, of the view's shape.
        device: a ``torch.device``; on "cpu" Triton's interpreter runs.
        cache: of code objects.
        runs: how often; later runs must find what the first left.
    """
    buffers: dict[tuple[str, int], _Guarded] = {}
    for number, (view, array) in enumerate(zip(operation.inputs, arrays, strict=True)):
        if view is not None and array is not None:
            buffers["input", number] = _Guarded(_laid(view, array), device)
    for number, view in enumerate(operation.outputs):
        buffers["output", number] = _Guarded(_poisoned(view.extent * view.itemsize, view.dtype), device)
    for number, size in enumerate(made.scratch):
        buffers["scratch", number] = _Guarded(_poisoned(size, "uint8"), device)
    for number, packed in enumerate(made.packed):
        given = arrays[packed.input]
        assert given is not None
        buffers["packed", number] = _Guarded(template.pack(packed.how, operation, given), device)
    buffers["counter", 0] = _Guarded(np.zeros(max(1, made.counters), np.int32), device)
    target = target_of(device)
    calls = [(prepared(each.kernel, target, cache), each) for each in made.launches]
    for _ in range(runs):
        for call, launch in calls:
            types = launch.kernel.types
            given_types = types or ("",) * len(launch.arguments)
            tensors = [
                _argument(buffers, each, kind)
                for each, kind in zip(launch.arguments, given_types, strict=True)
            ]
            call(*tensors)
    shown, gaps = [], []
    for number, view in enumerate(operation.outputs):
        output, clean = buffers["output", number].held(view)
        shown.append(output)
        gaps += [] if clean else [f"between the elements of output {number}"]
    outside = [f"outside {kind} {number}" for (kind, number), each in buffers.items() if each.trespassed]
    assert not buffers["counter", 0].array.any(), "a launch left a counter that is not 0"
    return Outcome(tuple(shown), (*outside, *gaps))


def _argument(buffers: dict[tuple[str, int], _Guarded], buffer: Buffer, dtype: str) -> Any:
    return buffers[buffer.kind, buffer.index].tensor(dtype)


class _Guarded:
    """A buffer in the middle of a larger one."""

    def __init__(self, array: np.ndarray, device: Any) -> None:
        self._dtype = array.dtype
        self._bytes = array.nbytes
        around = np.full(self._bytes + 2 * _GUARD + (-self._bytes) % 16, _CANARY, np.uint8)
        around[_GUARD : _GUARD + self._bytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        self._before = around.copy()
        self._whole = to_torch(around, device)

    def tensor(self, dtype: str) -> Any:
        """Flat, from its first byte to its last; of its own type, or of the one that a kernel takes it for."""
        from wavefit.native.triton.memory import torch_type

        kind = torch_type(dtype or self._dtype.name)
        return self._whole[_GUARD : _GUARD + self._bytes].view(kind)

    @property
    def array(self) -> np.ndarray:
        return self._now()[_GUARD : _GUARD + self._bytes].view(self._dtype)

    def _now(self) -> np.ndarray:
        now: np.ndarray = self._whole.cpu().numpy()
        return now

    @property
    def trespassed(self) -> bool:
        now, before = self._now(), self._before
        end = _GUARD + self._bytes
        return bool((now[:_GUARD] != before[:_GUARD]).any() or (now[end:] != before[end:]).any())

    def held(self, view: View) -> tuple[np.ndarray, bool]:
        """What a view shows, and whether the elements that it does not show are as they were."""
        flat = self.array.copy()
        shown = np.array(views.shown(flat, view))
        views.shown(flat, view)[...] = np.zeros((), flat.dtype)
        untouched = np.full(flat.nbytes, _POISON, np.uint8).view(flat.dtype)
        views.shown(untouched, view)[...] = np.zeros((), flat.dtype)
        return shown, flat.tobytes() == untouched.tobytes()


def _laid(view: View, array: np.ndarray) -> np.ndarray:
    """The elements of a buffer that a view shows as an array; NaN where it shows nothing."""
    memory = _poisoned(view.extent * view.itemsize, view.dtype)
    views.shown(memory, view)[...] = array
    return memory


def _poisoned(size: int, dtype: str) -> np.ndarray:
    if dtype == "bfloat16":
        import ml_dtypes

        return np.full(size, _POISON, np.uint8).view(ml_dtypes.bfloat16)
    return np.full(size, _POISON, np.uint8).view("uint8" if dtype == "bool" else dtype)
