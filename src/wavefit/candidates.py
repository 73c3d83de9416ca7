"""What can be tried: every route's plans for a model and for its variants, and what variants are worth making."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from wavefit import routes
from wavefit.errors import InputError
from wavefit.precision.int8.targets import target
from wavefit.precision.search.records import Wanted
from wavefit.precision.torch_names import for_torch
from wavefit.schema import Device, Model, Plan, Precision, Request, Unsupported, Variant


def candidates(
    devices: Sequence[Device],
    models: Mapping[str | None, Model],
    request: Request,
    variants: Sequence[Variant] = (),
) -> list[Plan | Unsupported]:
    """Every route's answers for the model and its plans for the variants: fp32 first, then variants, then the rest.

    A refusal of a precision is left out where a variant gives a plan in it.

    Args:
        models: by the variant's name; None: the model itself.
    """
    names = request.routes or routes.names()
    found = [answer for name in names for answer in routes.get(name).plans(devices, models[None], request)]
    for variant in variants:
        asked = replace(request, precisions=(variant.precision,))
        plans = (plan for name in names for plan in _plans_of(name, devices, models[variant.name], asked))
        by_id = {device.id: device for device in devices}
        found += [
            replace(plan, variant=variant.name)
            for plan in plans
            if _made_for(variant, plan, by_id[plan.device])
        ]
    found.sort(key=_risk)
    had = {(plan.route, plan.device, plan.precision) for plan in found if isinstance(plan, Plan)}
    return [answer for answer in found if not (isinstance(answer, Unsupported) and _had(answer, had))]


def _risk(answer: Plan | Unsupported) -> int:
    """What is tried first: fp32, which the others are held against, then variants, which have passed once already."""
    if isinstance(answer, Unsupported) or answer.precision == "fp32":
        return 0
    return 1 if answer.variant is not None else 2


def _plans_of(route: str, devices: Sequence[Device], model: Model, request: Request) -> Iterator[Plan]:
    """A route's plans for a variant; a program of PyTorch's is a variant only where some of it stays in fp32."""
    if not routes.runs_onnx(route) and not model.program_fp32:
        return
    for answer in routes.get(route).plans(devices, model, request):
        if isinstance(answer, Plan):
            yield answer


def _had(refusal: Unsupported, had: set[tuple[str, str, Precision]]) -> bool:
    if refusal.precision is None or refusal.device is None:
        return False
    return (refusal.route, refusal.device, refusal.precision) in had


def wanted_files(devices: Sequence[Device], model: Model, request: Request) -> tuple[Wanted, ...]:
    """What some route would run here as a file in a lower precision, or as a program of which parts stay in fp32.

    Raises:
        InputError: int8 is asked for without data.
    """
    if model.precision != "fp32":
        return ()
    by_id = {device.id: device for device in devices}
    found = []
    for precision in request.precisions:
        if precision == "fp32":
            continue
        if precision == "int8" and request.data.path is None:
            raise InputError(
                "--precision int8 needs data to calibrate on", "give --data, and --labels where you can"
            )
        asked = replace(request, precisions=(precision,))
        file = replace(model, precision=precision, exported_program=None)
        for name in request.routes or routes.names():
            seen = file if routes.runs_onnx(name) else model
            for answer in routes.get(name).plans(devices, seen, asked):
                if isinstance(answer, Plan) and answer.precision == precision:
                    found.append(Wanted(precision=precision, route=name, device=by_id[answer.device]))
    return tuple(found)


def models_of(model: Model, made: Sequence[Variant]) -> dict[str | None, Model]:
    """The model by the name of a variant, None for itself; with the PyTorch program where that can be lowered alike."""
    found: dict[str | None, Model] = {None: model}
    for variant in made:
        with_program = for_torch(model, variant)
        found[variant.name] = variant.model if isinstance(with_program, Unsupported) else with_program
    return found


def _made_for(variant: Variant, plan: Plan, device: Device) -> bool:
    """Whether a variant has the types that are fast on that route and device."""
    if variant.precision != "int8":
        return True
    types = target(device, plan.route)
    return not isinstance(types, Unsupported) and types.name == variant.target
