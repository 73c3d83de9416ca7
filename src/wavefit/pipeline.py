"""The order of the main job."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

from msgspec.structs import replace

from wavefit import __version__, routes
from wavefit.bench.prepare import Prepared, Preparing, Resolving
from wavefit.bench.scenarios import check_load
from wavefit.bench.sweep import why_stop
from wavefit.bench.trial import Trial, Trialled
from wavefit.bundle import variants
from wavefit.bundle.buckets import smaller
from wavefit.bundle.journal import Journal
from wavefit.bundle.read import is_bundle, load_bundle, picked, source_of
from wavefit.bundle.write import write_bundle
from wavefit.candidates import candidates, models_of, wanted_files
from wavefit.child.work import Work
from wavefit.choice import choose
from wavefit.device.measure import measured
from wavefit.device.probe import probe
from wavefit.device.runtimes import with_runtimes
from wavefit.errors import InputError
from wavefit.model.samples import check_bytes, fixed_batch, numpy_dtype
from wavefit.model.shapes import bind
from wavefit.plan.predict import Planner
from wavefit.precision.search.records import Made, Making, Wanted, searched_with
from wavefit.report.page import render
from wavefit.routes._tuning import Tuned, Tuning
from wavefit.schema import (
    Bundle,
    Choice,
    Device,
    Failure,
    Model,
    Plan,
    Record,
    Request,
    Skipped,
    Struct,
    TensorSpec,
    Unsupported,
    Variant,
    fingerprint,
)

_TUNING_SHARE = 0.5  # of what is left of the budget: the plan has to be measured, too


class Order(Struct, frozen=True, kw_only=True):
    """What one call of optimize is to do.

    Args:
        model: a file, or ``package.module:factory``.
        inputs: shapes that the model itself does not tell.
        folder: the bundle's.
        command: repeats it.
    """

    model: str
    inputs: tuple[TensorSpec, ...] = ()
    request: Request = Request()
    folder: str
    command: str


class Progress(Protocol):
    """Tells people what is happening."""

    def say(self, text: str) -> None:
        """A short clause about what is being done now."""

    def done(self, record: Record, again: bool) -> None:
        """One plan has its record; ``again``: an earlier run had made it."""


def optimize(order: Order, progress: Progress) -> tuple[Bundle, list[Record]]:
    """Takes a model to a proven, measured, packed result.

    Each record is on disk before the next plan starts; the same order again goes on from there.

    Raises:
        InputError: the model, its data or an option is bad. Nothing is left behind then.
        RouteError: the model could not be brought to ONNX, or no reference could be run.
    """
    with Journal(Path(order.folder)) as journal:
        return _optimize(order, journal, progress)


def bench(order: Order, progress: Progress) -> tuple[list[Record], tuple[Unsupported, ...]]:
    """Measures a model's plans, or a bundle's pick again on this machine, and keeps nothing.

    Returns:
        The records, and the refusals of the routes that cannot run it here.

    Raises:
        InputError: the model, its data or an option is bad.
        RouteError: the model could not be brought to ONNX, or no reference could be run.
    """
    with tempfile.TemporaryDirectory(prefix="wavefit-") as folder, Journal(Path(folder)) as journal:
        if is_bundle(order.model) and not order.request.routes:
            order = replace(order, request=_as_picked(order.request, picked(Path(order.model)).plan))
        tried = _try_all(order, journal, progress)
        return tried.records, tried.refusals


def convert(order: Order, wanted: tuple[Wanted, ...], progress: Progress) -> tuple[Model, Made]:
    """Makes a model's variants and measures nothing: for a machine that is not this one.

    Returns:
        The model, and its variants, whose files lie below ``order.folder``.

    Raises:
        InputError: the model, its data or an option is bad, or the model is in a lower precision already.
        RouteError: the model could not be brought to ONNX, or no reference could be run.
    """
    with Journal(Path(order.folder)) as journal:
        work = _work(journal, order.request, progress)
        model = _resolve(order, journal, work)
        if model.precision != "fp32":
            raise InputError(
                f"{order.model} computes in {model.precision} already",
                "give the fp32 model that it came from",
            )
        request = settle(order.request, model)
        prepared = _prepare(model, request, journal, work)
        payload = Making(
            key=fingerprint(model.sha256, prepared.digest, request, wanted, __version__),
            model=model,
            request=request,
            reference=prepared.folder,
            folder=str(journal.variants),
            wanted=wanted,
        )
        return model, _search(payload, work)


def _as_picked(request: Request, plan: Plan) -> Request:
    """The request that comes to a bundle's pick alone, at its own batch where none was asked for."""
    batches = (plan.batch,) if request.batches == Request().batches else request.batches
    return replace(
        request, routes=(plan.route,), precisions=(plan.precision,), batches=batches, series=plan.series
    )


