"""How far a graph's answers are from fp32's over many items together: what graphs are ranked by.

The guard's error is that of the worst of a few items, so that no wrong one is averaged away. Of two graphs that are
about as good it says little: which item is worst is luck. On a transformer in int8, SmoothQuant made the error over
2,000 items 11 % smaller, and that of the worst of 8 items larger.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from wavefit.guard.numeric import is_float
from wavefit.guard.ort import OrtReference
from wavefit.model.cost import cost
from wavefit.model.samples import Samples
from wavefit.model.shapes import bind
from wavefit.routes.session import Arrays
from wavefit.schema import Model

ITEMS = 64
"""Most items that are run for it."""
_FLOPS = 4e10  # of one evaluation, about a second: a large model is run on fewer items
_MOST_BYTES = 256 << 20  # of fp32 answers that are held


@dataclass(frozen=True)
class Distance:
    """The root of the mean squared error over the mean square of the answers, of the worst output.

    Args:
        model: the fp32 model.
        samples: held-out items; as many evenly spread ones are run as its size allows, one batch at least.
        batch: items of one run.
        sizes: of symbolic dimensions other than the batch.
    """

    model: Model
    samples: Samples
    batch: int
    sizes: tuple[tuple[str, int], ...] = ()

    def __call__(self, run: Callable[[Arrays], Arrays]) -> float | None:
        """None where an answer is missing or is not finite where fp32's is; 0 where no output is of floats.

        Raises:
            InputError: as ``run`` does, or the fp32 model cannot be run.
        """
        errors: dict[str, float] = {}
        sizes: dict[str, float] = {}
        for inputs, expected in self._expected:
            actual = run(inputs)
            for name, want in expected.items():
                have = actual.get(name)
                if have is None or have.shape != want.shape:
                    return None
                fine = np.isfinite(want)
                wide = want[fine].astype(np.float64)
                errors[name] = errors.get(name, 0.0) + float(np.square(have[fine] - wide).sum())
                sizes[name] = sizes.get(name, 0.0) + float(np.square(wide).sum())
        found = [_root(error, sizes[name]) for name, error in errors.items()]
        return max(found, default=0.0) if all(np.isfinite(found)) else None

    @cached_property
    def _expected(self) -> list[tuple[Arrays, Arrays]]:
        """Batches of inputs, and fp32's float outputs of each."""
        reference = OrtReference(self.model, Path(self.model.path))
        places = np.linspace(0, self.samples.count - 1, self._count).round().astype(int)
        few = Samples(self.samples.pick(places), None, self.samples.source, self.samples.whole)
        found: list[tuple[Arrays, Arrays]] = []
        for start in range(0, self._count, self.batch):
            inputs = few.batch(start, self.batch)
            outputs = {name: array for name, array in reference(inputs).items() if is_float(array)}
            found.append((inputs, outputs))
            if len(found) * sum(array.nbytes for array in outputs.values()) > _MOST_BYTES:
                break
        return found

    @property
    def _count(self) -> int:
        """Whole batches."""
        flops = cost(self.model, bind(self.model, self.batch, dict(self.sizes))).flops / self.batch
        most = min(ITEMS, self.samples.count, int(_FLOPS / max(flops, 1.0)))
        return max(self.batch, most // self.batch * self.batch)


def _root(error: float, size: float) -> float:
    if error == 0:
        return 0.0
    return float(np.sqrt(error / size)) if size > 0 else np.inf
