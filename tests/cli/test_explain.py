"""`wavefit explain` as it is typed."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import msgspec
import pytest
from fakes import sysfs
from fakes.shell import Shell

from wavefit.doctor.explain import Answer

HANG = "HW Exception by GPU node-1 (Agent handle: 0x5ab48bbcc960) reason :GPU Hang"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def pipe(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def test_a_known_error_is_explained(shell: Shell) -> None:
    code, out, err = shell.type("explain", HANG)
    assert (code, err) == (0, "")
    assert out.startswith("HSA: the GPU hung (HW Exception)\n  in: HW Exception by GPU node-1")
    assert "\nCause: " in out
    assert "\nFix:\n  " in out
    assert "\nThen check: " in out
    assert "\nSource: https://github.com/" in out


def test_words_without_quotes_are_one_text(shell: Shell) -> None:
    assert shell.type("explain", *HANG.split())[0] == 0


def test_json_is_an_answer(shell: Shell) -> None:
    code, out, _ = shell.type("explain", "--json", HANG)
    answer = msgspec.json.decode(out, type=Answer)
    assert code == 0
    assert [known.id for known in answer.known] == ["gpu-hang"]


def test_an_unknown_error_is_said_to_be_unknown(shell: Shell) -> None:
    code, out, err = shell.type("explain", "the moon is in the wrong house")
    assert (code, err) == (1, "")
    assert out.startswith("This error is not known to wavefit.\n")
    assert "wavefit doctor --collect " in out


def test_an_unknown_error_as_json(shell: Shell) -> None:
    code, out, _ = shell.type("explain", "--json", "the moon is in the wrong house")
    assert code == 1
    assert msgspec.json.decode(out, type=Answer).known == ()


@pytest.mark.parametrize("text", ["", "  \n"])
def test_an_empty_text_is_refused(shell: Shell, text: str) -> None:
    shell.refuses("explain", text, says="there is no error text")


def test_an_empty_pipe_is_refused(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe(monkeypatch, b"\n")
    shell.refuses("explain", says="there is no error text")


def test_a_terminal_without_text_is_one_sentence(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal())
    shell.refuses("explain", says="there is no error text")
    monkeypatch.setattr(sys, "stdin", None)  # closed
    shell.refuses("explain", says="there is no error text")


@pytest.mark.parametrize("words", [[], ["-"]])
def test_a_log_is_piped_in(shell: Shell, monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    log = "[ 9.1] amdgpu 0000:c5:00.0: amdgpu: GPU reset begin!\n[ 9.0] amdgpu: MES failed to respond to msg=RESET\n"
    pipe(monkeypatch, log.encode())
    code, out, _ = shell.type("explain", *words)
    assert code == 0
    assert out.startswith("amdgpu: the GPU's scheduler does not answer (MES)\n")
    assert "\nAlso in this text, and perhaps only what follows from it:\n\namdgpu: the GPU was reset\n" in out


def test_a_log_file_is_read(shell: Shell) -> None:
    (shell.folder / "run.log").write_bytes(b"\xff\x00" + HANG.encode())
    assert shell.type("explain", "run.log")[0] == 0


def test_a_long_log_is_said_to_be_cut(shell: Shell) -> None:
    with (shell.folder / "run.log").open("wb") as file:
        file.truncate(30 << 20)
        file.seek(0, io.SEEK_END)
        file.write(HANG.encode())
    code, out, _ = shell.type("explain", "run.log")
    assert code == 0
    assert out.startswith("Only the beginning and the end of this long text were read.\n")


def test_the_facts_of_a_recorded_machine_are_used(shell: Shell, tmp_path: Path) -> None:
    sysfs.linux(tmp_path)
    sysfs.cpu_node(tmp_path)
    sysfs.apu(tmp_path)
    text = "rocBLAS error: Cannot read TensileLibrary.dat"
    code, out, _ = shell.type("explain", "--root", str(tmp_path), text)
    assert code == 0
    assert "Cause on this machine: This rocBLAS has no kernels for gfx1103: ROCm 10 has" in out
    assert "export HSA_OVERRIDE_GFX_VERSION=11.0.0" in out
    with tarfile.open(shell.folder / "machine.tar.gz", "w:gz") as tar:
        for entry in tmp_path.iterdir():
            tar.add(entry, entry.name)
    assert shell.type("explain", "--root", "machine.tar.gz", text)[1] == out


def test_a_root_that_is_none_is_refused(shell: Shell) -> None:
    shell.refuses("explain", "--root", "nowhere", HANG, says="nowhere")


def test_a_log_through_a_real_pipe() -> None:
    command = [sys.executable, "-m", "wavefit", "explain"]
    done = subprocess.run(command, input=HANG.encode(), capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b"HSA: the GPU hung")


@pytest.mark.skipif(os.name == "nt", reason="arguments are text there")
def test_bytes_that_are_no_text_in_arguments_and_environment(tmp_path: Path) -> None:
    """Python hands them on as surrogates, which no JSON can hold."""
    wavefit = [sys.executable, "-m", "wavefit"]
    for command in (
        [*wavefit, "explain", "--json", b"HIP error: \xff invalid device function"],
        [*wavefit, "doctor", "--collect", str(tmp_path / "a.tar.gz")],
    ):
        environ = {**os.environb, b"HSA_X": b"\xfe", b"XDG_CACHE_HOME": b"/tmp/\xff"}
        done = subprocess.run(command, env=environ, capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, b"")


def test_a_log_that_is_not_there_is_not_taken_for_text(shell: Shell) -> None:
    code, out, err = shell.type("explain", "nosuch.log")
    assert (code, out) == (2, "")
    assert "there is no file nosuch.log" in err
