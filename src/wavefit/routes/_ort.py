"""What the ONNX Runtime routes share: a session that really has its provider, and its placement."""

from __future__ import annotations

import importlib.metadata
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from wavefit.errors import RouteError
from wavefit.routes.session import Arrays, Session
from wavefit.schema import Model, NodeTime, Placement, ProviderShare

if TYPE_CHECKING:
    import onnxruntime

PACKAGES = (
    "onnxruntime",
    "onnxruntime-migraphx",
    "onnxruntime-rocm",
    "onnxruntime-webgpu",
    "onnxruntime-directml",
    "onnxruntime-gpu",
    "onnxruntime-openvino",
)
"""Packages that install the same folder ``onnxruntime``: the one installed last wins, the others are broken by it."""

CPU = "CPUExecutionProvider"
_CPU_NODES_SHOWN = 10


def installed() -> dict[str, str]:
    """The ONNX Runtime packages of this environment and their versions."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


class OrtSession(Session):
    """An ONNX Runtime session that runs on ``provider`` and nowhere else in silence.

    Args:
        model: its inputs and outputs.
        path: the .onnx file to open.
        provider: the execution provider that must be there; nodes that it does not take run on the CPU provider and
            are shown by :meth:`placement`.
        provider_options: for that provider.
        session_options: called to make fresh options (a profiled session needs its own).
        workdir: the profile is written there.

    Raises:
        RouteError: ONNX Runtime refused the model, or opened it without that provider.
    """

    def __init__(
        self,
        model: Model,
        path: Path,
        provider: str,
        provider_options: Mapping[str, Any],
        session_options: Any,
        workdir: Path,
    ) -> None:
        super().__init__(model.inputs, model.outputs)
        self._path = path
        self._provider = provider
        self._provider_options = dict(provider_options)
        self._make_options = session_options
        self._workdir = workdir
        self._session: Any = self._open(session_options())
        self._last_inputs: Mapping[str, np.ndarray] | None = None
        self._names = [spec.name for spec in model.outputs]

    def _open(self, options: onnxruntime.SessionOptions) -> onnxruntime.InferenceSession:
        import onnxruntime as ort

        providers = [(self._provider, self._provider_options)]
        if self._provider != CPU:
            providers.append((CPU, {}))
        with translated(f"{self._provider} could not open the model"):
            session = ort.InferenceSession(
                str(self._path), options, providers=providers, enable_fallback=0
            )
        if self._provider not in session.get_providers():
            raise RouteError(
                f"ONNX Runtime opened the model without {self._provider} (it has {', '.join(session.get_providers())})"
            )
        return session

    def _run_impl(self, inputs: Mapping[str, np.ndarray]) -> Arrays:
        self._last_inputs = inputs
        try:
            return dict(zip(self._names, self._session.run(self._names, inputs), strict=True))
        except _ort_errors() as error:
            raise RouteError(f"{self._provider} failed while running: {first_line(error)}") from error

    def _placement_impl(self) -> Placement | None:
        if self._last_inputs is None:
            return None
        options = self._make_options()
        options.enable_profiling = True
        options.profile_file_prefix = str(self._workdir / "profile")
        session = self._open(options)
        for _ in range(2):
            session.run(self._names, self._last_inputs)
        path = Path(session.end_profiling())
        return read_profile(json.loads(path.read_text()), runs=2)

    def _close_impl(self) -> None:
        self._session = None


def read_profile(events: Sequence[Mapping[str, Any]], runs: int) -> Placement:
    """Nodes and time by provider, from ONNX Runtime's profile of ``runs`` runs. Times are of one run, in seconds."""
    time_us: dict[str, float] = defaultdict(float)
    node_of: dict[str, tuple[str, str]] = {}
    for event in events:
        provider = event.get("args", {}).get("provider")
        if event.get("cat") != "Node" or not provider or not event["name"].endswith("_kernel_time"):
            continue
        name = event["name"].removesuffix("_kernel_time")
        node_of[name] = (event["args"].get("op_name", "?"), provider)
        time_us[name] += event["dur"]
    nodes: dict[str, list[str]] = defaultdict(list)
    for name, (_, provider) in node_of.items():
        nodes[provider].append(name)
    shares = [
        ProviderShare(provider=provider, nodes=len(names), time_s=sum(time_us[name] for name in names) / runs / 1e6)
        for provider, names in nodes.items()
    ]
    on_cpu = sorted(nodes.get(CPU, ()), key=lambda name: -time_us[name])[:_CPU_NODES_SHOWN]
    return Placement(
        providers=tuple(sorted(shares, key=lambda share: -(share.time_s or 0))),
        cpu_nodes=tuple(
            NodeTime(name=name, op=node_of[name][0], provider=CPU, time_s=time_us[name] / runs / 1e6) for name in on_cpu
        ),
        source="onnxruntime profile",
    )


class translated:
    """Turns what ONNX Runtime raises into a RouteError that starts with ``what``."""

    def __init__(self, what: str) -> None:
        self.what = what

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, _ort_errors()):
            raise RouteError(f"{self.what}: {first_line(error)}") from error


def first_line(error: BaseException) -> str:
    """The first line of a message, without ONNX Runtime's status prefix."""
    text = str(error).strip().splitlines() or [type(error).__name__]
    return text[0].removeprefix("[ONNXRuntimeError] : ")


def _ort_errors() -> tuple[type[BaseException], ...]:
    """Everything that ONNX Runtime's binding raises; its own classes share no base but Exception."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    own = tuple(kind for kind in vars(state).values() if isinstance(kind, type) and issubclass(kind, Exception))
    return (*own, RuntimeError, ValueError)


