"""The batches that a bundle is prepared for: those at which its pick's way to run was measured, and passed."""

from __future__ import annotations

from collections.abc import Sequence

from wavefit.schema import Plan, Record


def smaller(best: Record, records: Sequence[Record]) -> list[Record]:
    """Records of the same plan on the same device at smaller batches, the least first; of each batch the last."""
    found = {
        record.plan.batch: record
        for record in records
        if record.passed and record.plan.batch < best.plan.batch and _way(record) == _way(best)
    }
    return [found[batch] for batch in sorted(found)]


def _way(record: Record) -> tuple[object, ...]:
    return (
        record.device.id,
        record.model.sha256,
        record.plan.series,
        record.plan.variant,
        _items(record.plan),
    )


def _items(plan: Plan) -> dict[str, tuple[int, ...]]:
    """What one item's inputs are of."""
    return {name: shape[1:] for name, shape in plan.shapes.items()}
