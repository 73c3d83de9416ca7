"""SmoothQuant: a few channels of an activation that are far larger than the others hand their size to the weights.

Xiao, Lin, Seznec, Wu, Demouth and Han, SmoothQuant: Accurate and Efficient Post-Training Quantization for Large
Language Models, 2022, equation 4: Y = (X diag(s)^-1) (diag(s) W) with

    s_j = max|X_j|^alpha / max|W_j|^(1 - alpha)

over calibration data. X is divided where it is made, in the weight and bias of a normalisation (one operator, or a Mul
and an Add) or of the layer before, as far as :mod:`.channels` finds that free; elsewhere a Mul is put
before the layer, if the gain is large enough to pay for it. alpha is searched for each activation on calibration
data, and s is brought to a geometric mean of 1, which changes nothing in int8 and keeps the numbers' size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from wavefit.model.samples import Samples
from wavefit.precision.compensation import observed
from wavefit.precision.compensation.channel_trace import trace
from wavefit.precision.compensation.channels import Trace, apply
from wavefit.precision.graph import copy, infer
from wavefit.precision.linear import Linear, free_name, linears, new_constant

if TYPE_CHECKING:
    import onnx_ir as ir

ALPHAS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
_ITEMS = 64  # of calibration data, at most
_ROWS = 512  # of an activation, at most, that alpha is searched on
_ROWS_A_BATCH = 64
_HELPS_FOLDED, _HELPS_INSERTED = 0.95, 0.5  # of the squared error before


@dataclass
class _Activation:
    """What a layer reads: the range of each channel over all data, and some of its rows."""

    low: np.ndarray | float = np.inf
    high: np.ndarray | float = -np.inf
    rows: list[np.ndarray] = field(default_factory=list)

    def add(self, array: np.ndarray) -> None:
        flat = array.reshape(-1, array.shape[-1])
        self.low, self.high = np.minimum(self.low, flat.min(0)), np.maximum(self.high, flat.max(0))
        if sum(len(rows) for rows in self.rows) < _ROWS:
            picked = np.linspace(0, len(flat) - 1, min(_ROWS_A_BATCH, len(flat))).astype(int)
            self.rows.append(flat[picked].astype(np.float64))

    @property
    def size(self) -> np.ndarray:
        return np.maximum(np.abs(self.low), np.abs(self.high)).astype(np.float64)


@dataclass(frozen=True)
class _Group:
    """Layers whose inputs have the same channels; the channels' numbers where they may be scaled for nothing."""

    layers: tuple[Linear, ...]
    ids: np.ndarray | None


def compensate(
    model: ir.Model, layers: Iterable[str], samples: Samples, say: Callable[[str], None]
) -> ir.Model:
    """A graph that gives the same fp32 answers, with activations that int8 holds better.

    Args:
        layers: names of the MatMul and Gemm nodes that will be quantised.
        samples: calibration data.
        say: told what goes on.

    Raises:
        InputError: ONNX Runtime does not run the graph.
    """
    model, wanted = copy(model), set(layers)
    chosen = [layer for layer in linears(model) if layer.name in wanted and not layer.convolves]
    if not chosen:
        return model
    say(f"SmoothQuant: {len(chosen)} layers")
    seen = _observe(model, chosen, samples)
    found = trace(model)
    for _, channels in found.ceilings:
        found.fix_ids(channels.ids)
    scale, inserted = np.ones(found.count), []
    for group in _groups(found, chosen):
        factors = _best(group, seen, _HELPS_FOLDED if group.ids is not None else _HELPS_INSERTED)
        if factors is None:
            continue
        if group.ids is not None:
            scale[found.roots(group.ids)] = factors
        else:
            inserted.append((group, factors))
    apply(found, scale[found.roots(np.arange(found.count))])
    for group, factors in inserted:
        _insert(group, factors)
    return infer(model)


def factors(size: np.ndarray, weights: np.ndarray, alpha: float) -> np.ndarray:
    """The paper's s, brought to a geometric mean of 1; 1 for a channel that is zero on either side.

    Args:
        size: max|X_j|, shape (channels,).
        weights: max|W_j|, shape (channels,).
    """
    alive = (size > 0) & (weights > 0)
    result = np.ones(len(size))
    if alive.any():
        found = size[alive] ** alpha / weights[alive] ** (1 - alpha)
        result[alive] = found / np.exp(np.log(found).mean())
    return result


