"""Why a plan in a lower precision is not faster than the fp32 plan that it would replace."""

from __future__ import annotations

from collections.abc import Sequence

from wavefit.precision.int8.targets import target
from wavefit.schema import Objective, Placement, Record, Unsupported

_CPU = "CPUExecutionProvider"


def replaced(record: Record, records: Sequence[Record]) -> Record | None:
    """The fp32 plan of the same route, device and batch, options alike where there is one; None for fp32 itself."""
    if record.plan.precision == "fp32":
        return None
    rivals = [
        other
        for other in records
        if other.passed
        and other.plan.precision == "fp32"
        and (other.plan.route, other.plan.device, other.plan.batch)
        == (record.plan.route, record.plan.device, record.plan.batch)
    ]
    alike = [other for other in rivals if other.plan.options.items() <= record.plan.options.items()]
    return next(iter(alike or rivals), None)


def why(record: Record, other: Record) -> str:
    """One clause: what the records show of why ``record`` is not faster than ``other``, its fp32 plan."""
    clauses = [*_computes(record), *_instructions(record), *_left(record, other), *_more_nodes(record, other)]
    return "; ".join(clauses) or "nothing in the records shows why; its arithmetic may be too little to count"


def useless(record: Record, objective: Objective) -> bool:
    """Whether a plan can at best be as fast as its fp32 plan: it computes in fp32, with casts besides."""
    return record.plan.options.get("compute") == "fp32" and objective != "memory"


def _computes(record: Record) -> list[str]:
    if record.plan.options.get("compute") != "fp32":
        return []
    return [f"the provider has no {record.plan.precision} kernels and computes it in fp32, with casts put in"]


def _instructions(record: Record) -> list[str]:
    if record.plan.precision != "int8":
        return []
    types = target(record.device, record.plan.route)
    if isinstance(types, Unsupported):
        return [types.reason]
    return ["the device has no dot instructions for int8"] if types.dot is False else []


def _left(record: Record, other: Record) -> list[str]:
    """Nodes that fell back to the CPU."""
    if record.device.kind == "cpu" or record.placement is None:
        return []
    left = record.placement.on(_CPU)
    before = other.placement.on(_CPU) if other.placement else 0
    return [f"{left} nodes fell back to the CPU, {before} in fp32"] if left > before else []


def _more_nodes(record: Record, other: Record) -> list[str]:
    """Operators that were one kernel in fp32 and are several now."""
    if record.placement is None or other.placement is None:
        return []
    now, before = _run(record.placement), _run(other.placement)
    if now <= before:
        return []
    rest = "pairs of Q and DQ" if record.plan.precision == "int8" else "casts"
    return [f"it runs {now} kernels where fp32 runs {before}: fusions were lost, or {rest} stay between"]


def _run(placement: Placement) -> int:
    return sum(share.nodes for share in placement.providers)
