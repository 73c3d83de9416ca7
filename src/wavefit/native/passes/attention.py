"""Scaled dot-product attention from MatMul, scale, mask, Softmax and MatMul, as PyTorch exports ViT and BERT.

The scale may stand at the scores or at Q and K; the mask is added, or put in by Where; a Where that turns NaN of rows
that are masked as a whole into 0 is done to the result instead.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wavefit.native.graph import Graph, Node, Value
from wavefit.native.passes._match import given, made_by, step, with_number
from wavefit.native.pointwise import Apply, Pointwise

_FLOATS = ("float32", "float16")
_NOTHING_BESIDE = -1e30  # a number that stays what it is whatever score is added to it, in float32
_NOTHING_AFTER = -1e4  # one whose exponential is 0 beside that of any likely score
_NAN_IS_ZERO = Pointwise(
    operands=1,
    steps=(
        Apply(function="isnan", arguments=(0,), dtype="bool"),
        Apply(function="where", arguments=(1, 0.0, 0)),
    ),
)


def run(graph: Graph) -> int:
    """Finds MatMul nodes whose first operand is a softmax of scores that nobody else reads.

    Returns:
        How many Attention nodes were made.
    """
    found = sum(_attention(graph, node) for node in list(graph.nodes) if node.op == "MatMul")
    graph.prune()
    return found


@dataclass
class _Scores:
    """scale * (Q K^T) + masks."""

    product: Node
    scale: float
    masks: list[Value]


def _attention(graph: Graph, last: Node) -> int:
    if last.epilogue is not None:
        return 0
    probabilities, guarded = _without_guard(graph, given(last.inputs[0]), last)
    softmax = made_by(graph, _without_casts(graph, probabilities), "Softmax")
    if softmax is None or softmax.attributes["log"] or not _last_axis(softmax):
        return 0
    if not _read_once(graph, softmax, 2 if guarded else 1):
        return 0
    scores = _scores(graph, given(softmax.inputs[0]), last)
    if scores is None:
        return 0
    query, of_query = _without_factor(graph, given(scores.product.inputs[0]))
    key, of_key = _without_factor(graph, given(scores.product.inputs[1]))
    value = given(last.inputs[1])
    if not query.shape[:-2] == key.shape[:-2] == value.shape[:-2]:
        return 0
    mask = _sum(graph, scores.masks, last)
    inputs = [query, _swapped(graph, key, last), value, mask]
    scale = {"scale": scores.scale * of_query * of_key}
    epilogue = _NAN_IS_ZERO if guarded and _may_mask_rows(mask) else None
    sources = (*scores.product.source, *softmax.source)
    graph.substitute(last, Node("Attention", last.name, inputs, [], scale, epilogue, source=sources))
    return 1


def _last_axis(node: Node) -> bool:
    rank = len(node.output.shape)
    return bool(node.attributes["axis"] in (-1, rank - 1))


def _read_once(graph: Graph, node: Node, times: int) -> bool:
    return len(graph.users(node.output)) <= times and node.output not in graph.outputs


def _without_guard(graph: Graph, value: Value, user: Node) -> tuple[Value, bool]:
    """What Where(IsNaN(p), 0, p) guards, and whether there was such a guard."""
    choice = step(graph, value, "where")
    if choice is None or choice[1] != 0.0 or isinstance(choice[2], float):
        return value, False
    guarded = step(graph, choice[0], "isnan") == (choice[2],) and graph.only_user(value) is user
    return (choice[2], True) if guarded else (value, False)


def _without_casts(graph: Graph, value: Value) -> Value:
    """What a value is of another float type; attention is computed in float32 whatever is stored."""
    cast = step(graph, value, "cast")
    if cast is None or isinstance(cast[0], float):
        return value
    return cast[0] if {cast[0].dtype, value.dtype} <= set(_FLOATS) else value


def _scores(graph: Graph, value: Value, place: Node) -> _Scores | None:
    """How scores that one node reads were made."""
    value = _without_casts(graph, value)
    plain = _scaled(graph, value)
    if plain is not None:
        return plain
    for scores, mask in _masked(graph, value, place):
        if scores.shape == value.shape and graph.only_user(scores) is not None:
            below = _scores(graph, scores, place)
            if below is not None:
                below.masks.append(mask)
                return below
    return None


def _scaled(graph: Graph, value: Value) -> _Scores | None:
    product, scale = _without_factor(graph, value)
    node = made_by(graph, product, "MatMul")
    if node is None or graph.only_user(node.output) is None:
        return None
    return _Scores(node, scale, [])


def _without_factor(graph: Graph, value: Value) -> tuple[Value, float]:
    """What a value is a constant multiple of, and the factor."""
    factor = 1.0
    while True:
        product, quotient = with_number(step(graph, value, "mul")), step(graph, value, "div")
        if product is not None and product[0].shape == value.shape:
            value, factor = product[0], factor * product[1]
        elif quotient is not None and isinstance(quotient[1], float) and isinstance(quotient[0], Value):
            value, factor = quotient[0], factor / quotient[1]
        else:
            return value, factor


def _masked(graph: Graph, value: Value, place: Node) -> list[tuple[Value, Value]]:
    """The ways in which a value may be scores and a mask that is added to them."""
    total = step(graph, value, "add")
    if total is not None:
        one, other = total
        return [] if isinstance(one, float) or isinstance(other, float) else [(one, other), (other, one)]
    choice = step(graph, value, "where")
    condition, yes, no = choice or (0.0, 0.0, 0.0)
    if isinstance(condition, float):
        return []
    if isinstance(yes, Value) and isinstance(no, float) and _hides(condition, no, kept=True):
        return [(yes, _as_mask(graph, condition, (0.0, no), place))]
    if isinstance(no, Value) and isinstance(yes, float) and _hides(condition, yes, kept=False):
        return [(no, _as_mask(graph, condition, (yes, 0.0), place))]
    return []


def _hides(condition: Value, number: float, kept: bool) -> bool:
    """Whether adding the number does what putting it in place of a score does.

    A finite one leaves the scores' differences in a row that it fills as a whole, unless they are lost in rounding.
    """
    if number <= _NOTHING_BESIDE:
        return True
    if condition.constant is None or number > _NOTHING_AFTER:
        return False
    return bool((condition.constant == kept).any(axis=-1).all())


def _as_mask(graph: Graph, condition: Value, choice: tuple[float, float], place: Node) -> Value:
    name = f"{place.output.name}/mask"
    if condition.constant is not None:
        array = np.where(condition.constant, *choice).astype(np.float32)
        return Value(name, condition.shape, "float32", array)
    mask = Value(name, condition.shape, "float32")
    arms = [Value(f"{name}/{each:g}", (), "float32", np.array(each, np.float32)) for each in choice]
    expression = Pointwise(operands=3, steps=(Apply(function="where", arguments=(0, 1, 2)),))
    graph.insert_before(
        place, Node("Pointwise", name, [condition, *arms], [mask], epilogue=expression, own=0)
    )
    return mask


def _sum(graph: Graph, masks: list[Value], place: Node) -> Value | None:
    """The masks as one."""
    total: Value | None = None
    for number, mask in enumerate(masks):
        if total is None:
            total = mask
            continue
        shape = np.broadcast_shapes(total.shape, mask.shape)
        joined = Value(f"{place.output.name}/masks{number}", shape, "float32")
        expression = Pointwise(operands=2, steps=(Apply(function="add", arguments=(0, 1)),))
        node = Node("Pointwise", joined.name, [total, mask], [joined], epilogue=expression, own=0)
        graph.insert_before(place, node)
        total = joined
    return total


def _swapped(graph: Graph, value: Value, place: Node) -> Value:
    """A value with its last two axes exchanged; what was exchanged before is taken as it was."""
    perm = (*range(len(value.shape) - 2), len(value.shape) - 1, len(value.shape) - 2)
    maker = made_by(graph, value, "Transpose")
    if maker is not None:
        value, perm = given(maker.inputs[0]), tuple(maker.attributes["perm"][axis] for axis in perm)
    if perm == tuple(range(len(perm))):
        return value
    name = f"{place.output.name}/key"
    moved = Value(name, tuple(value.shape[axis] for axis in perm), value.dtype)
    graph.insert_before(place, Node("Transpose", name, [value], [moved], {"perm": perm}))
    return moved


def _may_mask_rows(mask: Value | None) -> bool:
    """Whether a mask may hide all of a row, whose softmax is NaN then."""
    if mask is None:
        return False
    return mask.constant is None or bool(np.isneginf(mask.constant).all(axis=-1).any())
