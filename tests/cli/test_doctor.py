from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from fakes import software
from fakes.shell import Shell

from wavefit.doctor.stack import Examination

BROKEN = {"onnxruntime": "1.32.0", "onnxruntime-migraphx": "1.27.1"}


@pytest.fixture
def broken(tmp_path: Path) -> str:
    software.machine(tmp_path / "machine", packages=BROKEN)
    return str(tmp_path / "machine")


def test_a_gpu_that_cannot_be_used_is_exit_1(shell: Shell, broken: str) -> None:
    code, out, err = shell.type("doctor", "--root", broken)
    assert (code, err) == (1, "")
    assert "2 builds of ONNX Runtime share one folder" in out
    assert max(map(len, out.splitlines())) <= 80


def test_a_missing_gpu_is_exit_0(shell: Shell, tmp_path: Path) -> None:
    software.machine(tmp_path, gpus="", packages=BROKEN)
    code, out, err = shell.type("doctor", "--root", str(tmp_path))
    assert (code, err) == (0, "")
    assert "which is no error" in out


def test_json_is_the_record(shell: Shell, broken: str) -> None:
    code, out, _ = shell.type("doctor", "--json", "--root", broken)
    result = msgspec.json.decode(out, type=Examination)
    assert code == 1
    assert not result.usable
    assert {part.layer for part in result.stack} >= {
        "application",
        "framework",
        "runtime",
        "driver",
        "hardware",
    }


def test_only(shell: Shell, broken: str) -> None:
    code, out, _ = shell.type("doctor", "--json", "--only", "wheels_torch", "--root", broken)
    assert code == 0
    assert json.loads(out)["findings"] == []
    shell.refuses("doctor", "--only", "nonsense", "--root", broken, says="wheels_torch")


def test_this_machine_without_self_tests(shell: Shell) -> None:
    code, out, err = shell.type("doctor", "--no-selftest", "--json")
    assert err == ""
    result = msgspec.json.decode(out, type=Examination)
    assert code == (0 if result.usable else 1)
    assert all(finding.check != "selftests" for finding in result.findings)


def test_collect_and_root_go_together(shell: Shell, broken: str) -> None:
    code, out, _ = shell.type("doctor", "--collect", "a.tar.gz", "--root", broken)
    assert code == 0
    assert "wavefit doctor --root a.tar.gz" in out
    first = shell.type("doctor", "--root", broken)
    assert shell.type("doctor", "--root", "a.tar.gz") == first


def test_bad_input_is_one_line_and_exit_2(shell: Shell, broken: str) -> None:
    shell.refuses("doctor", "--root", "missing", says="missing")
    shell.refuses("doctor", "--root", "net.onnx", says="net.onnx is no recording")
    shell.refuses("doctor", "--collect", "no/such/a.tar.gz", says="no/such")
    shell.refuses("doctor", "--collect", ".", says="--collect .")
    shell.refuses("doctor", "--collect", "net.onnx", "--root", broken, says="net.onnx is there already")
    shell.refuses("doctor", "--fix", "--json", says="--fix")
    shell.refuses("doctor", "--fix", "--root", broken, says="--fix")


def test_fix_runs_nothing_without_an_answer() -> None:
    command = [sys.executable, "-m", "wavefit", "doctor", "--fix", "--no-selftest"]
    done = subprocess.run(command, input="", capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""
    assert "0 of " in done.stdout.splitlines()[-1]
