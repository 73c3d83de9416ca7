"""Kernels compiled for GPUs that are not here, held to rules: no scratch, no spills, enough waves, LDS that fits."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from wavefit.device import catalogue
from wavefit.errors import InputError
from wavefit.kernels import code_object, occupancy
from wavefit.kernels.cache import Cache, Kept
from wavefit.kernels.code_object import KernelResources
from wavefit.kernels.compile import DEADLINE_S, OPTIONS, Failed, compile_source
from wavefit.kernels.occupancy import Occupancy
from wavefit.kernels.toolchain import Toolchain
from wavefit.schema import Struct

TARGETS = ("gfx90c", "gfx1030", "gfx1035", "gfx1103", "gfx1150", "gfx1151", "gfx906", "gfx90a", "gfx942")
"""The integrated and discrete GPUs that the engine is made for."""

LEAST_WAVES = 4.0

Say = Callable[[str], None]


class Source(Struct, frozen=True, kw_only=True):
    """OpenCL C to look at.

    Args:
        name: for people: "gemm 64x64 of MatMul 512x512x512".
        text: the source.
        kernel: the one kernel in it that is meant; None: all.
        work_group: that it is launched with; None: what it requires or allows.
    """

    name: str
    text: str
    kernel: str | None = None
    work_group: int | None = None


class Row(Struct, frozen=True, kw_only=True):
    """One kernel on one target."""

    name: str
    target: str
    kernel: str | None  # None: nothing was compiled
    resources: KernelResources | None = None
    occupancy: Occupancy | None = None
    problems: tuple[str, ...] = ()  # rules that it breaks, or why it does not compile

    @property
    def good(self) -> bool:
        return not self.problems


def check_targets(targets: Iterable[str]) -> tuple[str, ...]:
    """The targets in lower case.

    Raises:
        InputError: the catalogue lacks one.
    """
    found = tuple(dict.fromkeys(each.strip().lower() for each in targets))
    for gfx in found:
        if catalogue.target(gfx) is None:
            catalogue.device_of(gfx)  # raises, and lists what there is
            raise InputError(f"{gfx!r} is no compiler target", "name one as the compiler does: gfx1103")
    return found


def every(sources: Iterable[Source], targets: Sequence[str]) -> list[tuple[Source, str]]:
    """Each source on each target."""
    return [(source, target) for source in sources for target in targets]


def audit(
    jobs: Sequence[tuple[Source, str]], toolchain: Toolchain, say: Say, cache: Cache | None = None
) -> list[Row]:
    """Compiles sources for targets, as many at a time as there are cores, each text once for a target.

    Returns:
        Rows in the order of ``jobs``.
    """
    cache = cache or Cache()
    distinct = list(dict.fromkeys((source.text, target) for source, target in jobs))

    def work(job: tuple[str, str]) -> Kept:
        return compiled(job[0], job[1], toolchain, cache)

    found: dict[tuple[str, str], Kept] = {}
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for number, (job, kept) in enumerate(zip(distinct, pool.map(work, distinct), strict=True), 1):
            found[job] = kept
            say(f"compiled {number} of {len(distinct)}")
    return [row for source, target in jobs for row in rows_of(source, target, found[source.text, target])]


def compiled(source: str, target: str, toolchain: Toolchain, cache: Cache) -> Kept:
    """The kernels of a source for a target, from the cache where they are in it."""
    key = cache.key(source, target, toolchain, OPTIONS)
    kept = cache.get(key)
    if kept is not None:
        return kept
    made = compile_source(source, target, toolchain, deadline_s=DEADLINE_S)
    if isinstance(made, Failed):
        kept = Kept(failed=made.reason)
        if made.kind != "refused":  # a timeout says as much of this machine as of the kernel
            return kept
    else:
        kept = Kept(kernels=code_object.read(made.elf, f"the code object for {target}", made.assembly))
    cache.put(key, kept)
    return kept


def rows_of(source: Source, target: str, kept: Kept) -> list[Row]:
    if kept.failed is not None:
        problem = f"does not compile: {kept.failed}"
        return [Row(name=source.name, target=target, kernel=None, problems=(problem,))]
    meant = [each for each in kept.kernels if source.kernel in (None, each.name)]
    if not meant:
        problem = f"there is no kernel {source.kernel!r}" if source.kernel else "there is no kernel in it"
        return [Row(name=source.name, target=target, kernel=None, problems=(problem,))]
    return [_judged(source, target, each) for each in meant]


def _judged(source: Source, target: str, kernel: KernelResources) -> Row:
    facts = catalogue.target(target)
    assert facts is not None
    held = occupancy.of(kernel, facts, source.work_group)
    return Row(
        name=source.name,
        target=target,
        kernel=kernel.name,
        resources=kernel,
        occupancy=held,
        problems=tuple(problems(kernel, held, facts.lds_bytes, source.work_group)),
    )


def problems(
    kernel: KernelResources,
    held: Occupancy | None,
    lds_bytes: int,
    work_group: int | None = None,
    least_waves: float = LEAST_WAVES,
) -> list[str]:
    """The rules that a kernel breaks, each as a clause."""
    found = []
    if kernel.lds_bytes > lds_bytes:
        found.append(f"LDS of {kernel.lds_bytes} bytes, and a work-group may take {lds_bytes}")
    if kernel.scratch_bytes:
        found.append(f"{kernel.scratch_bytes} bytes of scratch memory a work-item")
    if kernel.vgpr_spills or kernel.sgpr_spills:
        found.append(f"{kernel.vgpr_spills} VGPRs and {kernel.sgpr_spills} SGPRs spilled")
    if work_group is not None and work_group > kernel.work_group:
        found.append(f"a work-group of {work_group}, and it is compiled for at most {kernel.work_group}")
    if held is not None and held.waves < least_waves and kernel.lds_bytes <= lds_bytes:
        found.append(f"{held.waves:g} waves a SIMD (bound by {held.bound}), fewer than {least_waves:g}")
    return found