def _optimize(order: Order, journal: Journal, progress: Progress) -> tuple[Bundle, list[Record]]:
    tried = _try_all(order, journal, progress)
    choice = choose(tried.records, tried.refusals, tried.request)
    if not tried.records and tried.skipped:
        choice = replace(choice, sentence=f"No plan was tried: {tried.skipped[0].reason}.")
    draft = _draft(order, tried, choice)
    if choice.pick is None and is_bundle(journal.folder):
        journal.shed()
        sentence = f"{choice.sentence} {journal.folder} stays as it was."
        return replace(draft, choice=replace(choice, sentence=sentence)), tried.records
    progress.say("packing the bundle")
    kept = [*tried.records, *journal.others(tried.records)]
    page = render(draft, tried.records)
    best = next((record for record in tried.records if record.key == choice.pick), None)
    carried = {} if best is None else _carried(best, tried.records)
    bundle = write_bundle(journal.folder, draft, tried.model, kept, page, tried.searched, carried)
    return bundle, tried.records


def _carried(best: Record, records: Sequence[Record]) -> dict[str, Path]:
    """What the pick's route compiled, at its batch and at the smaller ones that a bundle may run at."""
    found: dict[str, Path] = {}
    for each in (best, *smaller(best, records)):
        found |= routes.carried(each.plan, each.model, each.device)
    return found


class _Tried(Struct, frozen=True, kw_only=True):
    """All that was found out about a model on this machine."""

    model: Model
    request: Request
    devices: tuple[Device, ...]
    refusals: tuple[Unsupported, ...]
    records: list[Record]
    skipped: list[Skipped]
    variants: tuple[Variant, ...] = ()
    searched: Path | None = None  # the folder that the variants lie in


def _try_all(order: Order, journal: Journal, progress: Progress) -> _Tried:
    devices = select(_devices(progress), order.request.devices)
    work = _work(journal, order.request, progress)
    model = _resolve(order, journal, work)
    request = settle(order.request, model)
    prepared = _prepare(model, request, journal, work)
    searched, made = _variants(order, devices, model, request, prepared, journal, work)
    models = models_of(model, made.variants)
    answers = candidates(devices, models, request, made.variants)
    refusals = (*made.refusals, *(answer for answer in answers if isinstance(answer, Unsupported)))
    trials = _Trials(models, request, prepared, journal, work, progress)
    for plan in (answer for answer in answers if isinstance(answer, Plan)):
        if request.series is not None and plan.series != request.series:
            continue
        trials.sweep(plan, next(device for device in devices if device.id == plan.device))
    return _Tried(
        model=model,
        request=request,
        devices=devices,
        refusals=refusals,
        records=trials.records,
        skipped=trials.skipped,
        variants=made.variants,
        searched=searched,
    )


def _devices(progress: Progress) -> tuple[Device, ...]:
    """What this machine has, with what each runtime calls it and the peaks measured earlier.

    Runtimes are asked where a GPU is, or OpenCL is installed, which may drive the CPU.
    """
    found = probe()
    if any(device.kind == "gpu" for device in found) or find_spec("pyopencl") is not None:
        found = with_runtimes(found, progress.say)
    return tuple(measured(device) for device in found)


def select(devices: tuple[Device, ...], ids: tuple[str, ...]) -> tuple[Device, ...]:
    """The devices asked for; all where none is named.

    Raises:
        InputError: there is no such device.
    """
    known = {device.id for device in devices}
    for name in ids:
        if name not in known:
            raise InputError(
                f"there is no device {name!r} here", f"this machine has {', '.join(sorted(known))}"
            )
    return tuple(device for device in devices if not ids or device.id in ids)


