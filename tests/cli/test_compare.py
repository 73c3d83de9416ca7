"""`wavefit compare` as it is typed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from fakes import records as fakes

from wavefit.schema import encode


@pytest.fixture
def machines(tmp_path: Path) -> list[str]:
    paths = []
    for name, p50_s in (("slow", 0.02), ("fast", 0.01)):
        record = fakes.measured("torch_gpu", fakes.gpu(name=f"Card {name}"), p50_s)
        path = tmp_path / f"{name}.jsonl"
        path.write_bytes(encode(record) + b"\n")
        paths.append(str(path))
    return paths


def wavefit(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from wavefit.cli import main; main()", "compare", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, encoding="utf-8", timeout=60)


def test_table(machines: list[str]) -> None:
    done = wavefit(*machines, "--price", "slow=1", "--price", "fast=3")
    assert done.returncode == 0, done.stderr
    lines = {line.split("  ")[0]: line.split() for line in done.stdout.splitlines()}
    assert lines["device"] == ["device", "Card", "slow", "Card", "fast"]
    assert lines["inferences a second"][-3:] == ["53.5", "107", "2.00\N{MULTIPLICATION SIGN}"]
    assert lines["inferences per price"][-1] == "0.667\N{MULTIPLICATION SIGN}"
    assert "Not comparable" not in done.stdout


def test_json(machines: list[str]) -> None:
    done = wavefit(*machines, "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert [column["name"] for column in answer["columns"]] == ["slow", "fast"]
    assert answer["differences"] == []
    ratios = {row["name"]: row["ratios"][1] for row in answer["rows"]}
    assert ratios["inferences a second"] == pytest.approx(2.0)


@pytest.mark.parametrize(
    "words",
    [
        ["nowhere.jsonl", "nothing.jsonl"],
        ["--price", "slow"],
        ["--price", "other=1"],
        ["--price-per", "year"],
        ["--objective", "cost"],
    ],
)
def test_bad_input_is_one_sentence_and_exit_2(machines: list[str], words: list[str]) -> None:
    done = wavefit(*([] if words[0] == "nowhere.jsonl" else machines), *words)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("wavefit: ")
    assert len(done.stderr.splitlines()) == 1
