"""The reference: what a model answers in fp32 with graph optimisation off, and in float64 where that can be run."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from wavefit.errors import InputError
from wavefit.guard.exact import NoFloat64, run_float64
from wavefit.guard.ort import OrtReference
from wavefit.model.samples import Samples, fixed_batch
from wavefit.schema import Model, decode, encode

GUARD_SAMPLES = 8
"""Items that candidates are compared on; larger batches repeat them, so that every position is looked at."""

_FLOAT64_SAMPLES = 4
_FLOAT64_LIMIT_S = 60.0
_BATCH_TOLERANCE = (
    1e-3  # relative L2 between an item alone and in a batch: rounding is far below, coupling above
)
_ARRAYS, _FACTS = "reference.npz", "reference.json"


@dataclass(frozen=True)
class Reference:
    """A model's right answers.

    Args:
        samples: n items.
        outputs: fp32 (the file's own types), n items on axis 0; the whole answer where the model has no batch axis;
            empty where items depend on one another.
        float64: the same for the first m of the n items; None where it could not be run.
        per_item: every output has the batch on axis 0 and an item's answer does not depend on its neighbours. Where
            that is not so and there is a batch, the reference is run anew for every batch that is compared.
        warnings: what this reference could not do, for people.
    """

    model: Model
    samples: Samples
    outputs: dict[str, np.ndarray]
    float64: dict[str, np.ndarray] | None
    per_item: bool
    warnings: tuple[str, ...] = ()

    def expected(self, start: int, size: int) -> dict[str, np.ndarray]:
        """The fp32 answers to ``samples.batch(start, size)``: position i answers item (start + i) % n."""
        if not self.per_item:
            return self.outputs or self._session(self.samples.batch(start, size))
        items = np.arange(start, start + size) % self.samples.count
        return {name: array[items] for name, array in self.outputs.items()}

    def exact(self, name: str, start: int, size: int) -> np.ndarray | None:
        """float64 for the first positions of the same batch, as far as it reaches."""
        if self.float64 is None:
            return None
        return self.float64[name][start : start + size] if self.per_item else self.float64[name]

    @cached_property
    def _session(self) -> OrtReference:
        return OrtReference(self.model, Path(self.model.path))

    @cached_property
    def unit_roundoff(self) -> float:
        """Of the coarsest float type in the file's own weights, inputs and outputs: 2^-24 for fp32."""
        return unit_roundoff(self.model)

    def save(self, folder: Path) -> None:
        """Writes ``reference.npz`` and ``reference.json`` for other processes."""
        groups = {"input": self.samples.inputs, "output": self.outputs, "float64": self.float64 or {}}
        arrays: dict[str, np.ndarray] = {}
        index: list[dict[str, str]] = []
        for group, members in groups.items():
            for name, array in members.items():
                key = f"a{len(index)}"
                stored, dtype = _storable(array)
                arrays[key] = stored
                index.append({"group": group, "name": name, "key": key, "dtype": dtype})
        if self.samples.labels is not None:
            arrays["labels"] = self.samples.labels
        facts = {
            "model": json.loads(encode(self.model)),
            "arrays": index,
            "source": self.samples.source,
            "whole": self.samples.whole,
            "float64": self.float64 is not None,
            "per_item": self.per_item,
            "warnings": self.warnings,
        }
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / _ARRAYS).open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
        (folder / _FACTS).write_text(json.dumps(facts), encoding="utf-8")

    @staticmethod
    def load(folder: Path) -> Reference:
        """Reads what :meth:`save` wrote.

        Raises:
            InputError: a file is missing or damaged.
        """
        try:
            facts = json.loads((folder / _FACTS).read_text(encoding="utf-8"))
            with np.load(folder / _ARRAYS, allow_pickle=False) as arrays:
                groups: dict[str, dict[str, np.ndarray]] = {"input": {}, "output": {}, "float64": {}}
                for entry in facts["arrays"]:
                    groups[entry["group"]][entry["name"]] = _restored(arrays[entry["key"]], entry["dtype"])
                labels = arrays.get("labels")
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise InputError(f"the reference in {folder} could not be read: {error}") from error
        return Reference(
            model=decode(json.dumps(facts["model"]), Model, str(folder / _FACTS)),
            samples=Samples(groups["input"], labels, facts["source"], tuple(facts["whole"])),
            outputs=groups["output"],
            float64=groups["float64"] if facts["float64"] else None,
            per_item=facts["per_item"],
            warnings=tuple(facts["warnings"]),
        )


def make_reference(model: Model, samples: Samples, say: Callable[[str], None]) -> Reference:
    """Runs the reference on at most :data:`GUARD_SAMPLES` items, spread evenly over the samples.

    Args:
        say: progress for people.

    Raises:
        InputError: ONNX Runtime is missing, does not take the model, or an output is no tensor.
    """
    chosen = _spread(model, samples)
    say(f"fp32 on {chosen.count} samples")
    session = OrtReference(model, Path(model.path))
    outputs, per_item, warnings = _run_fp32(model, session, chosen)
    exact: dict[str, np.ndarray] | None = None
    if outputs:
        size = fixed_batch(model) or min(_FLOAT64_SAMPLES, chosen.count)
        say(f"float64 on {size} samples")
        try:
            exact = run_float64(model, chosen.batch(0, size), _FLOAT64_LIMIT_S)
        except NoFloat64 as error:
            warnings.append(f"no float64 reference: {error}")
    if exact is not None:
        same = {name: array[:size] for name, array in outputs.items()} if per_item else outputs
        exact, distrust = _trusted(exact, same, unit_roundoff(model))
        warnings += distrust
    return Reference(model, chosen, outputs, exact, per_item, tuple(warnings))


