"""The engine's kernels on the device at hand, against references: one file that says what this GPU makes of them.

The file is JSON lines, appended to and flushed before and after every case: a case that was begun and has no result
ended the process, or the machine. Run again with the same file, the test goes on where it stopped.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
from msgspec.structs import replace

from wavefit import child
from wavefit.child.main import Reporter
from wavefit.errors import InputError, RouteError
from wavefit.native import draw, limits, specimens
from wavefit.native.opencl import devices, kernels
from wavefit.native.operation import Config, Limits, Operation, View
from wavefit.native.reference import compute
from wavefit.schema import Device, Failure, Struct, fingerprint

TOLERANCES = {"float32": 1e-5, "float16": 2e-3, "int8": 5e-3, "uint8": 5e-3}
"""Relative L2 to the reference, by the type in which the output is stored.

Requantised bytes may be a quantum apart where fp32 rounds to the other side of a half; of numbers of :mod:`draw`'s size
that is 4 % of the places.
"""

_DEADLINE_S = 120.0  # of the cases of one template together
_SPREAD = 8  # configurations: the one taken without tuning, and this many-th

Say = Callable[[str], None]


class Head(Struct, frozen=True, kw_only=True, tag="head"):
    """The file's first line: where it was made."""

    wavefit: str
    device: Device
    platform: str
    name: str
    driver: str
    limits: Limits


class Begun(Struct, frozen=True, kw_only=True, tag="begun"):
    case: str


class Result(Struct, frozen=True, kw_only=True, tag="result"):
    """What came of one case. None: it got no so far."""

    case: str
    template: str
    config: Config
    verdict: Literal["right", "wrong", "refused", "crash", "timeout"]
    reason: str = ""
    error: float | None = None  # relative L2
    tolerance: float | None = None
    compile_s: float | None = None
    seconds: float | None = None  # device time of one run


class Summary(Struct, frozen=True, kw_only=True, tag="summary"):
    """The file's last line."""

    right: int
    not_right: tuple[str, ...]  # names of cases
    sentence: str


Line = Head | Begun | Result | Summary


class Case(Struct, frozen=True, kw_only=True):
    name: str  # unique: template, operation, number of the configuration
    template: str
    operation: str  # a key of specimens.odd()
    config: Config


class Task(Struct, frozen=True, kw_only=True):
    """What a child is told."""

    device: Device
    cases: tuple[Case, ...]
    file: str


class Done(Struct, frozen=True, kw_only=True):
    cases: int


def selftest(device: Device, file: Path, workdir: Path, say: Say, deadline_s: float = _DEADLINE_S) -> Summary:
    """Runs every template on a device, and leaves the file.

    Args:
        device: with an OpenCL runtime.
        file: is appended to where it is of the same device, driver and version.
        workdir: for temporary files.
        say: progress.
        deadline_s: of one template's cases.

    Raises:
        InputError: the file is something else, or of another device or driver.
        RouteError: OpenCL does not have the device.
    """
    head = _head(device)
    known = _resume(file, head)
    every = list(cases(head.limits))
    tell = _counted(every, say)
    for template, group in groupby(every, key=lambda case: case.template):
        left = [case for case in group if case.name not in known]
        while left:
            say(f"{template}: {len(known)} of {len(every)} done")
            task = Task(device=device, cases=tuple(left), file=str(file))
            function = "wavefit.native.opencl.selftest:run_cases"
            answer = child.run(function, task, Done, deadline_s, workdir, tell)
            known = _results(read(file))
            if isinstance(answer, Failure):
                known = _blame(file, left, known, answer)
            left = [case for case in left if case.name not in known]
    summary = summarise([known[case.name] for case in every], head.name)
    append(file, summary)
    return summary


def _counted(every: list[Case], say: Say) -> Say:
    """Adds to a case's name which of how many it is."""
    places = {case.name: place for place, case in enumerate(every, 1)}

    def tell(text: str) -> None:
        say(f"{text}, {places[text]} of {len(every)}" if text in places else text)

    return tell


def cases(held: Limits) -> Iterator[Case]:
    """Every template on every small operation that it computes, in two configurations, ordered by template."""
    operations = specimens.odd()
    for template in kernels.names():
        for name, operation in operations.items():
            if operation.op not in kernels.get(template).OPS or template not in kernels.claiming(
                operation, held
            ):
                continue
            configs = list(kernels.get(template).configurations(operation, held))
            for number in dict.fromkeys((0, min(_SPREAD, len(configs) - 1))):
                label = f"{template}: {name} #{number}"
                yield Case(name=label, template=template, operation=name, config=configs[number])


def run_cases(payload: Task, say: Reporter) -> Done:
    """In a child process: the cases, each written down as it begins and as it ends."""
    say.stage("open the device")
    cl_device = devices.find(payload.device)
    operations, file = specimens.odd(), Path(payload.file)
    for case in payload.cases:
        say.stage(case.name)
        append(file, Begun(case=case.name))
        append(file, _run(cl_device, case, operations[case.operation]))
    return Done(cases=len(payload.cases))


