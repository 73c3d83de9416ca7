from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from wavefit import child
from wavefit.errors import InputError
from wavefit.schema import Failure, TensorSpec

SPEC = TensorSpec(name="image", dtype="float32", shape=("N", 3, 224, None))


def run(
    name: str, workdir: Path, payload: TensorSpec = SPEC, deadline_s: float = 60.0
) -> TensorSpec | Failure:
    said: list[str] = []
    return child.run(f"fakes.jobs:{name}", payload, TensorSpec, deadline_s, workdir, said.append)


def failure(name: str, workdir: Path, **rest: object) -> Failure:
    answer = run(name, workdir, **rest)  # type: ignore[arg-type]
    assert isinstance(answer, Failure)
    return answer


@pytest.fixture(autouse=True)
def _jobs_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))


def test_the_answer_comes_back_whole_while_libraries_print(tmp_path: Path) -> None:
    said: list[str] = []
    answer = child.run("fakes.jobs:echo", SPEC, TensorSpec, 60.0, tmp_path, said.append)
    assert answer == SPEC
    assert said == ["open", "half way"]
    assert (tmp_path / "log.txt").read_text().splitlines() == ["a native library greets", "so does Python"]


def test_a_crash_names_the_signal_and_the_stage(tmp_path: Path) -> None:
    answer = failure("segfault", tmp_path)
    assert (answer.kind, answer.stage) == ("crash", "open")
    assert "SIGSEGV" in answer.reason


def test_a_python_error_is_a_crash_with_its_last_words(tmp_path: Path) -> None:
    answer = failure("bug", tmp_path)
    assert answer.kind == "crash"
    assert "exit code 1" in answer.reason
    assert "KeyError: 'no such thing'" in answer.reason


def test_a_runtime_that_hangs_at_the_end_hides_no_error(tmp_path: Path) -> None:
    answer = failure("bug_and_hanging_exit", tmp_path)
    assert answer.kind == "crash"
    assert "KeyError: 'no such thing'" in answer.reason


def test_a_kill_in_the_middle_of_an_answer_is_told_at_once(tmp_path: Path) -> None:
    answer = failure("torn", tmp_path)
    assert (answer.kind, answer.stage) == ("interrupted", "measure")


def test_a_child_that_never_reads_its_job_is_a_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\n"
        "if 'wavefit.child.main' in sys.orig_argv:\n"
        "    print('hello', flush=True)\n"
        "    os._exit(3)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    long = TensorSpec(name="x" * 1_000_000, dtype="float32", shape=())  # more than a pipe holds
    answer = failure("echo", tmp_path / "work", payload=long)
    assert (answer.kind, answer.stage) == ("crash", "start")
    assert "exit code 3" in answer.reason


def test_a_process_ended_from_outside_is_interrupted_not_crashed(tmp_path: Path) -> None:
    assert failure("killed", tmp_path).kind == "interrupted"


def test_a_hang_ends_at_the_deadline_with_all_it_started(tmp_path: Path) -> None:
    note = tmp_path / "pids"
    answer = failure("hang", tmp_path, payload=TensorSpec(name=str(note), dtype="", shape=()), deadline_s=4.0)
    assert (answer.kind, answer.stage, answer.deadline_s) == ("timeout", "first run", 4.0)
    assert "--deadline" in answer.fix
    assert all(ended(int(pid)) for pid in note.read_text().split())


def test_a_refusal_keeps_its_reason_and_fix(tmp_path: Path) -> None:
    answer = failure("refused", tmp_path)
    assert (answer.kind, answer.stage) == ("refused", "open")
    assert answer.reason == "libmigraphx_c.so.3 is missing"
    assert answer.fix == "apt install migraphx"


@pytest.mark.parametrize("job", ["gpu_memory", "host_memory"])
def test_no_memory_is_told_from_a_crash(job: str, tmp_path: Path) -> None:
    answer = failure(job, tmp_path)
    assert answer.kind == "out of memory"
    assert "--batch" in answer.fix


def test_bad_input_comes_back_as_bad_input(tmp_path: Path) -> None:
    with pytest.raises(InputError) as raised:
        run("bad_input", tmp_path)
    assert raised.value.what == "image.png is 9x9 pixels"
    assert raised.value.fix == "add --resize"


@pytest.mark.skipif(sys.platform == "win32", reason="process groups")
def test_the_child_and_its_own_children_end_when_the_parent_is_killed(tmp_path: Path) -> None:
    note = tmp_path / "pids"
    script = (
        "from pathlib import Path; from wavefit import child; from wavefit.schema import TensorSpec;"
        f"child.run('fakes.jobs:hang', TensorSpec(name={str(note)!r}, dtype='', shape=()), TensorSpec, 600,"
        f" Path({str(tmp_path)!r}), print)"
    )
    parent = subprocess.Popen([sys.executable, "-c", script])
    try:
        pids = wait_for(lambda: note.exists() and note.read_text().split())
    finally:
        parent.kill()
        parent.wait()
    assert wait_for(lambda: all(ended(int(pid)) for pid in pids))


def ended(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def wait_for(condition):  # type: ignore[no-untyped-def]
    """The first true value of a condition, looked at for half a minute."""
    for _ in range(300):
        if value := condition():
            return value
        time.sleep(0.1)
    raise AssertionError("it did not come true in 30 s")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize("name", ["full_disk", "full_disk_in_a_library"])
def test_a_full_disk_is_one_sentence_with_what_to_do(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="no space left on the disk") as caught:
        run(name, tmp_path)
    assert "free some room" in caught.value.fix
