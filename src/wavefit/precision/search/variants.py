"""Makes a model's variants: searched in a child process, written as files, and not searched again for the same key."""

from __future__ import annotations

import difflib
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from msgspec import structs

from wavefit.child.main import Reporter
from wavefit.errors import InputError
from wavefit.guard.reference import Reference
from wavefit.guard.task import find_metric, reference_score
from wavefit.model.data import read_samples
from wavefit.model.load import load
from wavefit.model.samples import Samples
from wavefit.precision import graph
from wavefit.precision.int8.targets import CPU, Target, target
from wavefit.precision.search.data import Split, split
from wavefit.precision.search.evaluate import HeldOut, Judge
from wavefit.precision.search.half import half
from wavefit.precision.search.integer import integer
from wavefit.precision.search.material import Draft, Material
from wavefit.precision.search.mixed import with_half
from wavefit.precision.search.records import Found, Made, Making, Wanted, read_found, write_found
from wavefit.schema import Model, Precision, Request, Unsupported, Variant

# microsoft/onnxruntime, issue 26732 and pull request 29599
_WEBGPU = (
    "judged with the sums of products in fp32: ONNX Runtime's WebGPU provider adds them in half, and the check on "
    "the device tells whether the answers stand there"
)
_RANDOM_ITEMS = 16
_WHOLE_ITEMS = 1024  # most items that pass or fail as a whole: of more, those held out are enough to go by
_SHARE = 0.9  # of the deadline that optional steps may use up


def make_variants(payload: Making, say: Reporter) -> Made:
    """Searches what is wanted, each precision once for all that compute with the same types.

    Judgements are kept in ``folder/judgements-KEY.jsonl`` and what is found by now in ``folder/search.json``: a search
    that was stopped goes on from there. A graph that cannot be edited, run or typed is a refusal of what was wanted.
    """
    say.stage("precision search")
    folder = Path(payload.folder)
    folder.mkdir(parents=True, exist_ok=True)
    todo, refusals = jobs(payload.wanted)
    found = read_found(payload.key, folder) or Found(key=payload.key, made=Made(refusals=refusals))
    todo = [job for job in todo if job.name not in found.jobs]
    if not todo:
        return found.made
    try:
        material = _material(payload, say)
    except InputError as error:  # the model runs, but its graph cannot be edited
        return Made(refusals=(*found.made.refusals, *(_refusal(job, error) for job in todo)))
    _check_keep(material)
    for job in todo:
        found = _with(found, job, _make(material, payload, job, found.made.variants))
        write_found(found, folder)
    found = structs.replace(found, whole=True)
    write_found(found, folder)
    return found.made


class Job(NamedTuple):
    """One search: a precision, and for int8 the types that are fast somewhere."""

    precision: Precision
    target: Target | None

    @property
    def name(self) -> str:
        return f"{self.precision} {self.target.name}" if self.target else self.precision


def jobs(wanted: Sequence[Wanted]) -> tuple[list[Job], tuple[Unsupported, ...]]:
    """What has to be searched: int8 once for each set of types, the others once; refusals where int8 has no kernels."""
    found: dict[Job, None] = {}
    refusals = []
    for each in wanted:
        types = target(each.device, each.route) if each.precision == "int8" else None
        if isinstance(types, Unsupported):
            refusals.append(types)
        else:
            found[Job(each.precision, types)] = None
    return list(found), tuple(refusals)


def _make(material: Material, payload: Making, job: Job, others: Sequence[Variant]) -> Made:
    """One search, and its variants as files; a graph that cannot be run or typed is a refusal."""
    before, began = material.judge.evaluations, time.monotonic()
    material.say(f"{job.name} search")
    try:
        drafts = _search(material, job)
    except InputError as error:
        return Made(refusals=(_refusal(job, error),))
    if isinstance(drafts, Unsupported):
        return Made(refusals=(drafts,))
    spent = (material.judge.evaluations - before, time.monotonic() - began)
    made: list[Variant] = []
    for draft in drafts:
        noted = replace(draft, notes=(*draft.notes, *_route_notes(payload.wanted, draft)))
        made.append(_write(payload, noted, _name(noted, [*others, *made]), spent))
    return Made(variants=tuple(made))


def _route_notes(wanted: Sequence[Wanted], draft: Draft) -> tuple[str, ...]:
    """What a route does otherwise than the emulation that a variant was judged by."""
    halves = "fp16" in draft.nodes
    on_webgpu = any(each.route == "ort_webgpu" and each.precision == "fp16" for each in wanted)
    return (_WEBGPU,) if halves and on_webgpu else ()


