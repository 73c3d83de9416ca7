"""The user's data in two parts: what ranges are taken from, and what variants are judged on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wavefit.guard.reference import guard_items
from wavefit.model.samples import Samples
from wavefit.model.shapes import fixed_batch
from wavefit.schema import Model

CALIBRATION_ITEMS = 256
"""Most items that ranges are taken from: beyond a few hundred they hardly move (Nagel et al., A White Paper on Neural
Network Quantization, 2021, calibrate on 500 to 1,000 images; TensorRT's guide says 500)."""

HELDOUT_ITEMS = 512
"""Most items that a task metric is taken on during the search; the guard takes all of them afterwards."""

_LARGER_ITEMS = 4
_FEW_ITEMS = 32
_SAME_SHARE = 0.5  # of items that equal another one


@dataclass(frozen=True)
class Split:
    """Two parts of the data, and what is odd about the first."""

    calibration: Samples
    heldout: Samples
    notes: tuple[str, ...] = ()


def split(model: Model, samples: Samples, seed: int) -> Split:
    """Draws calibration items from those that the guard's reference does not hold; the others are held out.

    Where there are too few for two parts, both are all of them, and a note says so. A model that is frozen to a batch
    gets whole batches.
    """
    batch = fixed_batch(model) or 1
    kept = guard_items(model, samples)
    free = np.setdiff1d(np.arange(samples.count), kept)
    free = np.random.default_rng(seed).permutation(free)
    wanted = min(CALIBRATION_ITEMS, (samples.count + 1) // 2)
    count = min(wanted, len(free)) // batch * batch
    if count == 0:
        items = f"{samples.count} items" if samples.count != 1 else "item"
        note = f"calibrated and judged on the same {items}, for there are no more"
        return Split(samples, samples, (note, *odd(samples)))
    chosen, rest = free[:count], np.concatenate([kept, free[count:]])
    rest = np.sort(rest[: max(batch, HELDOUT_ITEMS // batch * batch)])
    calibration = _part(samples, np.sort(chosen))
    return Split(calibration, _part(samples, rest), odd(calibration, samples.labels))


def twice_as_large(model: Model, samples: Samples) -> Samples | None:
    """A few items repeated along every symbolic axis but the batch; None where no input has such an axis."""
    few = samples.pick(np.arange(min(_LARGER_ITEMS, samples.count)))
    grown = dict(few)
    for spec in model.inputs:
        start = 0 if spec.name in samples.whole else 1
        for axis, size in enumerate(spec.shape or ()):
            if axis >= start and not isinstance(size, int):
                grown[spec.name] = np.concatenate([grown[spec.name]] * 2, axis)
    if all(grown[name] is array for name, array in few.items()):
        return None
    return Samples(grown, None, f"{samples.source}, twice as large", samples.whole)


def odd(calibration: Samples, labels: np.ndarray | None = None) -> tuple[str, ...]:
    """What is small or odd about a calibration set, in words.

    Args:
        labels: of all the data, to say which classes are missing.
    """
    notes = []
    count = calibration.count
    if count < _FEW_ITEMS:
        notes.append(
            f"calibrated on {count} item{'s' if count != 1 else ''}, which is few: a hundred is better"
        )
    copies = count - len({_digest(calibration, item) for item in range(count)})
    if copies > _SAME_SHARE * count:
        notes.append(f"{copies} of {count} calibration items are copies of another")
    for name, array in calibration.inputs.items():
        if array.dtype.kind == "f" and array.size > 1 and bool((array == array.flat[0]).all()):
            notes.append(f"input {name!r} is {array.flat[0]:g} everywhere in the calibration items")
    if labels is not None and calibration.labels is not None:
        classes = set(labels.tolist())
        missing = len(classes - set(calibration.labels.tolist()))
        numbers_of_items = 2 * len(classes) > len(labels)  # as a metric of one's own may take
        if missing and not numbers_of_items:
            notes.append(f"{missing} of {len(classes)} classes are in no calibration item")
    return tuple(notes)


def _part(samples: Samples, items: np.ndarray) -> Samples:
    labels = samples.labels[items] if samples.labels is not None else None
    return Samples(samples.pick(items), labels, samples.source, samples.whole)


def _digest(samples: Samples, item: int) -> bytes:
    return b"".join(array.tobytes() for array in samples.pick(np.array([item])).values())