def settle(request: Request, model: Model) -> Request:
    """The request with batches that the model can take: a frozen batch is the only one.

    Raises:
        InputError: another batch was asked of a model with a frozen one, its input would take too much memory, a route
            is not known, or a load cannot be run.
    """
    for name in request.routes:
        if name not in routes.names():
            raise InputError(f"there is no route {name!r}", f"the routes are {', '.join(routes.names())}")
    check_load(request.load)
    frozen = fixed_batch(model)
    batches = (
        (frozen,) if frozen is not None and request.batches == (1,) else tuple(sorted(set(request.batches)))
    )
    types = {spec.name: numpy_dtype(spec) for spec in model.inputs}
    for batch in batches:
        shapes = bind(model, batch, request.sizes)
        check_bytes(
            {name: (shape, types[name]) for name, shape in shapes.items()}, f"the input at --batch {batch}"
        )
    return replace(request, batches=batches)


def _variants(
    order: Order,
    devices: Sequence[Device],
    model: Model,
    request: Request,
    prepared: Prepared,
    journal: Journal,
    work: Work,
) -> tuple[Path, Made]:
    """The model's variants and the folder that they lie in: a bundle's own, an earlier search's, or a new one's."""
    if is_bundle(order.model):
        folder = Path(order.model) / variants.FOLDER
        own = (variants.located(each, folder) for each in load_bundle(Path(order.model))[0].variants)
        return folder, Made(variants=tuple(own))
    wanted = wanted_files(devices, model, request)
    if not wanted:
        return journal.variants, Made()
    how = (
        request.max_drop,
        request.data.metric,
        request.data.seed,
        request.sizes,
        request.mixed,
        request.keep,
    )
    tools = (request.deadline_s, *searched_with())
    for_what = [(each.precision, each.route, each.device.features, *_machine(each.device)) for each in wanted]
    key = fingerprint(model.sha256, prepared.digest, how, tools, for_what, __version__)
    for folder in (journal.variants, journal.folder / variants.FOLDER):
        made = variants.known(key, folder)
        if made is not None:
            return folder, made
    payload = Making(
        key=key,
        model=model,
        request=request,
        reference=prepared.folder,
        folder=str(journal.variants),
        wanted=wanted,
    )
    return journal.variants, _search(payload, work)


def _work(journal: Journal, request: Request, progress: Progress) -> Work:
    return Work(journal.work / "tmp", request.deadline_s, request.budget_s, progress.say)


def _search(payload: Making, work: Work) -> Made:
    """Variants, found in a child process; where that ends early, those found by then."""
    answer = work.run("wavefit.precision.search.variants:make_variants", payload, Made, "precision")
    if isinstance(answer, Failure):
        reason = f"the search for variants ended early: {answer.reason}"
        early = Unsupported(route="precision", reason=reason, fix=answer.fix)
        made = variants.known(payload.key, Path(payload.folder), whole=False) or Made()
        return replace(made, refusals=(*made.refusals, early))
    return answer


def _resolve(order: Order, journal: Journal, work: Work) -> Model:
    if is_bundle(order.model):
        return source_of(Path(order.model), load_bundle(Path(order.model))[0])
    payload = Resolving(model=order.model, inputs=order.inputs, folder=str(journal.work / "model"))
    return work.must("wavefit.bench.prepare:resolve_model", payload, Model, f"reading {order.model}")


def _prepare(model: Model, request: Request, journal: Journal, work: Work) -> Prepared:
    payload = Preparing(model=model, request=request, folder=str(journal.work / "reference"))
    return work.must("wavefit.bench.prepare:prepare", payload, Prepared, "reference")


