"""MLPerf's load generator: one test run through it, and what it says of that test.

LoadGen (https://github.com/mlcommons/inference/tree/master/loadgen) decides when queries arrive and whether a run
counts; wavefit only answers the queries. It writes its logs into a folder that is removed again.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from wavefit.errors import RouteError
from wavefit.schema import ScenarioName

Issue = Callable[[list[int], list[int]], None]
"""Called with the ids of the samples to answer and their places in the sample library."""

_SAMPLE = re.compile(r'"name":"Sample".*"ph":"b".*"sample_seq":(\d+).*"complete_ns":(\d+)')
_MORE_LOAD = "Increase the target QPS so the loadgen pre-generates more queries."


@dataclass(frozen=True)
class Test:
    """What LoadGen is asked for.

    Args:
        settings: fields of LoadGen's TestSettings.
        library: how many samples there are to choose from.
        trace: whether LoadGen keeps each sample's latency.
    """

    scenario: ScenarioName
    settings: Mapping[str, int | float]
    library: int
    trace: bool = False


@dataclass(frozen=True)
class Report:
    """What LoadGen says of a test.

    Args:
        valid: its verdict.
        reasons: why it is not valid, in LoadGen's words.
        results: the ``result_…`` entries of its log.
        latencies_s: of every sample, in the order of arrival, from the time at which it was due; with a trace only.
    """

    valid: bool
    reasons: tuple[str, ...]
    results: Mapping[str, Any]
    latencies_s: tuple[float, ...] = ()


class Kept:
    """Keeps what is raised in its ``with`` block and raises it later.

    Nothing may be raised into LoadGen: an exception that crosses its C++ threads leaves its logger writing to closed
    files. So whatever a callback raises waits here until the test is over.
    """

    def __init__(self) -> None:
        self.error: BaseException | None = None

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if self.error is None:
            self.error = error
        return True

    def raise_again(self) -> None:
        """Raises the first error that was kept, if any."""
        if self.error is not None:
            raise self.error


def load_generator() -> Any:
    """The module ``mlperf_loadgen``.

    Raises:
        RouteError: it is not installed.
    """
    try:
        import mlperf_loadgen
    except ImportError as error:
        raise RouteError(
            f"MLPerf LoadGen cannot be imported ({error})",
            "pip install 'wavefit[loadgen]'; where it has no wheel (Python 3.14) pip compiles it: "
            "install a C++ compiler and Python's headers first",
        ) from error
    return mlperf_loadgen


def completer() -> Callable[[list[int]], None]:
    """A function that tells LoadGen that the samples of those ids are answered."""
    generator = load_generator()
    response, complete = generator.QuerySampleResponse, generator.QuerySamplesComplete

    def tell(ids: list[int]) -> None:
        complete([response(sample, 0, 0) for sample in ids])

    return tell


def run(test: Test, issue: Issue) -> Report:
    """Runs one test and returns when it is over.

    Args:
        issue: called in this thread; it must not raise (see :class:`Kept`), and each of its samples must be completed.

    Raises:
        RouteError: LoadGen is not installed, or wrote no result.
    """
    generator = load_generator()
    settings = generator.TestSettings()
    settings.mode = generator.TestMode.PerformanceOnly
    settings.scenario = getattr(generator.TestScenario, test.scenario)
    for name, value in test.settings.items():
        setattr(settings, name, value)
    system = generator.ConstructFastSUT(issue, _no_flush)
    library = generator.ConstructQSL(test.library, test.library, _nothing, _nothing)
    try:
        with tempfile.TemporaryDirectory(prefix="wavefit-loadgen-") as folder:
            # The audit file is named so that an audit.config in the current folder changes nothing.
            no_audit = str(Path(folder) / "no-audit.config")
            logs = _logs(generator, folder, test.trace)
            generator.StartTestWithLogSettings(system, library, settings, logs, no_audit)
            return _read(Path(folder), test.trace)
    finally:
        generator.DestroyFastSUT(system)
        generator.DestroyQSL(library)


def _no_flush() -> None:
    return None


def _nothing(samples: list[int]) -> None:
    return None


def _logs(generator: Any, folder: str, trace: bool) -> Any:
    output = generator.LogOutputSettings()
    output.outdir = folder
    output.copy_summary_to_stdout = False
    output.copy_detail_to_stdout = False
    logs = generator.LogSettings()
    logs.log_output = output
    logs.enable_trace = trace
    return logs


def _read(folder: Path, trace: bool) -> Report:
    entries = read_detail((folder / "mlperf_log_detail.txt").read_text())
    found = {entry["key"]: entry["value"] for entry in entries}
    if "result_validity" not in found:
        raise RouteError("MLPerf LoadGen wrote no result", f"is there space left in {folder.parent}?")
    valid = found["result_validity"] == "VALID"
    latencies = read_trace((folder / "mlperf_log_trace.json").read_text()) if trace else ()
    results = {key: value for key, value in found.items() if key.startswith("result_")}
    return Report(valid, () if valid else why_invalid(entries), results, latencies)


def read_detail(text: str) -> list[dict[str, Any]]:
    """The entries of ``mlperf_log_detail.txt``: a mark and one JSON object a line."""
    mark = ":::MLLOG "
    return [json.loads(line.removeprefix(mark)) for line in text.splitlines() if line.startswith(mark)]


def read_trace(text: str) -> tuple[float, ...]:
    """Every sample's latency in seconds, in the order of arrival, from ``mlperf_log_trace.json``."""
    found = [
        (int(match[1]), int(match[2]) / 1e9) for match in map(_SAMPLE.search, text.splitlines()) if match
    ]
    return tuple(latency for _, latency in sorted(found))


def why_invalid(entries: list[dict[str, Any]]) -> tuple[str, ...]:
    """LoadGen's reasons: its errors, its recommendation, and what its early stopping lacked."""
    found = {entry["key"]: entry["value"] for entry in entries}
    errors = [_one_line(entry["value"]) for entry in entries if entry["key"].startswith("error_")]
    advice = str(found.get("result_invalid_reason", ""))
    if any("Too many outstanding queries" in error for error in errors):
        advice = advice.replace(_MORE_LOAD, "")  # it ended early because there was too much load
    stopping = "" if found.get("early_stopping_met", True) else str(found.get("early_stopping_result", ""))
    return tuple(filter(None, [*errors, _one_line(advice), _one_line(stopping)]))


def _one_line(text: str) -> str:
    return " ".join(text.replace("* ", " ").split())