def _run_fp32(
    model: Model, session: OrtReference, samples: Samples
) -> tuple[dict[str, np.ndarray], bool, list[str]]:
    """The outputs, whether they are answers to each item alone, and what could not be done."""
    if model.batch is None:
        return _run_fixed(session, samples, fixed_batch(model))
    together = session(samples.batch(0, samples.count))
    alone = session(samples.batch(0, 1))
    coupled = [name for name in together if not _is_per_item(together[name], alone[name], samples.count)]
    if not coupled:
        return together, True, []
    return {}, False, [_coupled(coupled[0])]


def _run_fixed(
    session: OrtReference, samples: Samples, batch: int | None
) -> tuple[dict[str, np.ndarray], bool, list[str]]:
    """A model with a frozen batch, run block by block; without a batch axis, run once."""
    if batch is None:
        return session(samples.batch(0, 1)), False, []
    blocks = [session(samples.batch(start, batch)) for start in range(0, samples.count, batch)]
    for name, first in blocks[0].items():
        if any(not block[name].shape or len(block[name]) != batch for block in blocks):
            return {}, False, [_coupled(name)]
        if any(block[name].shape != first.shape for block in blocks):
            return {}, False, [_coupled(name)]
    joined = {name: np.concatenate([block[name] for block in blocks])[: samples.count] for name in blocks[0]}
    return joined, True, []


def _coupled(name: str) -> str:
    return f"output {name!r} is not one answer an item: batches are compared with the fp32 reference alone"


def _is_per_item(together: np.ndarray, alone: np.ndarray, count: int) -> bool:
    if not together.shape or len(together) != count or alone.shape != (1, *together.shape[1:]):
        return False
    if together.dtype.kind not in "fc":
        return bool((together[0] == alone[0]).mean() > 0.99) if together[0].size else True
    a, b = together[0].astype(np.float64), alone[0].astype(np.float64)
    finite = np.isfinite(a) & np.isfinite(b)
    apart = float(np.linalg.norm((a - b)[finite]))
    return apart <= _BATCH_TOLERANCE * max(float(np.linalg.norm(b[finite])), 1e-30)


def _trusted(
    exact: dict[str, np.ndarray], outputs: Mapping[str, np.ndarray], unit: float
) -> tuple[dict[str, np.ndarray] | None, list[str]]:
    """Drops a float64 run that is further from fp32 than rounding explains: one of the two is then no reference."""
    limit = float(np.sqrt(unit))
    for name, array in exact.items():
        other = outputs[name]
        if array.shape != other.shape:
            return None, [f"no float64 reference: output {name!r} has another shape there"]
        if array.dtype.kind != "f":
            continue
        finite = np.isfinite(array) & np.isfinite(other)
        apart = float(np.linalg.norm((array - other)[finite]))
        size = float(np.linalg.norm(array[finite]))
        if apart > limit * size:
            far = apart / size if size else float("inf")
            return None, [
                f"no float64 reference: it differs from fp32 by {far:.1e} (relative L2) at output {name!r}, "
                f"more than rounding explains ({limit:.1e}); the model may be ill-conditioned"
            ]
    return exact, []


def guard_items(model: Model, samples: Samples) -> np.ndarray:
    """Indices of at most :data:`GUARD_SAMPLES` items, evenly over all: data sorted by class would else give one."""
    batch = fixed_batch(model) or 1
    blocks = -(-samples.count // batch)
    wanted = min(blocks, max(1, GUARD_SAMPLES // batch))
    starts = np.unique(np.linspace(0, blocks - 1, wanted).round().astype(int)) * batch
    return (starts[:, None] + np.arange(batch)).ravel() % samples.count


def _spread(model: Model, samples: Samples) -> Samples:
    items = guard_items(model, samples)
    labels = samples.labels[items] if samples.labels is not None else None
    return Samples(samples.pick(items), labels, samples.source, samples.whole)


def unit_roundoff(model: Model) -> float:
    """2^-p of the coarsest float type among the file's weights, inputs and outputs; p bits of significand."""
    import onnx

    bits = {"float16": 11, "bfloat16": 8}
    kinds = {spec.dtype for spec in (*model.inputs, *model.outputs)}
    graph = onnx.load(model.path, load_external_data=False).graph
    kinds |= {onnx.TensorProto.DataType.Name(weight.data_type).lower() for weight in graph.initializer}
    return 2.0 ** -min(bits.get(kind, 24) for kind in kinds or {"float32"})


def _storable(array: np.ndarray) -> tuple[np.ndarray, str]:
    """What .npy can hold without pickle: text as fixed-width, bfloat16 and float8 as their bits."""
    if array.dtype.kind == "O":
        return array.astype(np.str_), "object"
    if array.dtype.kind == "V" or array.dtype.name.startswith(("bfloat", "float8")):
        return array.view(f"u{array.dtype.itemsize}"), array.dtype.name
    return array, array.dtype.name


def _restored(array: np.ndarray, dtype: str) -> np.ndarray:
    if dtype == "object":
        return array.astype(object)
    if array.dtype.name == dtype or array.dtype.kind == "U":
        return array
    import ml_dtypes  # noqa: F401  (gives numpy those types)

    return array.view(np.dtype(dtype))