def _observe(model: ir.Model, layers: Sequence[Linear], samples: Samples) -> dict[str, _Activation]:
    seen: dict[str, _Activation] = {}
    inputs = [value for layer in layers if (value := layer.node.inputs[0]) is not None]
    for name, array in observed.values(model, observed.spread(samples, _ITEMS), inputs):
        seen.setdefault(name, _Activation()).add(array)
    return seen


def _groups(found: Trace, layers: Sequence[Linear]) -> list[_Group]:
    """Layers by the channels that they read; those whose channels are not free, or shared in part, by their input."""
    free = found.free()
    users = {layer.name: found.roots(ids) for layer, ids in found.users}
    names = {layer.name for layer in layers}
    folded: dict[bytes, list[Linear]] = {}
    others: dict[str, list[Linear]] = {}
    for layer in layers:
        roots = users.get(layer.name)
        if roots is not None and free[roots].all() and _together(roots, users, names):
            folded.setdefault(roots.tobytes(), []).append(layer)
        else:
            others.setdefault(str(layer.node.inputs[0].name), []).append(layer)  # type: ignore[union-attr]
    groups = [_Group(tuple(each), users[each[0].name]) for each in folded.values()]
    return groups + [_Group(tuple(each), None) for each in others.values()]


def _together(roots: np.ndarray, users: Mapping[str, np.ndarray], names: set[str]) -> bool:
    """Whether whoever reads one of these channels is to be smoothed, and reads all of them in this order."""
    if len(np.unique(roots)) != len(roots):
        return False
    return all(
        name in names and np.array_equal(other, roots)
        for name, other in users.items()
        if np.isin(other, roots).any()
    )


def _best(group: _Group, seen: Mapping[str, _Activation], helps: float) -> np.ndarray | None:
    """The factors of the best alpha; None where none helps enough."""
    inputs = [seen[str(layer.node.inputs[0].name)] for layer in group.layers]  # type: ignore[union-attr]
    weights = [layer.matrix()[0, :, :, 0].T.astype(np.float64) for layer in group.layers]
    size = np.max([each.size for each in inputs], 0)
    columns = np.max([np.abs(matrix).max(1) for matrix in weights], 0)

    def error(by: np.ndarray) -> float:
        return sum(_error(given, matrix, by) for given, matrix in zip(inputs, weights, strict=True))

    plain = error(np.ones(len(size)))
    tried = [factors(size, columns, alpha) for alpha in ALPHAS]
    best = min(tried, key=error)
    return best if error(best) < helps * plain else None


def _error(given: _Activation, weights: np.ndarray, by: np.ndarray) -> float:
    """Squared error of the layer's output in int8: one scale for the activation, one for each output's weights."""
    rows = np.concatenate(given.rows)[:_ROWS]
    low, high = min(0.0, float((given.low / by).min())), max(0.0, float((given.high / by).max()))
    step = (high - low) / 255 or 1.0
    held = (np.clip(np.rint(rows / by / step), np.rint(low / step), np.rint(high / step))) * step
    scaled = weights * by[:, None]
    steps = np.maximum(np.abs(scaled).max(0) / 127, 1e-30)
    difference = held @ (np.rint(scaled / steps) * steps) - rows @ weights
    return float(np.square(difference).sum())


def _insert(group: _Group, by: np.ndarray) -> None:
    """A Mul that divides what these layers read."""
    import onnx_ir as ir

    first = group.layers[0].node
    graph, value = first.graph, first.inputs[0]
    assert isinstance(graph, ir.Graph)
    assert value is not None
    vector = new_constant(graph, f"{first.name}_smoothing", (1 / by).astype(np.float32))
    mul = ir.Node("", "Mul", [value, vector], name=free_name(graph, f"{first.name}_smooth"), num_outputs=1)
    mul.outputs[0].name = free_name(graph, f"{first.name}_smoothed")
    graph.insert_before(first, mul)
    for layer in group.layers:
        matrix = layer.matrix()
        layer.set_matrix((matrix * by.reshape(1, 1, -1, 1)).astype(matrix.dtype))
        layer.node.replace_input_with(0, mul.outputs[0])
