"""Everything that the planner says about a model on a device: what ``wavefit plan`` shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from wavefit.model.shapes import bind, fixed_batch
from wavefit.plan.batch import Budget, budget, largest_batch
from wavefit.plan.memory import Memory
from wavefit.plan.predict import Planner, is_fused, memory
from wavefit.plan.roofline import Roof, Tile, roofline, tiles
from wavefit.plan.transfer import Transfer, transfer
from wavefit.schema import Device, Model, Plan, Precision, Prediction, Struct


class At(Struct, frozen=True, kw_only=True):
    """One batch. Every figure is predicted."""

    batch: int
    memory: Memory
    fits: bool | None  # None where the device's memory is not known
    transfer: Transfer
    roof: Roof
    prediction: Prediction
    own_time: bool  # the total is the route's own sum over its kernels, launches included
    dominated_by: str | None  # "compute", "memory", "launch", "transfer"; None where the time is unknown


class Outlook(Struct, frozen=True, kw_only=True):
    """A model on a device in one precision."""

    model: str
    device: Device
    precision: Precision
    route: str
    route_given: bool = False  # by the user; else it is the default for the kind of device
    absent: bool = False  # the device is a GPU that is not in this machine
    budget: Budget
    largest_batch: int | None  # None where the memory is unknown, or the batch is fixed
    batches: tuple[At, ...]
    tiles: tuple[Tile, ...]


class Question(Struct, frozen=True, kw_only=True):
    """What is asked: empty batches mean 1, or the batch that the model is frozen to."""

    device: Device
    cpu: Device | None  # this machine's, where the device is in it
    precision: Precision = "fp32"
    sizes: dict[str, int]  # of symbolic dimensions other than the batch
    batches: tuple[int, ...] = ()
    route: str | None = None


def outlook(planner: Planner, question: Question, say: Callable[[str], None] | None = None) -> Outlook:
    """Answers it; ``say`` is told what is looked at.

    Raises:
        InputError: the model cannot take such a batch, or a size is missing.
    """
    say = say or _silent
    frozen = fixed_batch(planner.model)
    offered = budget(question.device, question.cpu)
    return Outlook(
        model=planner.model.name,
        device=question.device,
        precision=question.precision,
        route=_route(question),
        route_given=question.route is not None,
        absent=question.device.kind == "gpu" and question.device.machine is None,
        budget=offered,
        batches=tuple(
            _at(planner, question, offered, batch, say) for batch in question.batches or (frozen or 1,)
        ),
        largest_batch=None if frozen else _largest(planner, question, offered, say),
        tiles=tiles(question.device, question.precision),
    )


def _route(question: Question) -> str:
    return question.route or ("ort_cpu" if question.device.kind == "cpu" else "torch_gpu")


def _plan(model: Model, question: Question, batch: int) -> Plan:
    return Plan(
        route=_route(question),
        device=question.device.id,
        precision=question.precision,
        batch=batch,
        shapes=bind(model, batch, question.sizes),
    )


def _silent(text: str) -> None: ...


def _at(planner: Planner, question: Question, offered: Budget, batch: int, say: Callable[[str], None]) -> At:
    say(f"{question.precision}: batch {batch}")
    plan = _plan(planner.model, question, batch)
    found = planner.explain(plan.shapes)
    needed = memory(found, planner.model, question.device, plan)
    prediction = planner.predict(question.device, plan) or Prediction()
    peak = prediction.peak_bytes or needed.peak_bytes
    return At(
        batch=batch,
        memory=needed,
        fits=None if offered.bytes is None else peak <= offered.bytes,
        transfer=transfer(found, question.device, planner.model.parameters, question.precision),
        roof=roofline(found, question.device, question.precision, is_fused(plan)),
        prediction=prediction,
        own_time=planner.own_time(question.device, plan, prediction),
        dominated_by=_dominant(prediction),
    )


def _dominant(prediction: Prediction) -> str | None:
    parts = {
        "compute": prediction.compute_s,
        "memory": prediction.memory_s,
        "launch": prediction.launch_s,
        "transfer": prediction.transfer_s,
    }
    known: Sequence[tuple[float, str]] = [(value, name) for name, value in parts.items() if value is not None]
    if prediction.compute_s is None or prediction.memory_s is None:
        return None
    return max(known)[1]


def _largest(planner: Planner, question: Question, offered: Budget, say: Callable[[str], None]) -> int | None:
    if offered.bytes is None:
        return None

    def need(batch: int) -> int:
        say(f"{question.precision}: the largest batch that fits, trying {batch}")
        plan = _plan(planner.model, question, batch)
        prediction = planner.predict(question.device, plan)
        if prediction is not None and prediction.peak_bytes is not None:
            return prediction.peak_bytes
        return memory(planner.explain(plan.shapes), planner.model, question.device, plan).peak_bytes

    return largest_batch(need, offered.bytes)
