"""Models with labels: what every quantiser is given, and what is kept for the test."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]

Outputs = dict[str, np.ndarray]
Items = tuple[np.ndarray, np.ndarray]
"""Points of each item, and the most that it could have: their sums' ratio is the metric."""


@dataclass(frozen=True)
class Task:
    """A model, data for the quantisers, and other data to test on.

    Args:
        given: inputs by name and ``labels``; calibration, and all that wavefit's search sees.
        test: the same of other items.
        items: outputs by name and labels -> points.
        metric: the same as ``wavefit optimize --metric`` takes it.
        sizes: of symbolic dimensions other than the batch.
    """

    name: str
    model: Path
    given: Path
    test: Outputs
    items: Callable[[Outputs, np.ndarray], Items]
    metric: str
    python_path: Path | None = None
    sizes: tuple[str, ...] = ()


def tasks(cache: Path, only: tuple[str, ...]) -> Iterator[Task]:
    """The tasks asked for, one after another; each is made when its turn comes."""
    if "digits" in only:
        yield digits(cache / "digits")
    if "ocr" in only:
        yield ocr(cache / "ocr")


def digits(folder: Path) -> Task:
    """The demo's classifier; of its 500 labelled images 200 are given and 300 tested on."""
    import wavefit.demo

    source = Path(wavefit.demo.__file__).parent
    with np.load(source / "digits.npz") as archive:
        data = dict(archive)
    given = _save(folder, {name: array[:200] for name, array in data.items()})
    test = {name: array[200:] for name, array in data.items()}
    return Task("digits", source / "digits.onnx", given, test, top1, "top1")


def ocr(folder: Path) -> Task:
    """rapidocr's recogniser on rendered lines of text: 96 given, 160 tested on."""
    example = ROOT / "examples" / "ocr"
    sys.path.insert(0, str(example))
    import ocr as example_ocr

    model = example_ocr.prepare()

    def items(outputs: Outputs, labels: np.ndarray) -> Items:
        lengths = np.array([len(example_ocr.text(int(number))) for number in labels])
        return lengths - np.array(example_ocr.line_edits(outputs, labels)), lengths

    given = _save(folder, example_ocr.lines(range(96)))
    test = example_ocr.lines(range(96, 256))
    height, width = _free_sizes(model)
    sizes = (f"{height}={example_ocr.HEIGHT}", f"{width}={example_ocr.WIDTH}")
    return Task("ocr", model, given, test, items, "ocr:characters_right", example, sizes)


def top1(outputs: Outputs, labels: np.ndarray) -> Items:
    """1 point for an item whose best class is its label."""
    scores = next(iter(outputs.values()))
    return (scores.argmax(1) == labels).astype(np.int64), np.ones(len(labels), np.int64)


def _save(folder: Path, arrays: Outputs) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / "given.npz", **arrays)
    return folder / "given.npz"


def _free_sizes(model: Path) -> tuple[str, str]:
    import onnx

    shape = onnx.load(model, load_external_data=False).graph.input[0].type.tensor_type.shape
    return shape.dim[2].dim_param, shape.dim[3].dim_param
