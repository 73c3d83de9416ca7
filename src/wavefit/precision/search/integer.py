"""The search for int8: the best way to quantise, and the nodes that must stay with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from msgspec import structs

from wavefit.model.cost import cost
from wavefit.precision.int8.inside import absorbed, inside_kernels
from wavefit.precision.int8.qdq import quantisable
from wavefit.precision.int8.targets import Target
from wavefit.precision.search.islands import smallest
from wavefit.precision.search.material import Draft, Material, counts, kept_by_guard, most_first
from wavefit.precision.search.others import by_others
from wavefit.precision.search.ways import Finder, Way
from wavefit.schema import Precision, Sensitivity, Unsupported

_FOR_SENSITIVITY, _FOR_ORDER, _FOR_ISLANDS = 0.2, 0.4, 0.8  # of the time left
_FRONT = (0.5, 0.25)  # of the error of the variant with the most nodes in int8: what further points aim at


def integer(material: Material, target: Target) -> list[Draft] | Unsupported:
    """The variant with the fewest nodes kept from int8; where mixed is asked for, others with a smaller error.

    Raises:
        InputError: the graph cannot be run.
    """
    able = quantisable(material.graph, target)
    if not able:
        return _refused(target, "no node of the model has an int8 kernel there")
    if material.keep.issuperset(able):
        return _refused(target, "every node that has an int8 kernel there is named with --keep")
    finder = Finder(material, target)
    way = _that_passes(material, finder.find())
    kept, sensitivity = _islands(material, way, finder)
    if len(kept) == len(way.nodes):
        return _refused(target, "no part of the model passes the guard in int8")
    others, refused = by_others(material, target)
    notes = (*material.split.notes, *finder.notes, *refused)
    first = replace(_draft(material, finder, way, kept, sensitivity), notes=notes)
    more = _smaller_errors(material, way, kept, sensitivity) if material.mixed else []
    further = [
        _further(first, _draft(material, finder, way, each, sensitivity), kept)
        for each in dict.fromkeys(more)
    ]
    return [first, *(draft for draft in further if draft.judgement.passed), *others]


def _that_passes(material: Material, ways: list[Way]) -> Way:
    """The first that passes with every node in int8; where none does, the first."""
    return next((way for way in ways if material.judge(way.whole, "int8").passed), ways[0])


def _further(first: Draft, draft: Draft, kept: frozenset[str]) -> Draft:
    """A point of the trade-off with a smaller error: the nodes that it keeps besides are kept for that alone."""
    why = f"kept for a smaller error, {draft.judgement.size:.1e} in place of {first.judgement.size:.1e} (relative L2)"
    reasons = tuple(node if node.node in kept else structs.replace(node, reason=why) for node in draft.kept)
    return replace(draft, kept=reasons, notes=first.notes)


def _islands(material: Material, way: Way, finder: Finder) -> tuple[frozenset[str], tuple[Sensitivity, ...]]:
    """What must stay, and how far each node moves the outputs.

    The nodes that go first are those with the most error for the work that int8 would save there.
    """
    nodes = frozenset(way.nodes)

    def passes(kept: frozenset[str]) -> bool:
        material.say(f"int8: do the answers stand with {len(kept)} of {len(nodes)} nodes kept")
        return material.judge(way.lowered(nodes - kept), "int8").passed

    whole = passes(frozenset())
    sensitivity = finder.sensitivity(way, _FOR_SENSITIVITY if whole else _FOR_ORDER)
    if whole:
        return frozenset(), sensitivity
    order = most_first(sensitivity, _flops(material))
    spare_s = material.spare_s(_FOR_ISLANDS)
    return smallest(way.nodes, passes, frozenset(), order, material.say, spare_s), sensitivity


def _smaller_errors(
    material: Material, way: Way, kept: frozenset[str], sensitivity: tuple[Sensitivity, ...]
) -> list[frozenset[str]]:
    """Further points of the trade-off: the fewest nodes more that bring the error down to a share of it."""
    nodes = frozenset(way.nodes)
    order = [name for name in most_first(sensitivity, _flops(material)) if name not in kept]
    most = material.judge.numbers(way.lowered(nodes - kept), "int8").size

    def error(count: int) -> float:
        return material.judge.numbers(way.lowered(nodes - kept - frozenset(order[:count])), "int8").size

    found = []
    for share in _FRONT:
        low, high = 0, len(order) - 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if error(middle) <= most * share else (middle, high)
        if 0 < high < len(order) and error(high) <= most * share:
            found.append(kept | frozenset(order[:high]))
    return found


def _draft(
    material: Material,
    finder: Finder,
    way: Way,
    kept: frozenset[str],
    sensitivity: tuple[Sensitivity, ...],
) -> Draft:
    """Its nodes are those of the graph that the way was made of, by which people know them."""
    model, way = finder.raised, finder.corrected_again(way, kept)
    lowered = frozenset(way.nodes) - kept
    graph = way.lowered(lowered)
    assignment: dict[str, Precision] = dict.fromkeys(lowered, "int8")
    inside = inside_kernels(graph, lowered) | absorbed(model, graph)
    return Draft(
        graph=graph,
        precision="int8",
        target=way.target.name,
        judgement=material.judge(graph, "int8"),
        assignment=assignment,
        nodes=counts(model, {**assignment, **dict.fromkeys(inside, "int8")}),
        kept=(*material.kept_by_hand(model), *kept_by_guard(model, kept, "int8", sensitivity)),
        recipe=way.recipe,
        sensitivity=sensitivity,
    )


def _flops(material: Material) -> Mapping[str, float]:
    """Of one item, by node; a node of unknown cost counts as one operation."""
    shapes = material.judge.shapes
    return {node.name: float(node.flops or 1) for node in cost(material.model, shapes).nodes}


def _refused(target: Target, reason: str) -> Unsupported:
    return Unsupported(
        route="precision", reason=f"{reason} ({target.name})", fix="use --precision fp16", precision="int8"
    )
