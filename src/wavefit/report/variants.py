"""What the page and the terminal say of a variant, in words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from wavefit.report.figures import count, duration, error, share, significant, size
from wavefit.schema import KeptNode, Model, Precision, Variant

ORDER: tuple[Precision, ...] = ("int8", "fp16", "bf16", "fp32")
"""Lowest first."""


_LARGEST_WHOLE = 1e9  # that is written out

SHARES = ("top1", "top5")
"""Metrics that are shares of 1; those of the user's own may be of any size."""


def metric(name: str, value: float | None) -> str:
    """A metric's value, in percent where it is a share."""
    return share(value) if name in SHARES else significant(value, 4)


def parts(variant: Variant) -> list[tuple[str, int, float]]:
    """Precision, nodes and share of all nodes, lowest precision first; nothing where no node is known."""
    total = sum(variant.nodes.values())
    known = sorted(variant.nodes.items(), key=lambda each: _rank(each[0]))
    return [(name, nodes, nodes / total) for name, nodes in known if nodes]


def lowered(variant: Variant) -> str:
    """ "10 of 13 nodes in int8, 2 in fp16"; nodes that make no floating-point value are not counted."""
    total = sum(variant.nodes.values())
    low = [(name, nodes) for name, nodes, _ in parts(variant) if name != "fp32"]
    if not low:
        return f"no node of {count(total)} is lowered" if total else "its nodes were not counted"
    (name, nodes), *others = low
    first = f"{count(nodes)} of {count(total)} node{'s' if total != 1 else ''} in {name}"
    return ", ".join((first, *(f"{count(nodes)} in {name}" for name, nodes in others)))


def recipe(variant: Variant) -> str:
    """How it was made: "percentile 99.99 calibration, bias correction"; "" where nothing had to be chosen."""
    said = []
    for name, value in variant.recipe.items():
        if value is True:
            said.append(name)
        elif value is not False:
            said.append(f"{value} {name}" if name == "calibration" else f"{name} {value}")
    return ", ".join(said)


def task(variant: Variant) -> str:
    """Its metric beside fp32's; "" where there are no labels."""
    if variant.task is None:
        return ""
    found = variant.task
    return (
        f"{found.name} {share(found.candidate)}, was {share(found.reference)} on {count(found.samples)} items"
    )


def answers(variant: Variant) -> str:
    """How far its answers are from fp32's on held-out data, and its metric; "" where neither is known."""
    moved = None if variant.error is None else f"{error(variant.error)} from fp32 (relative L2)"
    return "; ".join(filter(None, (moved, task(variant))))


def weights(variant: Variant, model: Model | None) -> str:
    """Bytes of its stored tensors beside the model's."""
    before = f", was {size(model.weight_bytes)}" if model is not None else ""
    return f"{size(variant.model.weight_bytes)} of weights{before}"


def search(variant: Variant) -> str:
    """What it took to find: "31 evaluations in 12.3 s"."""
    many = "s" if variant.evaluations != 1 else ""
    return f"{count(variant.evaluations)} evaluation{many} in {duration(variant.search_s)}"


def scaled(variant: Variant) -> str:
    """How many nodes run on scaled numbers; "" for none."""
    nodes = sum(len(each.nodes) for each in variant.scaled)
    return f"{count(nodes)} node{'s' if nodes != 1 else ''} on scaled numbers" if nodes else ""


def lines(variant: Variant, model: Model | None) -> list[str]:
    """A few short lines: what is lowered and how much smaller it is, how far the answers are, how it was made."""
    how = ", ".join(filter(None, (recipe(variant), scaled(variant))))
    said = (
        f"{lowered(variant)}; {weights(variant, model)}",
        answers(variant),
        "; ".join(filter(None, (how, search(variant)))),
    )
    return [line for line in said if line]


def notes(variants: Iterable[Variant]) -> list[tuple[str, str]]:
    """What people should know, each once, with the names of the variants that it is of."""
    names: dict[str, list[str]] = {}
    for variant in variants:
        for note in variant.notes:
            names.setdefault(note, []).append(variant.name)
    return [(", ".join(of), note) for note, of in names.items()]


def figures_of(kept: KeptNode) -> str:
    """The numbers behind a reason: "max_abs 131,000, limit 65,504"."""
    return ", ".join(f"{name} {_number(value)}" for name, value in kept.figures.items())


def _number(value: float) -> str:
    whole = float(value).is_integer() and abs(value) < _LARGEST_WHOLE
    return f"{value:,.0f}" if whole else significant(value)


def kept_names(kept: Sequence[KeptNode], most: int) -> str:
    """ "kept back: a (Mul), b (Softmax) and 3 more"; "" where there are none."""
    if not kept:
        return ""
    left = len(kept) - most
    named = ", ".join(f"{each.node} ({each.op})" for each in kept[:most])
    return f"kept back: {named}{f' and {left} more' if left > 0 else ''}"


def _rank(name: str) -> int:
    return next((place for place, known in enumerate(ORDER) if known == name), len(ORDER))


def stretch(nodes: Sequence[str], quote: str = "") -> str:
    """Nodes that follow one another, by the first and the last."""
    first, last = (f"{quote}{name}{quote}" for name in (nodes[0], nodes[-1]))
    return first if len(nodes) == 1 else f"{first} to {last} ({count(len(nodes))} nodes)"


def unlowered(variant: Variant) -> int:
    """Nodes that stay in fp32 because nothing there computes them lower: no reason was searched for."""
    kept = sum(each.precision == "fp32" for each in variant.kept)
    return max(0, variant.nodes.get("fp32", 0) - kept)