class _Trials:
    """Tries plans one after the other, each in a child process, and keeps their records."""

    def __init__(
        self,
        models: Mapping[str | None, Model],
        request: Request,
        prepared: Prepared,
        journal: Journal,
        work: Work,
        progress: Progress,
    ) -> None:
        self.records: list[Record] = []
        self.skipped: list[Skipped] = []
        self._models = models
        self._request = request
        self._prepared = prepared
        self._journal = journal
        self._work = work
        self._progress = progress
        self._planners = {name: Planner(model, routes.refine(model)) for name, model in models.items()}

    def sweep(self, first: Plan, device: Device) -> None:
        """Tries one way to run the model at every batch, until that is no longer worthwhile."""
        done: list[Record] = []
        for plan in self._at_every_batch(first):
            reason = self._why_not(plan, done, device)
            if reason is not None:
                self.skipped.append(Skipped(plan=plan, reason=reason))
                continue
            predicted = self._planners[plan.variant].predict(device, plan)
            record = self._record(replace(plan, predicted=predicted), device)
            done.append(record)
            self.records.append(record)

    def _at_every_batch(self, plan: Plan) -> Iterator[Plan]:
        for batch in self._request.batches:
            shapes = bind(self._models[plan.variant], batch, self._request.sizes)
            yield replace(plan, batch=batch, shapes=shapes)

    def _why_not(self, plan: Plan, done: Sequence[Record], device: Device) -> str | None:
        left_s = self._work.left_s()
        if left_s is not None and left_s <= 0:
            return f"the budget of {self._request.budget_s:g} s was spent"
        return why_stop(done, plan.batch, _free_bytes(device))

    def _record(self, plan: Plan, device: Device) -> Record:
        self._tune(plan, device)
        versions = {**routes.get(plan.route).versions(), "wavefit": __version__}
        model = self._models[plan.variant]
        key = record_key(plan, device, model, versions, self._request, self._prepared.digest)
        known = self._journal.find(key)
        if known is not None and _still_holds(known, self._request.deadline_s):
            self._progress.done(known, again=True)
            return known
        record = self._try(plan, device, key, versions)
        self._journal.append(record)
        self._progress.done(record, again=False)
        return record

    def _tune(self, plan: Plan, device: Device) -> None:
        """Before the record's key is known, which depends on what was tuned; a plan is tried without it, too."""
        if not self._request.tune_s or not routes.tunes(plan.route):
            return
        left_s = self._work.left_s()
        budget_s = min(self._request.tune_s, _TUNING_SHARE * (left_s if left_s is not None else math.inf))
        payload = Tuning(plan=plan, model=self._models[plan.variant], device=device, budget_s=budget_s)
        answer = self._work.run(f"wavefit.routes.{plan.route}:tune", payload, Tuned, plan.label)
        if isinstance(answer, Failure):
            self._progress.say(f"{plan.label}: not all was tuned: {answer.reason}")

    def _try(self, plan: Plan, device: Device, key: str, versions: dict[str, str]) -> Record:
        payload = Trial(
            plan=plan,
            device=device,
            model=self._models[plan.variant],
            request=self._request,
            reference=self._prepared.folder,
            reference_score=self._prepared.score,
        )
        answer = self._work.run("wavefit.bench.trial:run_trial", payload, Trialled, plan.label)
        record = Record(
            key=key,
            created=now(),
            device=device,
            model=payload.model,
            plan=plan,
            versions=versions,
        )
        if isinstance(answer, Failure):
            return replace(record, failure=answer)
        return replace(
            record,
            verdict=answer.verdict,
            placement=answer.placement,
            measurement=answer.measurement,
            failure=answer.failure,
        )


def record_key(
    plan: Plan, device: Device, model: Model, versions: dict[str, str], request: Request, digest: str
) -> str:
    """A hash of what a result depends on: while it stays the same, the plan is not measured again."""
    what = replace(plan, predicted=None)
    how = (request.load, request.data.metric, request.max_drop, request.require_gpu)
    return fingerprint(model.sha256, _machine(device), what, versions, how, digest)


def _machine(device: Device) -> tuple[object, ...]:
    """What of a device a result depends on."""
    return (
        device.id,
        device.name,
        device.gfx,
        device.pci_id,
        device.driver,
        device.compute_units,
        device.threads,
    )


def _still_holds(record: Record, deadline_s: float) -> bool:
    """Whether an earlier record spares a new trial.

    Not one that was interrupted or had less time than now, nor a refusal or a lack of memory: what mends those (a
    group, another program ended) is nothing that the record's key could hold.
    """
    failure = record.failure
    if failure is None:
        return True
    if failure.kind == "timeout":
        return failure.deadline_s is not None and failure.deadline_s >= deadline_s
    return failure.kind == "crash"


def _free_bytes(device: Device) -> int | None:
    """The largest pool's free bytes. Pools are never added: an APU's carve-out and GTT are one memory."""
    free = [pool.free_bytes for pool in device.memory if pool.free_bytes is not None]
    return max(free, default=None)


def _draft(order: Order, tried: _Tried, choice: Choice) -> Bundle:
    return Bundle(
        name=Path(order.folder).name.removesuffix(".wavefit"),
        created=now(),
        wavefit=__version__,
        command=order.command,
        request=tried.request,
        choice=choice,
        devices=tried.devices,
        refusals=tried.refusals,
        skipped=tuple(tried.skipped),
        model=tried.model,
        variants=tried.variants,
        files={},
    )


def now() -> str:
    """The time, ISO 8601 in UTC, to the second."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