def _search(material: Material, job: Job) -> list[Draft] | Unsupported:
    if job.target is not None:
        found = integer(material, job.target)
        mixes = material.mixed and not job.target.name.startswith(CPU.name)  # which computes half in fp32
        return _mixed(material, found) if mixes and not isinstance(found, Unsupported) else found
    assert job.precision in ("fp16", "bf16")
    one = half(material, job.precision)
    return one if isinstance(one, Unsupported) else [one]


def _mixed(material: Material, drafts: list[Draft]) -> list[Draft]:
    """Those drafts, and each with its other nodes in half."""
    lowered = half(material, "fp16")  # its judgements are known from its own search
    if isinstance(lowered, Unsupported):
        return drafts
    mixed = (with_half(material, draft, lowered) for draft in drafts)
    return [*drafts, *(draft for draft in mixed if draft is not None)]


def _refusal(job: Job, error: InputError) -> Unsupported:
    return Unsupported(
        route="precision",
        reason=f"no {job.name} variant can be made: {error.what}",
        fix=error.fix or "use --precision fp32",
        precision=job.precision,
    )


def _with(found: Found, job: Job, made: Made) -> Found:
    both = Made(
        variants=(*found.made.variants, *made.variants), refusals=(*found.made.refusals, *made.refusals)
    )
    return structs.replace(found, made=both, jobs=(*found.jobs, job.name))


def _material(payload: Making, say: Reporter) -> Material:
    request, model = payload.request, payload.model
    samples = read_samples(model, request.data, request.sizes)
    parts = _split(model, request, samples)
    folder = Path(payload.folder)
    folder.mkdir(parents=True, exist_ok=True)
    judge = Judge(
        model=model,
        reference=Reference.load(Path(payload.reference)),
        heldout=_held_out(model, request, parts, samples),
        sizes=request.sizes,
        compared=parts.heldout,
        memory=folder / f"judgements-{payload.key}.jsonl",
    )
    return Material(
        model=model,
        graph=graph.load(Path(model.path)),
        split=parts,
        judge=judge,
        mixed=request.mixed,
        keep=frozenset(request.keep),
        say=say,
        left_s=lambda: _SHARE * say.left_s(),
    )


def _check_keep(material: Material) -> None:
    """Raises InputError where a node is to be kept that is not there."""
    known = graph.nodes(material.graph)
    for name in sorted(material.keep - known.keys()):
        close = difflib.get_close_matches(name, known, 3)
        fix = f"perhaps {' or '.join(close)}" if close else "the names are those of the ONNX file's nodes"
        raise InputError(f"--keep {name}: {material.model.name} has no node of that name", fix)


def _split(model: Model, request: Request, samples: Samples) -> Split:
    """Both parts of the user's data; where there are none, random inputs of another seed to take ranges from."""
    if request.data.path is not None:
        return split(model, samples, request.data.seed)
    other = structs.replace(request.data, seed=request.data.seed + 1, count=_RANDOM_ITEMS)
    note = "ranges were taken from random inputs: real data may reach further (give --data)"
    return Split(read_samples(model, other, request.sizes), samples, (note,))


def _held_out(model: Model, request: Request, parts: Split, samples: Samples) -> HeldOut | None:
    if parts.heldout.labels is None:
        return None
    sys.path.insert(0, str(Path.cwd()))  # where a metric of the user's own lies
    metric = find_metric(request.data.metric)

    def of(items: Samples, whole: HeldOut | None) -> HeldOut:
        return HeldOut(items, metric, reference_score(model, items, metric), request.max_drop, whole)

    few = parts.heldout.count < samples.count <= _WHOLE_ITEMS
    return of(parts.heldout, of(samples, None) if few else None)


def _name(draft: Draft, others: Sequence[Variant]) -> str:
    """ "int8", then "int8-2", ..."""
    count = sum(other.precision == draft.precision for other in others)
    return draft.precision if count == 0 else f"{draft.precision}-{count + 1}"


def _write(payload: Making, draft: Draft, name: str, spent: tuple[int, float]) -> Variant:
    path = Path(payload.folder) / f"{name}.onnx"
    graph.save(draft.graph, path)
    model = structs.replace(load(path), name=payload.model.name, precision=draft.precision)
    return Variant(
        key=payload.key,
        name=name,
        precision=draft.precision,
        model=model,
        target=draft.target,
        nodes=draft.nodes,
        kept=draft.kept,
        scaled=draft.scaled,
        recipe=draft.recipe,
        sensitivity=draft.sensitivity,
        error=draft.judgement.error,
        task=draft.judgement.task,
        evaluations=spent[0],
        search_s=spent[1],
        notes=draft.notes,
    )
