"""Concrete shapes for a model's inputs: a batch and sizes in place of the symbolic dimensions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from wavefit.errors import InputError
from wavefit.schema import Model, TensorSpec

_NO_SIZES: Mapping[str, int] = {}


def dim_name(spec: TensorSpec, axis: int) -> str | None:
    """What a symbolic dimension is called: its name, "input:axis" without one; None for a fixed size."""
    dim = spec.shape[axis] if spec.shape is not None else None
    if isinstance(dim, int):
        return None
    return dim or f"{spec.name}:{axis}"


def dynamic_dims(inputs: Sequence[TensorSpec]) -> tuple[str, ...]:
    """Names of all symbolic dimensions of the inputs, in order, each once."""
    names = (dim_name(spec, axis) for spec in inputs for axis in range(len(spec.shape or ())))
    return tuple(dict.fromkeys(name for name in names if name is not None))


def batch_dim(inputs: Sequence[TensorSpec]) -> str | None:
    """The symbolic first dimension that the inputs share.

    Scalars and inputs with a fixed first dimension are the same whatever the batch. First dimensions
    without a name count as one with the others. None where there is no symbolic first dimension, or
    two with different names.
    """
    firsts = [spec for spec in inputs if spec.shape and not isinstance(spec.shape[0], int)]
    named = {spec.shape[0] for spec in firsts if spec.shape and spec.shape[0]}
    if not firsts or len(named) > 1:
        return None
    return str(named.pop()) if named else dim_name(firsts[0], 0)


def bind(model: Model, batch: int, sizes: Mapping[str, int] = _NO_SIZES) -> dict[str, tuple[int, ...]]:
    """Every input's concrete shape.

    Args:
        model: the checked model.
        batch: the size of the model's batch dimension; where that is fixed, the same number.
        sizes: sizes of the other symbolic dimensions, by name ("input:axis" where one has no name).

    Raises:
        InputError: a symbolic dimension has no size, a size names no dimension or is below 1, the batch
            is below 1 or differs from the model's fixed one, or an input's rank is unknown.
    """
    _check_sizes(model, batch, sizes)
    known = {**({model.batch: batch} if model.batch else {}), **sizes}
    shapes = {spec.name: _bind_input(model, spec, known) for spec in model.inputs}
    if model.batch is None:
        _check_fixed_batch(model, shapes, batch)
    return shapes


def _check_sizes(model: Model, batch: int, sizes: Mapping[str, int]) -> None:
    if batch < 1:
        raise InputError(f"the batch is {batch}, it must be 1 or more")
    for name, size in sizes.items():
        if name not in model.dynamic:
            has = ", ".join(model.dynamic) or "none"
            raise InputError(
                f"--size {name}={size}: {model.name} has no such symbolic dimension (it has: {has})"
            )
        if size < 1:
            raise InputError(f"--size {name}={size}: a size must be 1 or more")
    asked = sizes.get(model.batch, batch) if model.batch else batch
    if asked != batch:
        raise InputError(
            f"--size {model.batch}={asked} contradicts the batch of {batch}: {model.batch} is the batch "
            f"of {model.name}",
            f"leave --size {model.batch} out",
        )


def _bind_input(model: Model, spec: TensorSpec, known: Mapping[str, int]) -> tuple[int, ...]:
    if spec.shape is None:
        raise InputError(
            f"input {spec.name!r} of {model.name} has no known rank",
            "export the model again with its input shapes",
        )
    return tuple(_bind_dim(model, spec, axis, known) for axis in range(len(spec.shape)))


def _bind_dim(model: Model, spec: TensorSpec, axis: int, known: Mapping[str, int]) -> int:
    assert spec.shape is not None
    dim = spec.shape[axis]
    if isinstance(dim, int):
        return dim
    name = dim or f"{spec.name}:{axis}"
    if name in known:
        return known[name]
    if axis == 0 and dim is None and model.batch:  # unnamed first dimensions are the batch
        return known[model.batch]
    raise InputError(
        f"dimension {name!r} (axis {axis} of input {spec.name!r}) of {model.name} has no size",
        f"give one: --size {name}=VALUE",
    )


def fixed_batch(model: Model) -> int | None:
    """The batch a model is frozen to: the first size that all its inputs share, scalars aside.

    None where the batch is symbolic, or where the inputs share no first size.
    """
    firsts = {spec.shape[0] for spec in model.inputs if spec.shape}
    only = firsts.pop() if len(firsts) == 1 else None
    return only if isinstance(only, int) else None


def missing_sizes(model: Model, sizes: Mapping[str, int] = _NO_SIZES) -> tuple[str, ...]:
    """The symbolic dimensions, other than the batch, that :func:`bind` still needs a size for."""
    unnamed = {dim_name(spec, 0) for spec in model.inputs if spec.shape and spec.shape[0] is None}
    covered = {model.batch, *(unnamed if model.batch else ())}
    return tuple(name for name in model.dynamic if name not in covered and name not in sizes)


def _check_fixed_batch(model: Model, shapes: Mapping[str, tuple[int, ...]], batch: int) -> None:
    """Inputs that agree on their first dimension have that batch; where they do not, it can only be 1."""
    firsts = {shape[0] for shape in shapes.values() if shape}
    fixed = firsts.pop() if len(firsts) == 1 else 1
    if batch != fixed:
        raise InputError(
            f"{model.name} has a fixed batch of {fixed}, not {batch}",
            f"use --batch {fixed}, or reopen it: wavefit export {model.path} --dynamic-batch --output OPEN.onnx",
        )
