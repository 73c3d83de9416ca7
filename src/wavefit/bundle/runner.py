"""Runs a bundle on this machine."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from wavefit import __version__, routes
from wavefit.bundle.buckets import smaller
from wavefit.bundle.read import load_bundle, model_of
from wavefit.device.measure import measured
from wavefit.device.probe import probe
from wavefit.device.runtimes import with_runtimes
from wavefit.errors import InputError, RouteError
from wavefit.model.samples import whole_inputs
from wavefit.routes.session import Arrays, Session, check_inputs
from wavefit.schema import Bundle, Device, Model, Plan, Record, Unsupported

Opening = Callable[[Plan, Path], Session]
"""Opens a plan; the session may write below the folder."""


class BundleRunner:
    """An opened bundle: call it with arrays, get arrays.

    A route whose kernels the bundle carries is opened at the smaller batches that were measured too, each when it is
    first wanted: a few items then do not pay for a whole batch, and nothing is compiled.

    Args:
        opening: opens a plan of the bundle on the device.
        smaller: the plan at smaller batches, the least first.

    Attributes:
        bundle: the manifest.
        record: the plan that runs, with what was measured when the bundle was made.
        differences: what differs between that machine and this one, one sentence each.
    """

    def __init__(
        self,
        bundle: Bundle,
        record: Record,
        model: Model,
        opening: Opening,
        differences: list[str],
        smaller: Sequence[Plan] = (),
    ) -> None:
        self.bundle = bundle
        self.record = record
        self.model = model
        self._whole = whole_inputs(model)
        workdir = Path(tempfile.mkdtemp(prefix="wavefit-"))
        # Also where nobody calls close, as in ``wavefit.open(path)(image)``: with this object, or at Python's end.
        self._remove_workdir = weakref.finalize(self, shutil.rmtree, workdir, ignore_errors=True)
        self._opening, self._workdir, self._smaller = opening, workdir, smaller
        self._sessions = {record.plan.batch: opening(record.plan, workdir)}
        self.differences = [*differences, *self._sessions[record.plan.batch].notes]

    def __call__(self, inputs: np.ndarray | Mapping[str, np.ndarray]) -> Arrays:
        """Runs any number of items, in batches of the plan's size; the rest at the nearest prepared one, padded.

        Args:
            inputs: arrays by input name; one array where the model has one input.

        Returns:
            Every output by name.

        Raises:
            InputError: an input is missing, unknown, or of another type or shape.
        """
        if isinstance(inputs, np.ndarray):
            inputs = {self._only_input(): inputs}
        check_inputs(self.model.inputs, inputs)
        batch = self.record.plan.batch
        if self.model.batch is None:
            return self._at(batch).run(inputs)
        count = _items({name: array for name, array in inputs.items() if name not in self._whole})
        if count == batch:
            return self._at(batch).run(inputs)
        bucket = self._bucket(count % batch)
        whole = count if bucket == batch else count - count % batch
        chunks = self._chunks(inputs, 0, whole, batch)
        parts = [self._by_item(outputs, batch) for outputs in self._at(batch).stream(chunks)]
        if whole < count:
            (rest,) = self._chunks(inputs, whole, count, bucket)
            parts.append(self._by_item(self._at(bucket).run(rest), bucket))
        return {name: np.concatenate([part[name] for part in parts])[:count] for name in parts[0]}

    def _bucket(self, rest: int) -> int:
        """The prepared batch that is nearest to what whole batches leave over; the plan's where nothing is left."""
        fitting = [each.batch for each in self._smaller if 0 < rest <= each.batch]
        return fitting[0] if fitting else self.record.plan.batch

    def _at(self, batch: int) -> Session:
        """The session of a prepared batch."""
        if batch not in self._sessions:
            plan = next(each for each in self._smaller if each.batch == batch)
            self._sessions[batch] = self._opening(plan, self._workdir)
        return self._sessions[batch]

    def _chunks(self, inputs: Mapping[str, np.ndarray], begin: int, end: int, batch: int) -> Iterator[Arrays]:
        """Some items in batches; the last one repeats its own to be full."""
        for start in range(begin, end, batch):
            index = np.resize(np.arange(start, min(start + batch, end)), batch)
            yield {name: array if name in self._whole else array[index] for name, array in inputs.items()}

    def _by_item(self, outputs: Arrays, batch: int) -> Arrays:
        for name, array in outputs.items():
            if not array.shape or len(array) != batch:
                raise InputError(
                    f"output {name!r} is not one answer an item, so that batches cannot be joined or cut",
                    f"give {self.record.plan.batch} items, the batch of the plan",
                )
        return outputs

    def _only_input(self) -> str:
        if len(self.model.inputs) != 1:
            names = ", ".join(spec.name for spec in self.model.inputs)
            raise InputError(f"the model has {len(self.model.inputs)} inputs", f"give a dict with {names}")
        return self.model.inputs[0].name

    def close(self) -> None:
        for session in self._sessions.values():
            session.close()
        self._remove_workdir()

    def __enter__(self) -> BundleRunner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_bundle(
    path: str | Path, plan: str | None = None, say: Callable[[str], None] | None = None
) -> BundleRunner:
    """Opens a bundle on this machine, with the plan that was picked.

    Args:
        path: the bundle's folder.
        plan: the label of a runner-up to run instead, as ``wavefit run --plan`` lists them.
        say: told of what takes long: compiling kernels that the bundle does not carry for this machine.

    Raises:
        InputError: no bundle, a changed one, or no such plan in it.
        RouteError: the plan cannot run on this machine; the message says why, what mends it, and which runner-up can.
    """
    folder = Path(path)
    bundle, records = load_bundle(folder)
    candidates = _candidates(bundle, records, folder)
    record = candidates[0] if plan is None else _labelled(candidates, plan)
    devices = probe()
    device = device_for(record, devices, bundle)
    if isinstance(device, Unsupported):
        # Takes seconds, so only where a plan needs it. With the measured peaks kernels are chosen as optimize chose.
        devices = tuple(measured(each) for each in with_runtimes(devices, _silent))
        device = device_for(record, devices, bundle)
    if isinstance(device, Unsupported):
        raise RouteError(
            f"{record.plan.label}, measured on {record.device.name or record.device.id}, cannot run here: "
            f"{device.reason}",
            _way_out(device.fix, candidates, devices, bundle),
        )
    model = model_of(folder, record)
    opening = partial(_open, model, device, say or _silent, folder)
    buckets = [each.plan for each in smaller(record, records)] if routes.carries(record.plan.route) else []
    return BundleRunner(bundle, record, model, opening, differences(record, device), buckets)


