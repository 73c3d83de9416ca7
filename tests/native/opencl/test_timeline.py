"""When commands ran: arithmetic on given times, and a stream on a device as its own clock tells it."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from fakes.models import conv_net

from wavefit.native.opencl.timeline import Span, Timeline, chrome, overlap_s


def _span(track: str, start: float, end: float, batch: int = 0) -> Span:
    return Span(track=track, name=track, batch=batch, start_s=start, end_s=end)


def _event(start: int, end: int) -> Any:
    return SimpleNamespace(profile=SimpleNamespace(start=start, end=end), wait=lambda: None)


def test_times_count_from_the_first_command() -> None:
    timeline = Timeline()
    timeline.add("compute", 0, ["a", "b"], [_event(5_000, 6_000), _event(6_000, 9_000)])
    timeline.add("upload", 0, ["x"], [_event(4_000, 5_000)])
    timeline.add("download", 0, ["y"], [])
    assert [(each.name, each.start_s, each.end_s) for each in timeline.spans()] == [
        ("x", 0.0, pytest.approx(1e-6)),
        ("a", pytest.approx(1e-6), pytest.approx(2e-6)),
        ("b", pytest.approx(2e-6), pytest.approx(5e-6)),
    ]
    assert Timeline().spans() == ()


def test_overlap_is_where_kernels_and_copies_run_together() -> None:
    kernels = [_span("compute", 0, 4), _span("compute", 6, 8)]
    assert overlap_s(kernels) == 0
    assert overlap_s([*kernels, _span("upload", 4, 6)]) == 0
    assert overlap_s([*kernels, _span("upload", 3, 7)]) == 2
    # Two copies at once count once.
    assert overlap_s([*kernels, _span("upload", 1, 3), _span("download", 2, 4)]) == 3


def test_a_trace_has_a_thread_for_each_queue_and_microseconds() -> None:
    trace = chrome([_span("upload", 0, 0.002, batch=3), _span("download", 0.5, 1)])
    names = {each["tid"]: each["args"]["name"] for each in trace["traceEvents"] if each["ph"] == "M"}
    first, last = [each for each in trace["traceEvents"] if each["ph"] == "X"]
    assert (names[first["tid"]], names[last["tid"]]) == ("upload", "download")
    assert (first["ts"], first["dur"], first["args"]) == (0, 2000, {"batch": 3})
    assert (last["ts"], last["dur"]) == (500_000, 500_000)


@pytest.mark.parametrize("unified", [True, False])
def test_a_streams_commands_follow_one_another(
    unified: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cl = pytest.importorskip("pyopencl")
    from wavefit.native import engine
    from wavefit.native.limits import of_opencl
    from wavefit.native.opencl.chooser import Chooser
    from wavefit.native.opencl.executor import Executor
    from wavefit.native.program import Program

    path = tmp_path / "net.onnx"
    onnx.save(conv_net(), str(path))
    device = next(device for platform in cl.get_platforms() for device in platform.get_devices())
    program = engine.prepare(path, {"image": (3, 3, 8, 8)}, Chooser(of_opencl(device, None)))
    assert isinstance(program, Program)
    monkeypatch.setattr(Executor, "_shares_memory", lambda self, device: unified)
    executor = Executor(program, device, profiling=True)
    alone = executor.device_bytes
    assert alone == program.device_bytes
    timeline, image = Timeline(), np.ones((3, 3, 8, 8), np.float32)
    answers = list(executor.stream([{"image": image}] * 4, timeline))
    assert executor.device_bytes == alone + image.nbytes + answers[0]["logits"].nbytes
    spans = timeline.spans()
    executor.close()
    for batch in range(4):
        own = {
            track: [each for each in spans if each.batch == batch and each.track == track]
            for track in ("upload", "compute", "download")
        }
        assert [each.name for each in own["upload"]] == ["image"]
        assert [each.name for each in own["compute"]] == [step.node for step in program.steps]
        assert [each.name for each in own["download"]] == ([] if unified else ["logits"])
        order = [each for track in own.values() for each in track]
        assert all(one.end_s <= other.start_s for one, other in itertools.pairwise(order))
