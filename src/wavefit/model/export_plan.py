"""What an export runs and proves: names, dynamic axes, the example, and the source's answers at several batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from wavefit.errors import InputError
from wavefit.model import torch_export
from wavefit.model.foreign import attempt
from wavefit.model.inputs import random_array
from wavefit.model.prove import BATCHES, BOUND, Case, difference
from wavefit.model.torch_export import DEFAULT_OPSET, Wanted
from wavefit.model.torch_source import TorchSource, described
from wavefit.schema import Struct, TensorSpec

if TYPE_CHECKING:
    import numpy as np

BATCH = "batch"
EXAMPLE_BATCH = 2  # exporters take a size of 1 for a constant
_OPSETS = range(7, 26)


class Options(Struct, frozen=True, kw_only=True):
    """What the user asked export for."""

    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[str, ...] = ()  # their names
    dynamic: tuple[tuple[str, int], ...] = ()  # (input, axis), beside the batch
    opset: int | None = None
    seed: int = 0


@dataclass(frozen=True)
class Plan:
    """A source with everything that both exporters need."""

    source: TorchSource
    wanted: Wanted
    cases: tuple[Case, ...]
    notes: tuple[str, ...]


def check_options(source: TorchSource, options: Options) -> None:
    if options.opset is not None and options.opset not in _OPSETS:
        raise InputError(f"--opset {options.opset} is unknown", f"give {_OPSETS.start} to {_OPSETS.stop - 1}")
    specs = {spec.name: spec for spec in source.inputs}
    for name, axis in options.dynamic:
        if name not in specs:
            raise InputError(
                f"--dynamic {name}:{axis}: there is no input {name!r}", f"there are: {', '.join(specs)}"
            )
        if axis not in range(1, len(specs[name].shape or ())):
            raise InputError(
                f"--dynamic {name}:{axis}: {name} has axes 1 to {len(specs[name].shape or ()) - 1} beside the batch"
            )
    for spec in source.inputs if source.module is not None else ():
        named = [dim for dim in (spec.shape or ())[1:] if not isinstance(dim, int)]
        if spec.shape is None or named:
            raise InputError(
                f"input {spec.name!r} needs a size for {named[0] if named and named[0] else '?'} to be run with",
                f"give a number, and --dynamic {spec.name}:AXIS where it may vary",
            )


def named(source: TorchSource, options: Options) -> TorchSource:
    """A program's inputs get the user's names; its symbols become "batch" and "INPUT_AXIS"."""
    if source.program is None:
        return source
    if options.dynamic:
        raise InputError("--dynamic: the dynamic sizes of an exported program were chosen when it was made")
    given = options.inputs or source.inputs
    if len(given) != len(source.inputs):
        raise InputError(
            f"{source.spec} has {len(source.inputs)} inputs, not {len(given)}",
            f"they are: {', '.join(spec.name for spec in source.inputs)}",
        )
    names = [spec.name for spec in given]
    specs = [replace_spec(spec, name=name) for spec, name in zip(source.inputs, names, strict=True)]
    return replace(source, inputs=tuple(specs))


def make_plan(source: TorchSource, options: Options) -> Plan:
    axes = _axes(source, options)
    answers = [_answer(source, axes, batch, grow, options.seed) for batch, grow in _settings(source, axes)]
    _check_repeats(source, *answers[0])
    names = _output_names(source, list(answers[0][1]), options.outputs)
    cases = [
        Case(batch=_batch(inputs), inputs=inputs, expected=list(expected.values()))
        for inputs, expected in answers
    ]
    notes = list(source.notes)
    if not any(0 in found for found in axes):
        notes.append(f"the program has a fixed batch of {cases[0].batch}: proven at that alone")
    elif cases[0].batch != 1:
        notes.append(f"the program takes batches from {source.min_batch}: proven from there")
    example = next((case for case in cases if case.batch == EXAMPLE_BATCH), cases[0])
    wanted = Wanted(
        example=tuple(example.inputs.values()),
        axes=axes,
        outputs=names,
        opset=options.opset or DEFAULT_OPSET,
        external=torch_export.weight_bytes(source) > torch_export.EXTERNAL_BYTES,
    )
    return Plan(source, wanted, tuple(cases), tuple(notes))


def _axes(source: TorchSource, options: Options) -> tuple[dict[int, str], ...]:
    if source.program is not None:
        return tuple(
            {
                axis: BATCH if not axis else f"{spec.name}_{axis}"
                for axis, dim in enumerate(spec.shape or ())
                if not isinstance(dim, int)
            }
            for spec in source.inputs
        )
    asked: list[dict[int, str]] = []
    for spec, batched in zip(source.inputs, torch_export.batch_axes(source.inputs), strict=True):
        extra = {axis: _axis_name(spec, axis) for name, axis in options.dynamic if name == spec.name}
        asked.append({**({0: BATCH} if batched else {}), **dict(sorted(extra.items()))})
    if not any(asked):
        raise InputError(
            f"{source.spec}: its inputs are scalars, so there is no batch", "give an input with a batch axis"
        )
    return tuple(asked)


def _axis_name(spec: TensorSpec, axis: int) -> str:
    if len(spec.shape or ()) == 4 and axis > 1:
        return f"{spec.name}_{'height' if axis == 2 else 'width'}"
    return f"{spec.name}_{axis}"


def _settings(source: TorchSource, axes: Sequence[Mapping[int, str]]) -> list[tuple[int, bool]]:
    """(batch, whether the other dynamic sizes are larger than in the example)."""
    if not any(0 in found for found in axes):
        return [(0, False)]  # a program with a fixed batch
    batches = [(batch, False) for batch in BATCHES if batch >= source.min_batch]
    more = any(axis for found in axes for axis in found)
    return [*batches, *([(3, True)] if more and source.program is None else [])]


def _output_names(source: TorchSource, found: Sequence[str], asked: Sequence[str]) -> tuple[str, ...]:
    """The names asked for, else the module's own; never an input's name, which ONNX would confuse."""
    if asked and len(asked) != len(found):
        raise InputError(f"{source.spec} has {len(found)} outputs, {len(asked)} names were given")
    taken = {spec.name for spec in source.inputs}
    if len(set(asked)) < len(asked) or taken.intersection(asked):
        raise InputError(
            f"--output-name {' '.join(asked)}: a name is taken", "give each output a name of its own"
        )
    return tuple(asked) or tuple(f"{name}_out" if name in taken else name for name in found)


def _answer(
    source: TorchSource, axes: Sequence[Mapping[int, str]], batch: int, grow: bool, seed: int
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Seeded random inputs, and what the source answers."""
    import numpy as np

    rng = np.random.default_rng(seed + batch)
    arrays = {}
    for spec, free in zip(source.inputs, axes, strict=True):
        shape = tuple(_size(dim, axis, free, batch, grow) for axis, dim in enumerate(spec.shape or ()))
        arrays[spec.name] = random_array(spec, shape, rng, source.index_limit)
    with attempt() as tried:
        expected = source.run(list(arrays.values()))
    if tried.error is not None:
        shapes = ", ".join(f"{name} of {'x'.join(map(str, array.shape))}" for name, array in arrays.items())
        raise InputError(
            f"{source.spec} itself does not run on {shapes}: {described(tried.error)}",
            "check --input, and that the module takes any batch",
        )
    if not expected:
        raise InputError(f"{source.spec} returns no tensor", "return tensors from forward")
    return arrays, expected


def _check_repeats(
    source: TorchSource, inputs: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]
) -> None:
    """Nothing can be proven of a source that answers the same inputs in another way."""
    again = source.run(list(inputs.values()))
    for name, want in expected.items():
        have = again[name]
        off = difference(have, want)[0] if have.shape == want.shape else None
        if off is None or off > BOUND:
            raise InputError(
                f"{source.spec} answers the same inputs differently when it is run again (in {name!r})",
                "take what is random, or kept from one run to the next, out of forward",
            )


def _size(dim: Any, axis: int, free: Mapping[int, str], batch: int, grow: bool) -> int:
    if axis == 0 and 0 in free:
        return batch
    if not isinstance(dim, int):
        return 64 if axis else 1  # another symbol of a program: any size will do
    return dim + max(32, dim // 4 // 32 * 32) if grow and axis in free else dim


def _batch(arrays: Mapping[str, np.ndarray]) -> int:
    return next((array.shape[0] for array in arrays.values() if array.ndim), 1)


def replace_spec(spec: TensorSpec, name: str) -> TensorSpec:
    return TensorSpec(name=name, dtype=spec.dtype, shape=spec.shape)