def _run(cl_device: Any, case: Case, operation: Operation) -> Result:
    import pyopencl as cl

    from wavefit.native.opencl import bench

    arrays = data(operation)
    try:
        got = bench.run(cl_device, case.template, operation, case.config, arrays)
    except (cl.Error, MemoryError) as error:
        reason = " ".join(str(error).split())[:500]
        return Result(
            case=case.name, template=case.template, config=case.config, verdict="refused", reason=reason
        )
    want = compute(operation, arrays)
    scale = float(np.linalg.norm(want)) or 1.0
    error_ = float(np.linalg.norm(got.output.astype(np.float64) - want)) / scale
    tolerance = TOLERANCES.get(operation.output.dtype, 0.0)
    reason = f"wrote {', '.join(got.trespasses)}" if got.trespasses else ""
    if not error_ <= tolerance:  # NaN is wrong
        off = "is NaN in places" if np.isnan(error_) else f"is off by {error_:.2g} (relative L2)"
        reason = "; ".join(each for each in (f"its output {off}", reason) if each)
    return Result(
        case=case.name,
        template=case.template,
        config=case.config,
        verdict="wrong" if reason else "right",
        reason=reason,
        error=None if np.isnan(error_) else error_,
        tolerance=tolerance,
        compile_s=got.compile_s,
        seconds=got.seconds,
    )


def data(operation: Operation, seed: int = 0) -> list[np.ndarray | None]:
    """Seeded inputs: normal numbers; all that 8 bits hold; indices within the axis that they pick from."""
    rng = np.random.default_rng(seed)

    def one(number: int, view: View) -> np.ndarray:
        drawn = draw.numbers(operation, number, view.size, rng)
        if drawn is not None:
            return drawn.reshape(view.shape)
        most = operation.input(0).shape[operation.attributes.get("axis", 0)]
        return rng.integers(0, most, view.shape).astype(view.dtype)

    return [None if view is None else one(number, view) for number, view in enumerate(operation.inputs)]


def summarise(results: list[Result], device: str) -> Summary:
    bad = [each for each in results if each.verdict != "right"]
    kinds = ", ".join(
        f"{sum(each.verdict == kind for each in bad)} {kind}"
        for kind in dict.fromkeys(each.verdict for each in bad)
    )
    right = len(results) - len(bad)
    if not bad:
        sentence = f"All {right} cases are right on {device}."
    else:
        first = f"{bad[0].case}: {bad[0].reason}"
        sentence = f"{right} of {len(results)} cases are right on {device}, {kinds}; the first: {first}."
    return Summary(right=right, not_right=tuple(each.case for each in bad), sentence=sentence)


# ---- The file -------------------------------------------------------------------------------------------------------


def append(file: Path, line: Line) -> None:
    """Writes a line, and has it on the disk before it returns: the next thing may end the machine."""
    with file.open("ab") as stream:
        stream.write(msgspec.json.encode(line) + b"\n")
        stream.flush()
        os.fsync(stream.fileno())


def read(file: Path) -> list[Line]:
    """The lines of a self-test's file; one that a crash has torn is left out.

    Raises:
        InputError: the file is none of these.
    """
    lines: list[Line] = []
    for text in file.read_bytes().splitlines():
        try:
            lines.append(msgspec.json.decode(text, type=Line))
        except msgspec.DecodeError:
            continue
    if not lines or not isinstance(lines[0], Head):
        raise InputError(f"{file} is no file of a self-test", "name another with --output")
    return lines


def _resume(file: Path, head: Head) -> dict[str, Result]:
    """The results that stand in the file; the case that was being run when it ended is a crash."""
    if not file.exists():
        append(file, head)
        return {}
    lines = read(file)
    if _identity(lines[0]) != _identity(head):
        raise InputError(
            f"{file} is of another device, driver or version of wavefit", "name another with --output"
        )
    known = _results(lines)
    last = lines[-1]
    if isinstance(last, Begun) and last.case not in known:
        reason = "the process or the machine ended while it ran"
        _write_off(file, last.case, "crash", reason)
    return _results(read(file))


def _identity(line: Line) -> str:
    assert isinstance(line, Head)
    return fingerprint(line.wavefit, line.platform, line.name, line.driver)


def _results(lines: list[Line]) -> dict[str, Result]:
    return {line.case: line for line in lines if isinstance(line, Result)}


def _blame(file: Path, left: list[Case], known: dict[str, Result], failure: Failure) -> dict[str, Result]:
    """Writes the case off that was being run, so that the next child goes on after it."""
    begun = [line.case for line in read(file) if isinstance(line, Begun)]
    open_ = next((name for name in reversed(begun) if name not in known), None)
    if open_ is None:  # it did not come as far as a case: nor would the next one
        if failure.kind == "interrupted":
            raise RouteError(f"the self-test was ended from outside: {failure.reason}")
        raise RouteError(f"{left[0].template}: {failure.stage}: {failure.reason}", failure.fix)
    if failure.kind == "interrupted":
        raise RouteError(
            f"the self-test was ended from outside: {failure.reason}", "run it again: it goes on"
        )
    _write_off(file, open_, "timeout" if failure.kind == "timeout" else "crash", failure.reason)
    return _results(read(file))


def _write_off(file: Path, name: str, verdict: Literal["crash", "timeout"], reason: str) -> None:
    template = name.split(":", 1)[0]
    append(file, Result(case=name, template=template, config={}, verdict=verdict, reason=reason))


def _head(device: Device) -> Head:
    cl_device = devices.find(device)
    return Head(
        wavefit=version("wavefit"),
        device=replace(device, sysfs=None, sensors=None, partitions=()),  # no serial numbers in what is sent
        platform=cl_device.platform.name.strip(),
        name=cl_device.name.strip(),
        driver=cl_device.driver_version.strip(),
        limits=limits.of_opencl(cl_device, device),
    )
