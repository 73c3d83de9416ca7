"""`wavefit plan` as it is typed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from fakes import models


@pytest.fixture
def net(tmp_path: Path) -> Path:
    return models.save(models.conv_net(), tmp_path / "net.onnx")


def wavefit(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from wavefit.cli import main; main()", "plan", *map(str, words)]
    environment = {**os.environ, "COLUMNS": "80", "PYTHONIOENCODING": "utf-8"}
    return subprocess.run(
        command, capture_output=True, text=True, check=False, encoding="utf-8", timeout=120, env=environment
    )


def test_the_cpu_on_eighty_columns(net: Path) -> None:
    done = wavefit(net, "--device", "cpu", "--batch", "1,64")
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "net on cpu" in done.stdout
    assert "memory, predicted" in done.stdout
    assert "time of one batch, predicted" in done.stdout
    assert "nothing is copied" in done.stdout
    assert "(predicted)" in done.stdout  # the largest batch


def test_a_gpu_that_is_not_here(net: Path) -> None:
    done = wavefit(net, "--device", "RX 7900 XTX", "--precision", "fp32,fp16", "--batch", "8")
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "gfx1100" in done.stdout
    assert "classic bound" in done.stdout
    assert "Weights stay on" in " ".join(done.stdout.split())
    assert "fp16, route torch_gpu" in done.stdout


def test_an_integrated_gpu_copies_nothing(net: Path) -> None:
    done = wavefit(net, "--device", "gfx1103", "--json")
    assert done.returncode == 0, done.stderr
    (answer,) = json.loads(done.stdout)
    assert answer["device"]["gfx"] == "gfx1103"
    assert answer["device"]["integrated"] is True
    (at,) = answer["batches"]
    assert at["transfer"]["unified"] is True
    assert at["transfer"]["classic_max_batch"] is None
    assert at["memory"]["where"] == "device"


def test_json_has_every_batch(net: Path) -> None:
    done = wavefit(net, "--device", "cpu", "--batch", "1,2,4", "--json")
    (answer,) = json.loads(done.stdout)
    assert [at["batch"] for at in answer["batches"]] == [1, 2, 4]
    peaks = [at["memory"]["peak_bytes"] for at in answer["batches"]]
    assert peaks == sorted(peaks)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--device", "gpu99"], "gpu99"),
        (["--device", "gfx9999"], "gfx9999"),
        (["--batch", "0"], "--batch"),
        (["--precision", "fp8"], "--precision"),
        (["--route", "nowhere"], "there is no route 'nowhere'"),
        (["--size", "seq=4"], "no such symbolic dimension"),
    ],
)
def test_bad_options_are_one_line(net: Path, words: list[str], said: str) -> None:
    done = wavefit(net, *words)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""


def test_a_missing_model_is_one_line(tmp_path: Path) -> None:
    done = wavefit(tmp_path / "none.onnx", "--device", "cpu")
    assert done.returncode == 2
    assert "none.onnx" in done.stderr


def test_the_memory_of_an_apu_that_is_not_here_can_be_given(net: Path) -> None:
    unknown = wavefit(net, "--device", "gfx1103")
    assert "largest batch   unknown" in unknown.stdout
    assert "the shared memory is not known; say it with --memory GIB" in " ".join(unknown.stdout.split())
    given = wavefit(net, "--device", "gfx1103", "--memory", "8")
    assert given.returncode == 0, given.stderr
    assert "8,192.0MiB: total GTT of the GPU (--memory)" in given.stdout
    assert "largest batch   unknown" not in given.stdout


def test_what_is_assumed_of_a_gpu_that_is_not_here_is_said(net: Path) -> None:
    answer = wavefit(net, "--device", "gfx1103")
    said = " ".join(answer.stdout.split())
    assert "torch_gpu, assumed, since this GPU is not in this machine" in said
    assert "launch unknown: `wavefit devices --measure` measures it on the machine that has the GPU" in said
    given = wavefit(net, "--device", "gfx1103", "--route", "ort_migraphx")
    assert "ort_migraphx, given with --route" in " ".join(given.stdout.split())


def test_the_engine_s_total_is_its_kernels_with_launches(net: Path) -> None:
    pytest.importorskip("onnx_ir")
    given = wavefit(net, "--device", "gfx1103", "--route", "native_opencl")
    said = " ".join(given.stdout.split())
    assert (
        "launch in the total, which is the sum of what native_opencl expects of each of its kernels" in said
    )
    assert "leaves it out" not in said
    assert "launches arithmetic" not in said  # as left out
    assert "on gfx1103 (taken as Radeon 780M), integrated GPU" in said


def test_nothing_but_json_in_a_pipe(net: Path) -> None:
    answer = wavefit(net, "--batch", "1,2", "--precision", "fp32,fp16", "--json")
    assert answer.stderr == ""
    assert [each["precision"] for each in json.loads(answer.stdout)] == ["fp32", "fp16"]


def test_auto_is_every_precision_that_optimize_would_try(net: Path) -> None:
    answer = wavefit(net, "--device", "cpu", "--precision", "auto", "--json")
    assert [each["precision"] for each in json.loads(answer.stdout)] == ["fp32", "fp16", "int8"]
    mixed = wavefit(net, "--device", "cpu", "--precision", "auto,fp16")
    assert (mixed.returncode, "names others beside auto" in mixed.stderr) == (2, True)


@pytest.mark.parametrize(
    ("value", "said"),
    [(0.0, "0"), (1.234, "1.2s"), (0.01296, "13ms"), (8.67e-8, "0.087us"), (1.29e-4, "130us")],
)
def test_two_digits_of_a_time_are_told(value: float, said: str) -> None:
    from wavefit.cli._plan_view import about

    assert about(value) == said


def test_of_a_gpu_that_is_not_here_no_more_than_two_digits_are_told(net: Path) -> None:
    done = wavefit(net, "--device", "gfx1103", "--batch", "8")
    lines = done.stdout.splitlines()
    row = lines[next(n for n, line in enumerate(lines) if "items/s" in line) + 1].split()
    digits = row[-2].replace(",", "")
    assert digits[2:].strip("0") == ""
