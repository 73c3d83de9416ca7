"""Kills optimize, or the child that it runs, at random moments; nothing may be lost or left behind."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from fakes import models

from wavefit.bundle.journal import RECORDS, WORK, read_records
from wavefit.bundle.read import load_bundle

KILLS = 10
LONGEST_S = 4.0  # a whole run takes longer than this

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="kill -9")


@pytest.mark.slow
def test_ten_kills_of_the_parent_lose_nothing(tmp_path: Path) -> None:
    folder, command = prepare(tmp_path)
    moments = random.Random(0)
    known: set[str] = set()
    for _ in range(KILLS):
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        time.sleep(moments.uniform(0.2, LONGEST_S))
        family = children_of(process.pid)
        process.kill()
        process.wait()
        assert all_end(family)
        now = keys(folder)
        assert now >= known  # what was on the disk stays there, and every line can be read
        known = now
    finish(folder, command, tmp_path, known)


@pytest.mark.slow
def test_ten_kills_of_the_child_lose_nothing(tmp_path: Path) -> None:
    folder, command = prepare(tmp_path)
    moments = random.Random(1)
    for _ in range(KILLS):
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        time.sleep(moments.uniform(0.2, LONGEST_S))
        family = children_of(process.pid)
        for child in family:
            child.kill()
        process.wait()  # the next plan goes on, and the run ends by itself
        assert all_end(family)
        keys(folder)
        if not folder.exists():
            continue
    finish(folder, command, tmp_path, set())


def prepare(tmp_path: Path) -> tuple[Path, list[str]]:
    model = models.save(models.conv_net(), tmp_path / "net.onnx")
    folder = tmp_path / "net.wavefit"
    options = ["--route", "ort_cpu", "--batch", "1,2,4", "--duration", "0.3", "--output", str(folder)]
    return folder, [sys.executable, "-m", "wavefit", "optimize", str(model), *options]


def finish(folder: Path, command: list[str], tmp_path: Path, known: set[str]) -> None:
    """The last run ends well, uses every earlier record, and leaves nothing but the bundle."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    bundle, records = load_bundle(folder)
    assert bundle.choice.pick is not None
    assert all(record.passed for record in records)
    assert {record.key for record in records} >= known
    names = {path.name for path in folder.iterdir()}
    assert names == {"bundle.json", "model.onnx", "records.jsonl", "report.html"}
    assert {path.name for path in tmp_path.iterdir()} == {"net.onnx", "net.wavefit"}


def keys(folder: Path) -> set[str]:
    paths = (folder / RECORDS, folder / WORK / RECORDS)
    return {record.key for path in paths for record in read_records(path)}


def children_of(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def all_end(processes: list[psutil.Process]) -> bool:
    _, alive = psutil.wait_procs(processes, timeout=20)
    return not [process for process in alive if process.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
@pytest.mark.parametrize("verb", ["optimize", "bench"])
def test_a_signal_ends_it_in_order(tmp_path: Path, verb: str, name: str) -> None:
    """One sentence, the exit code that shells expect, and no process, folder or temporary file that nobody needs."""
    number = signal.Signals[name]
    models.save(models.conv_net(), tmp_path / "net.onnx")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    command = [sys.executable, "-m", "wavefit", verb, "net.onnx", "--route", "ort_cpu", "--duration", "30"]
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(temporary)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    family: list[psutil.Process] = []
    while process.poll() is None and not family:
        time.sleep(0.05)
        family = children_of(process.pid)
    process.send_signal(number)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 128 + number
    assert said.splitlines()[-1].startswith("wavefit: stopped; ")
    assert all_end(family)
    assert {path.name for path in tmp_path.iterdir()} == {"net.onnx", "temporary"}
    assert list(temporary.iterdir()) == []