def _open(
    model: Model, device: Device, say: Callable[[str], None], folder: Path, plan: Plan, workdir: Path
) -> Session:
    return routes.open_told(plan, model, device, workdir, say, folder)


def device_for(record: Record, devices: tuple[Device, ...], bundle: Bundle) -> Device | Unsupported:
    """The device of this machine that a record's plan would run on, or its route's refusal.

    Of several, the one that is most like the one measured: of an integrated GPU and a card, not just the first.
    """
    if record.plan.route not in routes.names():
        return Unsupported(
            route=record.plan.route,
            reason=f"this wavefit has no route {record.plan.route!r}",
            fix="update wavefit, or run `wavefit optimize` here",
        )
    answers = routes.get(record.plan.route).plans(devices, record.model, bundle.request)
    able = {
        answer.device
        for answer in answers
        if isinstance(answer, Plan) and answer.series == record.plan.series
    }
    if able:
        return max((device for device in devices if device.id in able), key=partial(_likeness, record.device))
    return next((answer for answer in answers if isinstance(answer, Unsupported)), None) or Unsupported(
        route=record.plan.route,
        reason=f"{record.plan.series} is not offered here",
        fix="run `wavefit optimize` here",
    )


def _likeness(one: Device, other: Device) -> tuple[bool, ...]:
    """Orders devices by how much they are like one; alike devices keep their order."""
    aspects = ("name", "pci_id", "gfx", "integrated", "pci_address", "id")
    return tuple(getattr(one, aspect) == getattr(other, aspect) for aspect in aspects)


def differences(record: Record, device: Device) -> list[str]:
    """What differs between the machine of a record and this one, one sentence each."""
    found = []
    for what in ("name", "gfx", "compute_units", "driver", "machine"):
        then, now = getattr(record.device, what), getattr(device, what)
        if then != now:
            found.append(
                f"{what.replace('_', ' ')}: measured on {then or 'unknown'}, here {now or 'unknown'}"
            )
    now_versions = {**routes.get(record.plan.route).versions(), "wavefit": __version__}
    for name in sorted({*record.versions, *now_versions}):
        before, here = record.versions.get(name, "none"), now_versions.get(name, "none")
        if before != here:
            found.append(f"{name}: measured with {before}, here {here}")
    return found


def _items(inputs: Mapping[str, np.ndarray]) -> int:
    """The common length of axis 0.

    Raises:
        InputError: the inputs differ in it, or hold no item.
    """
    counts = {name: len(array) for name, array in inputs.items()}
    if len(set(counts.values())) != 1 or 0 in counts.values():
        told = ", ".join(f"{name}: {count}" for name, count in counts.items())
        raise InputError(f"all inputs need the same number of items, at least one ({told})")
    return next(iter(counts.values()))


def _candidates(bundle: Bundle, records: list[Record], folder: Path) -> list[Record]:
    by_key = {record.key: record for record in records}
    keys = (bundle.choice.pick, *bundle.choice.runners_up)
    found = [by_key[key] for key in keys if key is not None and key in by_key]
    if not found:
        raise InputError(f"no plan in {folder} passed", "its report.html says why")
    return found


def _labelled(candidates: list[Record], label: str) -> Record:
    for record in candidates:
        if label in (record.plan.label, record.plan.route):
            return record
    labels = "; ".join(record.plan.label for record in candidates)
    raise InputError(f"the bundle has no plan {label!r}", f"it has: {labels}")


def _silent(text: str) -> None:
    pass


def _way_out(fix: str, candidates: list[Record], devices: tuple[Device, ...], bundle: Bundle) -> str:
    for record in candidates[1:]:
        if isinstance(device_for(record, devices, bundle), Device):
            return f"{fix}; or open the runner-up that can run here: plan {record.plan.label!r}"
    return fix
