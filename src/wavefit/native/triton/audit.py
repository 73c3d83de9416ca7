"""The Triton kernels of a model's program compiled for AMD targets that are not here, and held to rules.

No scratch memory, no spilled registers, LDS that the target has, matrix instructions in every product of 16 or 8 bits,
and loads of 128 bits in every product. Occupancy is told, and not judged: matrix instructions hide latency with few
waves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod
from pathlib import Path

from msgspec.structs import replace

from wavefit.device import catalogue
from wavefit.device.user_cache import user_cache
from wavefit.errors import InputError
from wavefit.kernels import audit as lab
from wavefit.kernels import code_object, occupancy
from wavefit.kernels.audit import Row, Say
from wavefit.native.engine import prepare
from wavefit.native.limits import for_matrix, of_gfx
from wavefit.native.operation import Kernel, Limits, Operation
from wavefit.native.triton.chooser import Chooser
from wavefit.native.triton.compile import compile_kernel
from wavefit.native.triton.compile import of_gfx as target_of
from wavefit.native.triton.compilers import compile_all
from wavefit.native.triton.kept import identity

TARGETS = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1103", "gfx1151", "gfx1201")
"""The GPUs with matrix units that the engine is made for."""

_DEADLINE_S = 3600.0
_LEAST_WAVES = 0.5  # of a SIMD: one work-group of two SIMDs' waves


def limits_of(gfx: str) -> Limits:
    """Of an AMD target, with the peaks of its matrix units.

    Raises:
        InputError: the catalogue has no such target.
    """
    return for_matrix(of_gfx(gfx), catalogue.device_of(gfx))


def of_operations(
    operations: Mapping[str, Operation], targets: Iterable[str]
) -> list[tuple[str, Kernel, str]]:
    """Names, kernels and targets of what each target would run without tuning."""
    jobs = []
    for target in targets:
        chooser = Chooser(limits_of(target))
        for name, operation in operations.items():
            made = chooser.build(operation)
            jobs += [(f"{made.template}: {name}", launch.kernel, target) for launch in made.launches]
    return jobs


def of_model(
    path: Path, shapes: Mapping[str, tuple[int, ...]], targets: Iterable[str], storage: str | None = None
) -> list[tuple[str, Kernel, str]]:
    """Names, kernels and targets of a model's program as it would be compiled for each target, each kernel once.

    Raises:
        InputError: the engine cannot run the model; the message names the first node that stands in the way.
    """
    jobs = []
    for target in targets:
        program = prepare(path, shapes, Chooser(limits_of(target)), storage)
        if isinstance(program, tuple):
            first = program[0]
            where = f"{first.op} node {first.node!r}"
            raise InputError(f"{path.name}: the engine cannot run {where}: {first.reason}", first.fix)
        seen: dict[str, tuple[str, Kernel, str]] = {}
        for step in program.steps:
            if step.kernel.language == "triton":
                seen.setdefault(identity(step.kernel), (f"{step.op} {step.node}", step.kernel, target))
        jobs += list(seen.values())
    return jobs


def audit(jobs: list[tuple[str, Kernel, str]], say: Say, cache: Path | None = None) -> list[Row]:
    """Compiles kernels for targets, as many at a time as there are cores; what was compiled before is kept.

    Returns:
        Rows in the order of ``jobs``.
    """
    folder = cache or user_cache() / "triton" / "audit"
    failed: dict[tuple[str, str], str] = {}
    for target in dict.fromkeys(target for _, _, target in jobs):
        kernels = [kernel for _, kernel, other in jobs if other == target]
        done = compile_all(kernels, target_of(target), folder, say, _DEADLINE_S)
        failed |= {(name, target): why for name, why in done.failed.items()}
    return [
        _row(name, kernel, target, folder, failed.get((identity(kernel), target)))
        for name, kernel, target in jobs
    ]


def _row(name: str, kernel: Kernel, target: str, folder: Path, why: str | None) -> Row:
    if why is not None:
        return Row(name=name, target=target, kernel=None, problems=(f"does not compile: {why}",))
    compiled = compile_kernel(kernel, target_of(target), folder)
    assembly = compiled.asm["amdgcn"]
    (found,) = code_object.read(compiled.asm["hsaco"], f"the code object for {target}", assembly)
    if compiled.metadata.shared > found.lds_bytes:  # Triton's is given at the launch
        found = replace(found, lds_bytes=int(compiled.metadata.shared))
    facts = catalogue.target(target)
    assert facts is not None
    work_group = prod(kernel.local_size) * kernel.options["num_warps"] * found.wave
    held = occupancy.of(found, facts, work_group)
    problems = lab.problems(found, held, facts.lds_bytes, work_group, _LEAST_WAVES)
    return Row(
        name=name,
        target=target,
        kernel=kernel.name,
        resources=found,
        occupancy=held,
        problems=(*problems, *_of_products(kernel, found.instructions)),
    )


def _of_products(kernel: Kernel, instructions: Mapping[str, int]) -> list[str]:
    """The rules for products that a kernel breaks."""
    if "tl.dot(" not in kernel.source:
        return []
    found = []
    if "ieee" not in kernel.source and not (instructions.get("mfma") or instructions.get("wmma")):
        found.append("no matrix instructions")
    if not instructions.get("load_128"):
        found.append("no loads of 128 bits")
    return found
