"""The routes: every way to run a model, one file each, found by its name.

A route is a module ``routes/NAME.py`` (no leading underscore) with what :class:`Route` lists. Adding one edits
nothing else. A route imports its runtime only when it is used: listing the routes imports no runtime.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, cast

from wavefit.routes.session import Session
from wavefit.schema import Device, Model, Plan, Prediction, Request, Unsupported


class Route(Protocol):
    """What a route's module offers."""

    def plans(self, devices: Sequence[Device], model: Model, request: Request) -> list[Plan | Unsupported]:
        """Every way in which this route would run the model here, at the first of the request's batches.

        Cheap: looks at installed packages and the given devices, opens no session and imports no runtime that could
        hang. A route that cannot work here answers with at least one Unsupported. A precision that it cannot run
        natively is an Unsupported as well, never a silent fp32.
        """
        ...

    def open(self, plan: Plan, model: Model, device: Device, workdir: Path) -> Session:
        """Opens a session. Called in a child process only. May write below ``workdir``, which is deleted afterwards.

        Raises:
            RouteError: the runtime refused, or would have run somewhere else.
        """
        ...

    def versions(self) -> dict[str, str]:
        """Versions of the packages and drivers that a result of this route depends on. Imports no runtime."""
        ...


def names() -> list[str]:
    """The routes that this build of wavefit knows."""
    return sorted(entry.name for entry in pkgutil.iter_modules(__path__) if not _is_helper(entry.name))


def get(name: str) -> Route:
    """The route of that name.

    Raises:
        KeyError: there is none.
    """
    if name not in names():
        raise KeyError(name)
    return cast(Route, importlib.import_module(f"{__name__}.{name}"))


def runs_onnx(name: str) -> bool:
    """Whether a route opens ``Model.path``; the others set ``RUNS_EXPORTED_PROGRAM`` and open the .pt2 beside it."""
    return not getattr(get(name), "RUNS_EXPORTED_PROGRAM", False)


def refine(model: Model) -> Callable[[Device, Plan, Prediction], Prediction]:
    """What routes with kernels of their own make of the planner's predictions for a model; they offer ``predict``."""

    def refined(device: Device, plan: Plan, general: Prediction) -> Prediction:
        own = getattr(get(plan.route), "predict", None)
        return general if own is None else cast(Prediction, own(plan, model, device, general))

    return refined


def open_told(
    plan: Plan,
    model: Model,
    device: Device,
    workdir: Path,
    say: Callable[[str], None],
    bundle: Path | None = None,
) -> Session:
    """Opens a plan; a route that compiles kernels itself offers the same, to say how far it is.

    Args:
        bundle: the folder of the bundle that the plan is of: what it carries is taken from there.
    """
    route = get(plan.route)
    own = getattr(route, "open_told", None)
    if own is None:
        return route.open(plan, model, device, workdir)
    return cast(Session, own(plan, model, device, workdir, say, bundle))


def carries(name: str) -> bool:
    """Whether a route has a bundle carry what it compiled: opening another plan of the bundle then compiles nothing."""
    return hasattr(get(name), "carried")


def carried(plan: Plan, model: Model, device: Device) -> dict[str, Path]:
    """Files that a bundle takes along for a plan, by their names in it: what a route compiled, where it says so."""
    own = getattr(get(plan.route), "carried", None)
    return {} if own is None else cast("dict[str, Path]", own(plan, model, device))


def tunes(name: str) -> bool:
    """Whether a route has kernels that can be tuned; see :mod:`wavefit.routes._tuning`."""
    return bool(getattr(get(name), "TUNES", False))


def _is_helper(name: str) -> bool:
    return name.startswith("_") or name == "session"
