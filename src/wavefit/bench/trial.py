"""One plan, opened, checked and measured: the work of one child process."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

from msgspec.structs import replace

from wavefit import routes
from wavefit.bench.measure import Opened, measure
from wavefit.bench.memory import host_peak_bytes
from wavefit.child.main import Reporter
from wavefit.device.power import meters
from wavefit.errors import RouteError
from wavefit.guard.bisect import first_bad_node
from wavefit.guard.check import check
from wavefit.guard.placement import reasons
from wavefit.guard.reference import Reference
from wavefit.guard.task import Score, evaluate, find_metric, judge
from wavefit.model.data import read_samples
from wavefit.model.samples import Samples
from wavefit.routes.session import Arrays, Session
from wavefit.schema import (
    Device,
    Failure,
    Measurement,
    Model,
    Placement,
    Plan,
    Request,
    Struct,
    TensorSpec,
    Verdict,
    fingerprint,
)

_DISTINCT_BATCHES = 4
_BATCHES_BYTES = 512 << 20  # most memory that the prebuilt batches may take
_SEARCH_SHARE = 0.8  # of the time left, for the first bad node
_PLACEMENT_FIX = "drop --require-gpu, or export the model without these operators"


class Trial(Struct, frozen=True, kw_only=True):
    """A plan to try, and what to hold it against."""

    plan: Plan
    device: Device
    model: Model
    request: Request
    reference: str  # the folder that prepare wrote
    reference_score: Score | None  # of the task metric, where there are labels


class Trialled(Struct, frozen=True, kw_only=True):
    """What came of it. A plan whose answers moved is not measured."""

    verdict: Verdict | None = None
    placement: Placement | None = None
    measurement: Measurement | None = None
    failure: Failure | None = None


def run_trial(payload: Trial, say: Reporter) -> Trialled:
    """Opens, runs, checks and measures one plan.

    Raises:
        RouteError: the runtime refused or failed.
        InputError: the data no longer fits the model.
    """
    plan, request = payload.plan, payload.request
    workdir = Path(tempfile.gettempdir())
    reference = Reference.load(Path(payload.reference))
    say.stage("open")
    started = perf_counter()
    session = routes.open_told(plan, payload.model, payload.device, workdir, say)
    load_s = perf_counter() - started
    batches = _batches(reference.samples, plan)
    say.stage("first run")
    started = perf_counter()
    session.run(batches[0])
    opened = Opened(load_s=load_s, first_run_s=perf_counter() - started, host_peak_bytes=host_peak_bytes())
    say.stage("check")
    verdict = _verdict(payload, session, reference, workdir, say)
    if not verdict.passed:
        return Trialled(verdict=verdict, placement=_placement(session, say))
    say.stage("measure")
    measurement = measure(session, plan, batches, request.load, meters(payload.device), say, opened)
    say.stage("placement")
    placement = session.placement()
    left = reasons(placement, payload.device, request.require_gpu)
    if left:
        failure = Failure(kind="refused", stage="placement", reason="; ".join(left), fix=_PLACEMENT_FIX)
        return Trialled(verdict=verdict, placement=placement, failure=failure)
    return Trialled(verdict=verdict, placement=placement, measurement=measurement)


def _placement(session: Session, say: Reporter) -> Placement | None:
    """Where the nodes of a plan ran that moved; not knowing it takes nothing from the verdict."""
    try:
        return session.placement()
    except RouteError as error:
        say(f"where its nodes ran is not known: {error.reason}")
        return None


def _verdict(payload: Trial, session: Session, reference: Reference, workdir: Path, say: Reporter) -> Verdict:
    verdict = check(session, payload.plan, reference, beside_metric=payload.reference_score is not None)
    if payload.reference_score is not None:
        say(payload.request.data.metric)
        verdict = _with_task(verdict, payload, session, payload.reference_score)
    if verdict.passed:
        return verdict
    if not routes.runs_onnx(payload.plan.route):
        unnamed = "the first bad node is not looked for in a PyTorch program"
        return replace(verdict, warnings=(*verdict.warnings, unnamed))
    say("looking for the first bad node")
    limit_s = _SEARCH_SHARE * say.left_s()  # a search that meets the deadline would take the verdict with it
    bad = first_bad_node(payload.model, reference, payload.plan, _opener(payload, workdir), workdir, limit_s)
    return replace(verdict, first_bad_node=bad)


def _with_task(verdict: Verdict, payload: Trial, session: Session, reference: Score) -> Verdict:
    request = payload.request
    sys.path.insert(0, str(Path.cwd()))  # where a metric of the user's own lies
    metric = find_metric(request.data.metric)
    samples = read_samples(payload.model, request.data, request.sizes)
    judged = judge(evaluate(session, payload.plan, samples, metric), reference, metric, request.max_drop)
    return replace(
        verdict,
        passed=verdict.passed and not judged.reasons,
        reasons=(*verdict.reasons, *judged.reasons),
        warnings=(*verdict.warnings, *judged.warnings),
        task=judged.metric,
    )


def _opener(payload: Trial, workdir: Path) -> Callable[[Path, tuple[str, ...]], Session]:
    """Opens the plan on a graph that has more outputs than the model."""

    def open_with(path: Path, extra: tuple[str, ...]) -> Session:
        outputs = tuple(TensorSpec(name=name, dtype="unknown", shape=None) for name in extra)
        digest = fingerprint(
            payload.model.sha256, extra
        )  # a route's compile cache must not take it for the model
        model = replace(
            payload.model, path=str(path), sha256=digest, outputs=(*payload.model.outputs, *outputs)
        )
        return routes.get(payload.plan.route).open(payload.plan, model, payload.device, workdir)

    return open_with


def _batches(samples: Samples, plan: Plan) -> list[Arrays]:
    """A few distinct batches of the plan's size, within a bound on memory."""
    first = samples.batch(0, plan.batch)
    size = sum(array.nbytes for array in first.values())
    count = min(_DISTINCT_BATCHES, max(1, _BATCHES_BYTES // max(size, 1)))
    return [first, *(samples.batch(step * (plan.batch + 1), plan.batch) for step in range(1, count))]
