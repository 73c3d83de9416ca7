"""What the engine's route opens: one program on an OpenCL device, or stages of it and of the CPU in turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Protocol

import numpy as np
from msgspec.structs import replace

from wavefit.device.user_cache import user_cache
from wavefit.routes._ort import CPU, OrtSession, Provider
from wavefit.routes.session import Arrays, Session
from wavefit.schema import Model, Placement, Plan, ProviderShare, TensorSpec

if TYPE_CHECKING:
    from wavefit.native.partition import Partition, Stage
    from wavefit.native.program import Program


class Executor(Protocol):
    """What the engine's executors of all languages offer."""

    program: Program

    def run(self, inputs: Mapping[str, np.ndarray]) -> Arrays: ...
    def stream(self, batches: Iterator[Mapping[str, np.ndarray]]) -> Iterator[Arrays]: ...
    @property
    def device_bytes(self) -> int: ...
    def close(self) -> None: ...


PROVIDER = "native OpenCL"
LIBRARY = "PyTorch library"  # kernels that are not the engine's, where tuning found them faster, or has none
_CPU_NODES_SHOWN = 10


class NativeSession(Session):
    """A program of the engine on a device; its shapes are the plan's.

    Args:
        model: its inputs and outputs.
        plan: whose shapes were compiled.
        executor: holds the program on its device.
        provider: what a placement calls the engine.
    """

    def __init__(self, model: Model, plan: Plan, executor: Executor, provider: str = PROVIDER) -> None:
        super().__init__(_specs(model.inputs, plan.shapes), model.outputs)
        self._executor, self._provider = executor, provider

    def _run_impl(self, inputs: Mapping[str, np.ndarray]) -> Arrays:
        return self._executor.run(inputs)

    def _stream_impl(self, batches: Iterator[Mapping[str, np.ndarray]]) -> Iterator[Arrays]:
        return self._executor.stream(batches)

    def _placement_impl(self) -> Placement | None:
        nodes: dict[str, set[str]] = {}
        for step in self._executor.program.steps:
            called = step.kernel.language == "torch"
            nodes.setdefault(LIBRARY if called else self._provider, set()).update(step.source)
        shares = tuple(ProviderShare(provider=name, nodes=len(each)) for name, each in nodes.items())
        return Placement(providers=shares, source="the engine's program")

    def _device_peak_bytes_impl(self) -> int | None:
        return self._executor.device_bytes

    def _close_impl(self) -> None:
        self._executor.close()


class StagedSession(Session):
    """Stages one after another, each on the engine or on ONNX Runtime's CPU provider.

    Args:
        model: its inputs and outputs.
        plan: whose shapes were compiled.
        partition: the stages.
        programs: of the engine's stages, in order.
        device: a ``pyopencl.Device``.
        workdir: the CPU's stages are written there.
    """

    def __init__(
        self,
        model: Model,
        plan: Plan,
        partition: Partition,
        programs: Sequence[Program],
        device: object,
        workdir: Path,
    ) -> None:
        from wavefit.native.opencl.executor import Executor as OpenclExecutor

        super().__init__(_specs(model.inputs, plan.shapes), model.outputs)
        self._constants = partition.constants
        self._stages: list[Session] = []
        self._nodes: Counter[str] = Counter()  # of the model, by provider
        self._seconds: dict[str, float] = {}  # of the latest run, by provider
        compiled = iter(programs)
        for number, stage in enumerate(partition.stages):
            part = _part(model, stage, workdir / f"stage{number}.onnx")
            if stage.kind == "engine":
                own = replace(plan, shapes=stage.shapes)
                executor = OpenclExecutor(next(compiled), device, user_cache() / "opencl")
                self._stages.append(NativeSession(part, own, executor))
            else:
                _save(stage, Path(part.path))
                self._stages.append(OrtSession(part, Provider(CPU), workdir))
            self._nodes[_provider(self._stages[-1])] += stage.nodes

    def _run_impl(self, inputs: Mapping[str, np.ndarray]) -> Arrays:
        values, seconds = {**self._constants, **inputs}, {PROVIDER: 0.0, CPU: 0.0}
        for stage in self._stages:
            started = perf_counter()
            values.update(stage.run({spec.name: values[spec.name] for spec in stage.inputs}))
            seconds[_provider(stage)] += perf_counter() - started
        self._seconds = seconds
        return {spec.name: values[spec.name] for spec in self.outputs}

    def _placement_impl(self) -> Placement | None:
        if not self._seconds:
            return None
        placements = [stage.placement() for stage in self._stages if _provider(stage) == CPU]
        on_cpu = [node for placement in placements if placement is not None for node in placement.cpu_nodes]
        return Placement(
            providers=tuple(
                ProviderShare(provider=name, nodes=count, time_s=self._seconds[name])
                for name, count in self._nodes.items()
            ),
            cpu_nodes=tuple(sorted(on_cpu, key=lambda node: -(node.time_s or 0.0))[:_CPU_NODES_SHOWN]),
            source="the model's stages, the clock round each, onnxruntime profile",
        )

    def _device_peak_bytes_impl(self) -> int | None:
        return sum(stage.device_peak_bytes() or 0 for stage in self._stages)

    def _close_impl(self) -> None:
        for stage in self._stages:
            stage.close()


def _provider(stage: Session) -> str:
    return CPU if isinstance(stage, OrtSession) else PROVIDER


def _specs(specs: tuple[TensorSpec, ...], shapes: Mapping[str, tuple[int, ...]]) -> tuple[TensorSpec, ...]:
    return tuple(replace(spec, shape=shapes[spec.name]) for spec in specs)


def _part(model: Model, stage: Stage, path: Path) -> Model:
    """A stage as a model: its file, inputs and outputs."""
    from wavefit.native.import_onnx import dtype_of

    inputs = tuple(
        TensorSpec(name=str(value.name), dtype=dtype_of(value), shape=stage.shapes.get(str(value.name)))
        for value in stage.model.graph.inputs
    )
    outputs = tuple(TensorSpec(name=name, dtype="unknown", shape=None) for name in stage.outputs)
    return replace(model, path=str(path), inputs=inputs, outputs=outputs)


def _save(stage: Stage, path: Path) -> None:
    import onnx_ir as ir

    ir.save(stage.model, path, external_data=f"{path.name}.data")
