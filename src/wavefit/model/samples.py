"""Sample data: seeded random inputs, or the user's images and arrays, held against the model before they are read.

Items lie on axis 0 of every input. An input without a batch axis is passed whole to every run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wavefit.errors import InputError
from wavefit.model.shapes import bind
from wavefit.model.shapes import fixed_batch as fixed_batch
from wavefit.schema import Model, TensorSpec

if TYPE_CHECKING:
    import numpy as np

MAX_BYTES = 4 << 30
"""Most memory that sample data may take, in bytes."""

_DEFAULT_INTEGERS = 10  # exclusive upper end where nothing about an integer input is known


@dataclass(frozen=True)
class Samples:
    """Inputs to run a model on.

    Args:
        inputs: by input name; N items on axis 0, except for those in ``whole``.
        labels: the class of each item, int64 of shape (N,), or None.
        source: where they come from, for people: "random, seed 0", "folder digits".
        whole: inputs without a batch axis, given to every run as they are.
    """

    inputs: dict[str, np.ndarray]
    labels: np.ndarray | None
    source: str
    whole: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """Number of items, N; 1 where no input has a batch axis."""
        return next((len(array) for name, array in self.inputs.items() if name not in self.whole), 1)

    def batch(self, start: int, size: int) -> dict[str, np.ndarray]:
        """The ``size`` items from ``start`` on; item i is item i % N, so that any batch can be filled."""
        import numpy as np

        items = np.arange(start, start + size) % self.count
        return self.pick(items)

    def pick(self, items: np.ndarray) -> dict[str, np.ndarray]:
        """The items of those indices, shape (M,), as contiguous arrays."""
        import numpy as np

        return {
            name: array if name in self.whole else np.ascontiguousarray(array[items])
            for name, array in self.inputs.items()
        }


def whole_inputs(model: Model) -> tuple[str, ...]:
    """The inputs without a batch axis: scalars, and those whose first size stays while the batch is symbolic."""
    frozen = fixed_batch(model) is not None
    return tuple(
        spec.name
        for spec in model.inputs
        if not spec.shape or not (frozen or (model.batch is not None and not isinstance(spec.shape[0], int)))
    )


def item_shapes(model: Model, sizes: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """The shape of one item of every input: without its batch axis, or the whole shape where it has none.

    Raises:
        InputError: a symbolic dimension has no size.
    """
    whole = whole_inputs(model)
    shapes = bind(model, fixed_batch(model) or 1, sizes)
    return {name: tuple(shape) if name in whole else tuple(shape[1:]) for name, shape in shapes.items()}


def random_samples(model: Model, sizes: Mapping[str, int], count: int, seed: int) -> Samples:
    """Seeded random inputs, never zeros.

    Floats are standard normal; an input named like a mask is all ones, one named like positions counts up, one named
    like token types is 0 or 1; integers that index a table of weights stay below its rows, uint8 and int8 take
    their whole range, other integers lie in 1 to 9; booleans are even odds.

    Args:
        sizes: of the symbolic dimensions other than the batch.
        count: items wanted; rounded up to a multiple of the batch that the model is frozen to.

    Raises:
        InputError: count or a size is not positive, an input takes text, or the data would take too much memory.
    """
    import numpy as np

    if count < 1:
        raise InputError(f"{count} samples were asked for", "ask for at least 1")
    shapes = item_shapes(model, sizes)
    whole = whole_inputs(model)
    batch = fixed_batch(model) or 1
    items = -(-count // batch) * batch
    full = {name: shape if name in whole else (items, *shape) for name, shape in shapes.items()}
    check_bytes({spec.name: (full[spec.name], numpy_dtype(spec)) for spec in model.inputs}, "random samples")
    rows = _table_rows(model)
    rng = np.random.default_rng(seed)
    inputs = {spec.name: _random(rng, spec, full[spec.name], rows.get(spec.name)) for spec in model.inputs}
    return Samples(inputs, None, f"random, seed {seed}", whole)


def numpy_dtype(spec: TensorSpec) -> np.dtype:
    """An input's numpy type.

    Raises:
        InputError: it takes text, or a type that numpy does not have.
    """
    import numpy as np

    if spec.dtype == "string":
        raise InputError(f"input {spec.name!r} takes text, for which wavefit has no samples")
    try:
        if spec.dtype.startswith(("bfloat16", "float8", "float4", "int4", "uint4")):
            import ml_dtypes  # noqa: F401  (adds these types to numpy; comes with onnx from 1.19 on)
        return np.dtype(spec.dtype)
    except (TypeError, ImportError) as error:
        raise InputError(f"input {spec.name!r} takes {spec.dtype}, which numpy does not have") from error


def check_bytes(arrays: Mapping[str, tuple[tuple[int, ...], np.dtype]], what: str) -> None:
    """Refuses data that would take more memory than :data:`MAX_BYTES`, or none at all, before any is taken."""
    total = 0
    for name, (shape, dtype) in arrays.items():
        items = 1
        for size in shape:
            items *= size
        if items < 1:
            raise InputError(f"{what}: input {name!r} would have shape {shape}, which holds nothing")
        total += items * dtype.itemsize
    if total > MAX_BYTES:
        raise InputError(
            f"{what} would take {total / 2**30:.1f} GiB, more than the {MAX_BYTES / 2**30:.0f} GiB allowed",
            "take fewer or smaller items",
        )


def check_labels(model: Model, labels: np.ndarray, count: int, where: str) -> np.ndarray:
    """Labels as int64, one an item, below the number of classes.

    Raises:
        InputError: wrong type, too few or too many, negative, or beyond the model's classes.
    """
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise InputError(
            f"{where}: labels are {labels.dtype} of shape {labels.shape}, one integer an item is needed"
        )
    if len(labels) != count:
        raise InputError(f"{where} has {len(labels)} labels for {count} items")
    classes = class_count(model)
    low, high = int(labels.min()), int(labels.max())
    if low < 0:
        raise InputError(f"{where}: label {low} is negative", "classes count from 0")
    if classes is not None and high >= classes:
        raise InputError(
            f"{where}: label {high} is out of range, the model has {classes} classes (0 to {classes - 1})"
        )
    return labels.astype("int64")


def class_count(model: Model) -> int | None:
    """The size of the class axis, the last one of the first output of two dimensions; None where there is none."""
    for spec in model.outputs:
        if spec.shape is not None and len(spec.shape) == 2 and spec.dtype.startswith(("float", "bfloat")):
            size = spec.shape[-1]
            return size if isinstance(size, int) and size > 1 else None
    return None


def _random(
    rng: np.random.Generator, spec: TensorSpec, shape: tuple[int, ...], rows: int | None
) -> np.ndarray:
    import numpy as np

    dtype, name = numpy_dtype(spec), spec.name.lower()
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool) if "mask" not in name else np.ones(shape, bool)
    if "mask" in name:
        return np.ones(shape, dtype)
    if dtype.kind in "iu":
        return _random_integers(rng, name, shape, dtype, rows)
    if dtype.kind == "c":
        return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)
    return rng.standard_normal(shape, np.float32).astype(dtype)


def _random_integers(
    rng: np.random.Generator, name: str, shape: tuple[int, ...], dtype: np.dtype, rows: int | None
) -> np.ndarray:
    import numpy as np

    if "position" in name and shape:
        return np.broadcast_to(np.arange(shape[-1]) % (rows or shape[-1]), shape).astype(dtype)
    if "token_type" in name or "segment" in name:
        return rng.integers(0, min(2, rows or 2), shape).astype(dtype)
    if rows is not None:
        return rng.integers(0, min(rows, np.iinfo(dtype).max), shape).astype(dtype)
    if dtype.itemsize == 1:
        return rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, endpoint=True, dtype=dtype)
    return rng.integers(1, _DEFAULT_INTEGERS, shape).astype(dtype)


def _table_rows(model: Model) -> dict[str, int]:
    """Rows of the smallest table of weights that an integer input indexes, directly or through a Cast."""
    if not any("int" in spec.dtype for spec in model.inputs):
        return {}
    import onnx

    graph = onnx.load(model.path, load_external_data=False).graph
    tables = {weight.name: weight.dims[0] for weight in graph.initializer if weight.dims}
    origin = {spec.name: spec.name for spec in model.inputs}
    rows: dict[str, int] = {}
    for node in graph.node:
        if node.op_type in ("Cast", "Identity") and node.input[0] in origin:
            origin[node.output[0]] = origin[node.input[0]]
        if node.op_type == "Gather" and node.input[1] in origin and node.input[0] in tables:
            if any(attribute.name == "axis" and attribute.i != 0 for attribute in node.attribute):
                continue
            name = origin[node.input[1]]
            rows[name] = min(rows.get(name, tables[node.input[0]]), tables[node.input[0]])
    return rows
