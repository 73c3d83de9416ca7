"""Models with labels: what every quantiser is given, and what is kept for the test."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
_GIVEN, _TESTED = 192, 2000  # items of a built case: two of 192 are one point, which is noise

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
        folder: that the metric's module lies in.
        sizes: of symbolic dimensions other than the batch.
        minimal: the fewest nodes that must stay fp32 beside fp16, where that is known.
    """

    name: str
    model: Path
    given: Path
    test: Outputs
    items: Callable[[Outputs, np.ndarray], Items]
    metric: str
    folder: Path
    sizes: tuple[str, ...] = ()
    minimal: frozenset[str] | None = None


def tasks(cache: Path, only: tuple[str, ...]) -> Iterator[Task]:
    """The tasks asked for, one after another; each is made when its turn comes."""
    if "digits" in only:
        yield digits(cache / "digits")
    if "ocr" in only:
        yield ocr(cache / "ocr")
    yield from cases(cache, only)


def digits(folder: Path) -> Task:
    """The demo's classifier; of its 500 labelled images 200 are given and 300 tested on."""
    import wavefit.demo

    source = Path(wavefit.demo.__file__).parent
    with np.load(source / "digits.npz") as archive:
        data = dict(archive)
    given = _save(folder, {name: array[:200] for name, array in data.items()})
    test = {name: array[200:] for name, array in data.items()}
    return Task("digits", source / "digits.onnx", given, test, top1, "top1", folder)


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


def cases(cache: Path, only: tuple[str, ...]) -> Iterator[Task]:
    """The built cases of tests/precision/cases, all or by name: its first items are given, the others tested on."""
    sys.path.insert(0, str(ROOT / "tests"))
    package = ModuleType("precision")  # by name this folder's precision.py would come first
    package.__path__ = [str(ROOT / "tests" / "precision")]
    sys.modules["precision"] = package
    for file in sorted((ROOT / "tests" / "precision" / "cases").glob("*.py")):
        if not {file.stem, "cases"} & set(only):
            continue
        module = importlib.import_module(f"precision.cases.{file.stem}")
        if hasattr(module, "build"):
            yield _case(module, file.stem, cache / file.stem)


def _case(module: ModuleType, name: str, folder: Path) -> Task:
    folder.mkdir(parents=True, exist_ok=True)
    more = {"items": _GIVEN + _TESTED} if "items" in inspect.signature(module.build).parameters else {}
    case = module.build(folder / "model.onnx", **more)
    data = {**case.inputs, "labels": case.labels} if hasattr(case, "labels") else _labelled(case)
    count = len(data["labels"])
    first = _GIVEN if count == _GIVEN + _TESTED else count // 2
    given = _save(folder, {key: array[:first] for key, array in data.items()})
    test = {key: array[first:] for key, array in data.items()}
    minimal = case.minimal if hasattr(case, "minimal") else case.kept
    metric = getattr(case, "metric", "top1")
    items = top1 if metric == "top1" else _one_by_one(getattr(module, metric.partition(":")[2]))
    _rename_weights(case.path)
    return Task(name, case.path, given, test, items, metric, ROOT / "tests", (), minimal)


def _one_by_one(metric: Callable[[Outputs, np.ndarray], float]) -> Callable[[Outputs, np.ndarray], Items]:
    """Points of each item, by a metric that is a mean over items."""

    def items(outputs: Outputs, labels: np.ndarray) -> Items:
        parts = (
            metric({name: array[item : item + 1] for name, array in outputs.items()}, labels[item : item + 1])
            for item in range(len(labels))
        )
        return np.array(list(parts)), np.ones(len(labels))

    return items


def _rename_weights(path: Path) -> None:
    """Adds to every weight's name: some are called X_scale, as quantisers call what they make for a value X."""
    import onnx

    model = onnx.load(path)
    names = {tensor.name: f"{tensor.name}.stored" for tensor in model.graph.initializer}
    for tensor in model.graph.initializer:
        tensor.name = names[tensor.name]
    _rename_inputs(model.graph, names)
    onnx.save(model, path)


def _rename_inputs(graph: Any, names: dict[str, str]) -> None:
    for node in graph.node:
        for index, name in enumerate(node.input):
            node.input[index] = names.get(name, name)
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _rename_inputs(attribute.g, names)


def _labelled(case: Any) -> Outputs:
    """More items of the case's shapes, and the fp32 model's own classes."""
    import onnxruntime

    rng = np.random.default_rng(0)
    inputs = {
        name: rng.normal(size=(_GIVEN + _TESTED, *array.shape[1:])).astype(array.dtype)
        for name, array in case.data.items()
    }
    session = onnxruntime.InferenceSession(str(case.path), providers=["CPUExecutionProvider"])
    return {**inputs, "labels": session.run(None, inputs)[0].argmax(-1)}


def top1(outputs: Outputs, labels: np.ndarray) -> Items:
    """1 point for an item whose best class is its label, and whose scores are numbers."""
    scores = next(iter(outputs.values()))
    right = (scores.argmax(1) == labels) & np.isfinite(scores).all(1)
    return right.astype(np.int64), np.ones(len(labels), np.int64)


def _save(folder: Path, arrays: Outputs) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / "given.npz", **arrays)
    return folder / "given.npz"


def _free_sizes(model: Path) -> tuple[str, str]:
    import onnx

    shape = onnx.load(model, load_external_data=False).graph.input[0].type.tensor_type.shape
    return shape.dim[2].dim_param, shape.dim[3].dim_param
