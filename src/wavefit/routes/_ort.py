"""What the ONNX Runtime routes share: a session that really has its provider, and its placement."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec
import numpy as np

from wavefit.errors import RouteError
from wavefit.model.prove import runtime_errors
from wavefit.model.shapes import bind
from wavefit.routes._native import NativeOutput, explain, first_line
from wavefit.routes._packages import installed, version
from wavefit.routes._profile import read_profile
from wavefit.routes.session import Arrays, Session
from wavefit.schema import Device, Model, Placement, Plan, Precision, Request, TensorSpec, Unsupported

__all__ = ["CPU", "OrtSession", "Provider", "installed", "read_profile", "version"]

CPU = "CPUExecutionProvider"
Problem = tuple[str, str]
"""Why something cannot be used, and the fix."""

_PROFILED_RUNS = 2
_ERRORS_ONLY = 3


@dataclass(frozen=True)
class Provider:
    """How a session gets its provider.

    Args:
        name: as ONNX Runtime lists it: ``MIGraphXExecutionProvider``.
        options: for it.
        configure: sets session options (an ``onnxruntime.SessionOptions``) that the provider demands.
        attach: adds a plug-in provider to the session options; None for one that is built in.
        shapes: inputs' shapes that the session is compiled for; empty where any shape that fits the model runs.
    """

    name: str
    options: Mapping[str, str] = field(default_factory=dict)
    configure: Callable[[Any], None] | None = None
    attach: Callable[[Any], None] | None = None
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


class OrtSession(Session):
    """An ONNX Runtime session that runs on its provider and nowhere else in silence.

    Nodes that the provider does not take run on the CPU and are shown by :meth:`placement`.

    Args:
        model: its file, inputs and outputs.
        provider: the provider that must be there.
        workdir: profiles are written there.

    Raises:
        RouteError: ONNX Runtime refused the model, or opened it without the provider.
    """

    def __init__(self, model: Model, provider: Provider, workdir: Path) -> None:
        super().__init__(_inputs(model, provider.shapes), model.outputs)
        self._model = model
        self._provider = provider
        self._workdir = workdir
        self._names = [spec.name for spec in model.outputs]
        self._last_inputs: Mapping[str, np.ndarray] | None = None
        self._session: Any = self._open()

    def _open(self, profile: Path | None = None) -> Any:
        import onnxruntime as ort

        ort.disable_telemetry_events()  # a measurement talks to nobody
        providers = [] if self._provider.attach else [(self._provider.name, dict(self._provider.options))]
        if self._provider.name != CPU and providers:
            providers.append((CPU, {}))
        native = NativeOutput()
        with translated(self._provider.name, native), native:
            options = self._session_options(profile)
            session = ort.InferenceSession(
                self._model.path, options, providers=providers or None, enable_fallback=0
            )
        has = session.get_providers()
        if self._provider.name not in has:
            said = explain(native.text)
            reason = said[0] if said else f"only {', '.join(has)} came up"
            fix = said[1] if said else "look at which build is installed: pip list | grep onnxruntime"
            raise RouteError(f"{self._provider.name} could not start: {reason}", fix)
        return session

    def _session_options(self, profile: Path | None) -> Any:
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.log_severity_level = _ERRORS_ONLY
        for name, size in _sizes(self._model, self._provider.shapes).items():
            options.add_free_dimension_override_by_name(name, size)
        if profile is not None:
            options.enable_profiling = True
            options.profile_file_prefix = str(profile)
        for prepare in (self._provider.configure, self._provider.attach):
            if prepare is not None:
                prepare(options)
        return options

    def _run_impl(self, inputs: Mapping[str, np.ndarray]) -> Arrays:
        self._last_inputs = inputs
        with translated(self._provider.name):
            return dict(zip(self._names, self._session.run(self._names, inputs), strict=True))

    def _placement_impl(self) -> Placement | None:
        """Raises:
        RouteError: the model has nodes and the provider ran none of them.
        """
        if self._last_inputs is None:
            return None
        session = self._open(profile=self._workdir / "profile")
        with translated(self._provider.name):
            for _ in range(1 + _PROFILED_RUNS):
                session.run(self._names, self._last_inputs)
        path = Path(session.end_profiling())
        placement = read_profile(json.loads(path.read_text()), _PROFILED_RUNS)
        path.unlink()
        check_used(placement, self._provider.name)
        return placement

    def _close_impl(self) -> None:
        self._session = None
        self._last_inputs = None


def plan(route: str, device: Device, model: Model, request: Request, precision: Precision) -> Plan:
    """A plan at the first of the request's batches."""
    batch = request.batches[0]
    shapes = bind(model, batch, request.sizes)
    return Plan(route=route, device=device.id, precision=precision, batch=batch, shapes=shapes)


def precision_problem(
    provider: str, model: Model, precision: Precision, files: Collection[Precision]
) -> Problem | None:
    """Why a provider without switches, which computes as a file's types say, cannot run a precision.

    Args:
        files: precisions of files that it computes in themselves.
    """
    if precision not in files:
        return f"{provider} does not compute in {precision}", f"use --precision {' or '.join(files)}"
    if precision != model.precision:
        return (
            f"{provider} runs a file as it is, and this one is {model.precision}",
            f"give one in {precision}",
        )
    return None


def refused(route: str, device: Device, problem: Problem, precision: Precision) -> Unsupported:
    """The refusal of one precision on one device."""
    return Unsupported(route=route, device=device.id, reason=problem[0], fix=problem[1], precision=precision)


def refuse(problem: Problem | None) -> None:
    """Raises:
    RouteError: there is a problem.
    """
    if problem is not None:
        raise RouteError(*problem)


def check_used(placement: Placement, provider: str) -> None:
    """Raises:
    RouteError: nodes ran, and none of them on ``provider``.
    """
    if placement.providers and placement.on(provider) == 0:
        others = ", ".join(
            f"{share.nodes} on {share.provider}" for share in placement.providers if share.nodes
        )
        raise RouteError(
            f"{provider} took none of the model's nodes ({others})",
            "use --route ort_cpu or another GPU route",
        )


class translated:
    """Turns what ONNX Runtime raises into a RouteError that names the cause where it is known."""

    def __init__(self, provider: str, native: NativeOutput | None = None) -> None:
        self._provider = provider
        self._native = native

    def __enter__(self) -> translated:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None or not isinstance(error, runtime_errors()):
            return
        said = explain(str(error)) or (explain(self._native.text) if self._native else None)
        if said:
            raise RouteError(f"{self._provider} could not start: {said[0]}", said[1]) from error
        what = "could not open the model" if self._native else "failed while running"
        raise RouteError(f"{self._provider} {what}: {first_line(error)}") from error


def _inputs(model: Model, shapes: Mapping[str, tuple[int, ...]]) -> tuple[TensorSpec, ...]:
    """The model's inputs, with the shapes that a session is compiled for in place of symbolic ones."""
    return tuple(
        msgspec.structs.replace(spec, shape=shapes.get(spec.name, spec.shape)) for spec in model.inputs
    )


def _sizes(model: Model, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """The size of every named dimension."""
    return {
        dim: size
        for spec in model.inputs
        if spec.name in shapes and spec.shape is not None
        for dim, size in zip(spec.shape, shapes[spec.name], strict=True)
        if isinstance(dim, str)
    }
