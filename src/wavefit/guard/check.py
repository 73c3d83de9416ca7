"""The check that every plan must pass: its answers at its own batch against the reference."""

from __future__ import annotations

from wavefit.guard.limits import Limits
from wavefit.guard.numeric import Tally
from wavefit.guard.reference import Reference
from wavefit.routes.session import Session
from wavefit.schema import Plan, Verdict


def check(session: Session, plan: Plan, reference: Reference, beside_metric: bool = False) -> Verdict:
    """Runs the reference's samples at the plan's batch, until each has been run and each position looked at.

    A batch larger than the samples repeats them: position i must answer as sample i % n does.

    Args:
        beside_metric: whether a task metric on labelled data judges the plan as well.

    Raises:
        RouteError: the runtime failed.
    """
    limits = Limits(plan.precision, reference.unit_roundoff, beside_metric=beside_metric)
    tallies: dict[str, Tally] = {}
    for start in range(0, reference.samples.count, plan.batch):
        actual = session.run(reference.samples.batch(start, plan.batch))
        for name, expected in reference.expected(start, plan.batch).items():
            if name not in tallies:
                tallies[name] = Tally(name, limits, reference.outputs.get(name, expected))
            tallies[name].add(actual.get(name), expected, reference.exact(name, start, plan.batch))
    return _verdict(plan, reference, limits, tallies)


def _verdict(plan: Plan, reference: Reference, limits: Limits, tallies: dict[str, Tally]) -> Verdict:
    results = [tally.result() for tally in tallies.values()]
    reasons = [reason for result in results for reason in result.reasons]
    warnings = [warning for result in results for warning in result.warnings]
    if all(result.error.all_equal for result in results):
        warnings.insert(
            0, "THIS CHECK PROVES NOTHING: every output is the same for every sample; give --data"
        )
    three_way = reference.float64 is not None and plan.precision != "int8"
    return Verdict(
        passed=not reasons,
        reasons=tuple(reasons),
        warnings=(*warnings, *reference.warnings),
        outputs=tuple(result.error for result in results),
        factor=limits.factor if three_way else None,
        samples=reference.samples.count,
    )
