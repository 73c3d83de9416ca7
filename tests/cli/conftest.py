from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from fakes import models
from fakes.shell import QUICK, Shell


@pytest.fixture
def shell(
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Shell:
    folder, temporary = tmp_path_factory.mktemp("here"), tmp_path_factory.mktemp("temporary")
    models.save(models.conv_net(), folder / "net.onnx")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setenv("ORT_DISABLE_TELEMETRY", "1")
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(sys, "argv", [])
    return Shell(folder, temporary, capsys)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A good bundle, in a path with spaces and letters beyond ASCII whose parents were not there."""
    folder = tmp_path_factory.mktemp("made")
    model = models.save(models.conv_net(), folder / "net.onnx")
    bundle = folder / "not yet there" / "größe.wavefit"
    command = [sys.executable, "-m", "wavefit", "optimize", str(model), *QUICK, "-o", str(bundle)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    return bundle


@pytest.fixture
def bundle(shell: Shell, made: Path) -> Path:
    return Path(shutil.copytree(made, shell.folder / "b.wavefit"))
