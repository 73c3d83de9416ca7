"""Every template that claims one of the small odd operations computes it right, in its first configurations."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from native.triton.harness import run  # type: ignore[import-not-found]

from wavefit.native.draw import numbers
from wavefit.native.limits import of_gfx
from wavefit.native.operation import Operation
from wavefit.native.reference import compute
from wavefit.native.specimens import odd
from wavefit.native.triton import kernels

TOLERANCES = {"float32": 2e-6, "float16": 2e-3, "int8": 5e-3, "uint8": 5e-3}
CASES = [(name, template) for name, operation in odd().items() for template in kernels.claiming(operation)]


def arrays(operation: Operation) -> list[np.ndarray | None]:
    rng = np.random.default_rng(5)
    found: list[np.ndarray | None] = []
    for number, view in enumerate(operation.inputs):
        if view is None:
            found.append(None)
            continue
        drawn = numbers(operation, number, view.size, rng)
        if drawn is None:
            drawn = rng.integers(0, min(operation.input(0).shape), view.size).astype(view.dtype)
        found.append(drawn.reshape(view.shape))
    return found


@pytest.mark.parametrize("name", odd())
def test_some_template_claims_it(name):
    assert kernels.claiming(odd()[name])


@pytest.mark.parametrize(("name", "template"), CASES)
def test_right(name, template):
    operation, given = odd()[name], arrays(odd()[name])
    if operation.op == "ScatterND":
        given[1] = _different_places(operation)
    made = kernels.get(template)
    want = compute(operation, given)
    for config in itertools.islice(made.configurations(operation, of_gfx("gfx942")), 1):
        (got,) = run(template, operation, config, given)
        off = np.linalg.norm(got.astype(np.float64) - want) / (np.linalg.norm(want) or 1.0)
        assert off <= TOLERANCES.get(operation.output.dtype, 0.0), config


def _different_places(operation: Operation) -> np.ndarray:
    indices = operation.input(1)
    reach = operation.input(0).shape[: indices.shape[-1]]
    order = np.random.default_rng(1).permutation(int(np.prod(reach)))[: indices.size // indices.shape[-1]]
    return np.stack(np.unravel_index(order, reach), -1).reshape(indices.shape)
