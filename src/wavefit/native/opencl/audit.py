"""The engine's kernels, as sources for the kernel lab's audit: what each target would run without tuning."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod
from pathlib import Path

from wavefit.errors import InputError
from wavefit.kernels.audit import Source
from wavefit.native import limits
from wavefit.native.engine import prepare
from wavefit.native.opencl import kernels
from wavefit.native.opencl.chooser import Chooser
from wavefit.native.operation import Kernel, Operation

Jobs = list[tuple[Source, str]]


def of_operations(operations: Mapping[str, Operation], targets: Iterable[str]) -> Jobs:
    """The kernels of every template that computes each operation, in its first configuration on each target."""
    jobs: Jobs = []
    for target in targets:
        held = limits.of_gfx(target)
        for name, operation in operations.items():
            for template in kernels.claiming(operation, held):
                made = kernels.get(template)
                config = next(iter(made.configurations(operation, held)))
                for launch in made.build(operation, config).launches:
                    jobs.append((source(f"{template}: {name}", launch.kernel), target))
    return jobs


def of_model(
    path: Path, shapes: Mapping[str, tuple[int, ...]], targets: Iterable[str], half: bool = False
) -> Jobs:
    """The kernels of a model's program as it would be compiled for each target, each once.

    Raises:
        InputError: the engine cannot run the model; the message names the first node that stands in the way.
    """
    jobs: Jobs = []
    for target in targets:
        program = prepare(path, shapes, Chooser(limits.of_gfx(target)), "float16" if half else None)
        if isinstance(program, tuple):
            first = program[0]
            where = f"{first.op} node {first.node!r}"
            raise InputError(f"{path.name}: the engine cannot run {where}: {first.reason}", first.fix)
        seen: dict[tuple[str, str], Source] = {}
        for step in program.steps:
            seen.setdefault(
                (step.kernel.source, step.kernel.name), source(f"{step.op} {step.node}", step.kernel)
            )
        jobs += [(each, target) for each in seen.values()]
    return jobs


def source(name: str, kernel: Kernel) -> Source:
    return Source(name=name, text=kernel.source, kernel=kernel.name, work_group=prod(kernel.local_size))
