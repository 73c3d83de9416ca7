"""`wavefit kernel`, as a user types it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from wavefit.kernels import toolchain

pytest.importorskip("elftools")
pytest.importorskip("msgpack")
pytestmark = pytest.mark.skipif(
    isinstance(toolchain.find("zig"), toolchain.Missing), reason="ziglang is not installed"
)

ADD = "__kernel void add(__global float *a, __global const float *b) { a[get_global_id(0)] += b[get_global_id(0)]; }"


def wavefit(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "wavefit", "kernel", *words]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120, check=False)


def test_a_kernel_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "add.cl").write_text(ADD)
    done = wavefit("audit", "add.cl", "--target", "gfx1103", "--target", "gfx90c", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "add.cl (add)  gfx1103" in done.stdout
    assert "2 of 2 kernels keep the rules" in done.stdout


def test_json_holds_the_rows_and_a_broken_rule_is_exit_code_1(tmp_path: Path) -> None:
    (tmp_path / "add.cl").write_text(ADD)
    words = ("audit", "add.cl", "--target", "gfx1103", "--work-group", "1024", "--json")
    done = wavefit(*words, cwd=tmp_path)
    assert done.returncode == 1
    (row,) = json.loads(done.stdout)
    assert row["resources"]["vgprs"] < 20
    assert row["problems"] == ["a work-group of 1024, and it is compiled for at most 256"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("audit", "nothing.cl"), "there is no file nothing.cl"),
        (("audit", "notes.txt"), "notes.txt is neither OpenCL C (.cl) nor a model (.onnx)"),
        (("audit", "bytes.cl"), "bytes.cl is no text in UTF-8"),
        (("audit", "--target", "gfx803"), "the catalogue has no target gfx803"),
    ],
)
def test_bad_input_is_one_sentence(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("")
    (tmp_path / "bytes.cl").write_bytes(b"\xff\xfe\xff")
    done = wavefit(*words, cwd=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_toolchain_that_is_not_here(tmp_path: Path) -> None:
    done = wavefit("audit", "--toolchain", "clang-1", cwd=tmp_path)
    assert done.returncode == 1
    assert "there is no toolchain 'clang-1' here" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("profile", "nothing.onnx"), "there is no file nothing.onnx"),
        (("profile", "notes.txt"), "notes.txt is no model (.onnx)"),
        (("profile", "notes.txt", "--trace", "."), ". is no file; name a file for the trace"),
    ],
)
def test_profile_of_what_is_no_model(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("")
    done = wavefit(*words, cwd=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr


def test_tune_says_what_its_budget_left(tmp_path: Path) -> None:
    pytest.importorskip("pyopencl")
    import wavefit.demo as demo

    model = str(Path(demo.__file__).parent / "digits.onnx")
    done = wavefit("tune", model, "--device", "cpu", "--batch", "7", "--budget", "1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "were not reached within 1 s: give the same command a larger --budget." in done.stdout


def test_profile_shows_launches_and_leaves_a_trace(tmp_path: Path) -> None:
    pytest.importorskip("pyopencl")
    import wavefit.demo as demo

    model = str(Path(demo.__file__).parent / "digits.onnx")
    done = wavefit(
        "profile", model, "--device", "cpu", "--top", "2", "--trace", "t.json", "--batches", "3", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert "more, " in done.stdout
    assert "In a stream a batch takes" in done.stdout
    spans = [
        each for each in json.loads((tmp_path / "t.json").read_text())["traceEvents"] if each["ph"] == "X"
    ]
    assert {each["args"]["batch"] for each in spans} == {0, 1, 2}
