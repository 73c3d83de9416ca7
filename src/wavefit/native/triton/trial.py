"""One operation tried on a GPU: implementations compiled elsewhere, checked against each other, and timed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from wavefit.native import draw, views
from wavefit.native.operation import Buffer, Implementation, Operation
from wavefit.native.triton import kernels
from wavefit.native.triton.compile import Target
from wavefit.native.triton.memory import to_numpy, to_torch, torch_type
from wavefit.native.triton.runner import Call, prepared
from wavefit.native.triton.timing import seconds

_LEAST_S = 1e-3  # of launches that one timing takes together
_MOST_RUNS = 50
_BLOCK = 1_000_003  # random elements, repeated through a buffer; a prime, so that no two rows are alike
_POISON = 0xFF  # bytes of an output before a run: NaN in every float type


class Trial:
    """Buffers of random data for one operation.

    Args:
        operation: what is computed.
        device: a ``torch.device``.
        target: of it; None: Triton's interpreter.
        cache: of code objects.
        seed: of the data.
    """

    def __init__(
        self, operation: Operation, device: Any, target: Target | None, cache: Path, seed: int = 0
    ) -> None:
        self.operation = operation
        self._device, self._target, self._cache = device, target, cache
        self._rng = np.random.default_rng(seed)
        self._blocks = [self._block(number) for number in range(len(operation.inputs))]
        self._inputs = [self._repeated(number) for number in range(len(operation.inputs))]
        self._outputs = [self._bytes(view.extent * view.itemsize) for view in operation.outputs]
        self._packed: dict[tuple[str, str, int], Any] = {}
        self._first: list[Any] = []

    def _bytes(self, size: int) -> Any:
        import torch

        return torch.empty(max(size, 16), dtype=torch.uint8, device=self._device)

    def _block(self, number: int) -> np.ndarray | None:
        """The first elements of a buffer; indices of a Gather stay inside what they pick from."""
        view = self.operation.inputs[number]
        if view is None:
            return None
        count = min(view.extent, _BLOCK)
        if view.dtype == "bfloat16":
            import ml_dtypes

            return self._rng.standard_normal(count, np.float32).astype(ml_dtypes.bfloat16)
        drawn = draw.numbers(self.operation, number, count, self._rng)
        if drawn is not None:
            return drawn
        most = min((n for n in self.operation.input(0).shape if n > 1), default=1) if number == 1 else 100
        return self._rng.integers(0, most, count).astype(view.dtype)

    def _repeated(self, number: int) -> Any:
        view, block = self.operation.inputs[number], self._blocks[number]
        if view is None or block is None:
            return None
        held = to_torch(block, self._device)
        times = -(-view.extent // block.size)
        return held if times == 1 else held.repeat(times)[: view.extent].contiguous()

    def ready(self, made: Implementation) -> Call:
        """What runs an implementation whose kernels are compiled.

        Raises:
            RuntimeError: of Triton or PyTorch: it takes more than the device has.
        """
        scratch = [self._bytes(size) for size in made.scratch]
        packed = [self._pack(made.template, each.how, each.input) for each in made.packed]
        counters = self._bytes(4 * made.counters).zero_()
        steps = []
        for launch in made.launches:
            tensors = [
                _typed(self._argument(each, scratch, packed, counters), kind)
                for each, kind in zip(launch.arguments, launch.kernel.types, strict=True)
            ]
            steps.append((prepared(launch.kernel, self._target, self._cache), tensors))

        def call() -> None:
            for run, tensors in steps:
                run(*tensors)

        return call

    def _argument(self, buffer: Buffer, scratch: Sequence[Any], packed: Sequence[Any], counters: Any) -> Any:
        if buffer.kind == "input":
            return self._inputs[buffer.index]
        if buffer.kind == "output":
            return self._outputs[buffer.index]
        if buffer.kind == "counter":
            return counters
        return scratch[buffer.index] if buffer.kind == "scratch" else packed[buffer.index]

    def _pack(self, template: str, how: str, number: int) -> Any:
        key = (template, how, number)
        if key not in self._packed:
            view, block = self.operation.input(number), self._blocks[number]
            assert block is not None
            logical = np.array(views.shown(np.resize(block, view.extent), view))
            array = kernels.get(template).pack(how, self.operation, logical)
            self._packed[key] = to_torch(np.ascontiguousarray(array), self._device)
        return self._packed[key]

    def logical(self) -> list[np.ndarray | None]:
        """The inputs, each of its view's shape."""
        return [
            None if view is None or block is None else views.shown(np.resize(block, view.extent), view)
            for view, block in zip(self.operation.inputs, self._blocks, strict=True)
        ]

    def answer(self, call: Call) -> list[np.ndarray]:
        """What an implementation computes, on outputs that were all NaN."""
        self._fresh(call)
        found = []
        for view, held in zip(self.operation.outputs, self._outputs, strict=True):
            flat = to_numpy(_typed(held, view.dtype), view.dtype)
            found.append(np.array(views.shown(flat, view)))
        return found

    def difference(self, call: Call) -> float:
        """Relative L2 to the first answer that was asked about, in float on the device; NaN where it left a gap."""
        import torch

        self._fresh(call)
        shown = [
            torch.as_strided(_typed(held, view.dtype), view.shape, view.strides, view.offset)
            for view, held in zip(self.operation.outputs, self._outputs, strict=True)
        ]
        if not self._first:
            self._first = [each.clone() for each in shown]
            return 0.0 if all(bool(torch.isfinite(each.float()).all()) for each in shown) else float("nan")
        off = 0.0
        for one, other in zip(shown, self._first, strict=True):
            scale = float(other.float().norm()) or 1.0
            off = max(off, float((one.float() - other.float()).norm()) / scale)
        return off

    def _fresh(self, call: Call) -> None:
        for held in self._outputs:
            held.fill_(_POISON)
        call()

    def seconds(self, call: Call) -> float:
        """Device seconds of one run: of a graph of many, the least of a few rounds."""
        once = seconds(call, self._device, 1, 1)
        runs = max(3, min(_MOST_RUNS, int(_LEAST_S / max(once, 1e-7))))
        return seconds(call, self._device, runs)

    def close(self) -> None:
        """Gives the device's memory back."""
        self._inputs, self._outputs, self._packed, self._first = [], [], {}, []


def _typed(tensor: Any, dtype: str) -> Any:
    import torch

    kind = torch_type(dtype)
    flat = tensor.view(torch.uint8)
    whole = flat.numel() // kind.itemsize * kind.itemsize
    return flat[:whole].view(kind)
