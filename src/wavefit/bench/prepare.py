"""What every trial of a model shares, made once in a child process: the model, the sample data, the reference."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from wavefit.child.main import Reporter
from wavefit.errors import InputError
from wavefit.guard.reference import make_reference
from wavefit.guard.task import Metric, Score, find_metric, reference_score
from wavefit.model.data import read_samples
from wavefit.model.samples import Samples
from wavefit.model.source import resolve
from wavefit.schema import Data, Model, Request, Struct, TensorSpec


class Resolving(Struct, frozen=True, kw_only=True):
    """Brings what the user gave to a checked ONNX file; an exported one is written into ``folder``."""

    model: str
    inputs: tuple[TensorSpec, ...]
    folder: str


class Preparing(Struct, frozen=True, kw_only=True):
    """Reads the sample data and runs the reference on it; that is written into ``folder``."""

    model: Model
    request: Request
    folder: str


class Prepared(Struct, frozen=True, kw_only=True):
    """Where the reference lies, a hash of its data and of the task metric, and its score where there are labels."""

    folder: str
    digest: str
    score: Score | None = None


def resolve_model(payload: Resolving, say: Reporter) -> Model:
    """See :func:`wavefit.model.source.resolve`."""
    say.stage("read the model")
    sys.path.insert(0, str(Path.cwd()))
    folder = Path(payload.folder)
    folder.mkdir(parents=True, exist_ok=True)
    return resolve(payload.model, payload.inputs, folder, say)


def prepare(payload: Preparing, say: Reporter) -> Prepared:
    """See :func:`wavefit.guard.reference.make_reference`."""
    say.stage("read the data")
    request = payload.request
    samples = read_samples(payload.model, request.data, request.sizes)
    metric = _metric(request, samples)
    say.stage("reference")
    reference = make_reference(payload.model, samples, say)
    folder = Path(payload.folder)
    reference.save(folder)
    score = None
    if metric is not None:
        say(f"{request.data.metric} of the reference on {samples.count} samples")
        score = reference_score(payload.model, samples, metric)
    return Prepared(folder=str(folder), digest=_digest(samples, metric), score=score)


def _metric(request: Request, samples: Samples) -> Metric | None:
    """The task metric; None where there are no labels and none was asked for.

    Raises:
        InputError: it cannot be found, or there are no labels for one that was asked for.
    """
    name = request.data.metric
    if samples.labels is None and name == Data().metric:
        return None
    sys.path.insert(0, str(Path.cwd()))  # where a metric of the user's own lies
    metric = find_metric(name)
    if samples.labels is None:
        raise InputError(f"--metric {name} needs labels", "give --data with one folder a class, or --labels")
    return metric


def _digest(samples: Samples, metric: Metric | None) -> str:
    """Of the data, and of the file that a metric of the user's own lies in: a result depends on both."""
    digest = hashlib.sha256()
    for name, array in sorted(samples.inputs.items()):
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(array.tobytes())
    if samples.labels is not None:
        digest.update(samples.labels.tobytes())
    if metric is not None:
        digest.update(metric.source())
    return digest.hexdigest()
