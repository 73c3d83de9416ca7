"""README's commands are run as they stand, and its links lead somewhere."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
SCRIPTS = Path(sys.executable).parent


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def shell_lines() -> list[str]:
    lines = "\n".join(blocks("sh")).splitlines()
    return [line.split(" #")[0].strip() for line in lines if line.strip()]


@pytest.mark.slow
def test_the_commands_run_as_they_stand(tmp_path: Path) -> None:
    torch = ("resnet50:resnet50", "digits:uneven")
    lines = [
        line
        for line in shell_lines()
        if line.startswith("wavefit ") and not any(each in line for each in torch)
    ]
    assert len(lines) >= 5
    (tmp_path / "src").symlink_to(ROOT / "src")  # the demo's data, named from a clone's folder
    for line in ["wavefit demo", *lines]:
        done = run(line, tmp_path)
        assert done.returncode == 0, f"{line}\n{done.stderr}"
    code = blocks("python")[0]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_pytorch_line_names_what_is_there() -> None:
    line = next(line for line in shell_lines() if "resnet50:resnet50" in line)
    assert (ROOT / "examples" / "resnet50" / "resnet50.py").is_file()
    # Its options are read, and only the missing module stops it: the example's folder is not the current one here.
    done = run(line, ROOT / "docs")
    assert done.returncode == 2
    assert "resnet50" in done.stderr or "wavefit[torch]" in done.stderr


@pytest.mark.slow
@pytest.mark.torch
def test_the_line_that_trains_wins_accuracy_back(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    folder = tmp_path / "examples" / "digits"
    shutil.copytree(ROOT / "examples" / "digits", folder)
    (tmp_path / "src").symlink_to(ROOT / "src")
    done = run(next(line for line in shell_lines() if "digits:uneven" in line), folder)
    assert done.returncode == 0, done.stderr
    before, after = map(float, re.findall(r"([\d.]+) (?:in int8 before|after 3 epochs)", done.stdout))
    assert before <= after - 0.02
    assert (folder / "digits8.onnx").is_file()


def test_the_make_targets_exist() -> None:
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert {"demo", "test"} <= set(re.findall(r"make (demo|test)", README)) & targets


def test_the_extras_exist() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    for extra in re.findall(r"\.\[(\w+)\]", README):
        assert re.search(rf"^{extra} = \[", project, re.MULTILINE), extra


def test_relative_links_lead_somewhere() -> None:
    for path in (
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("examples/*/*.md"),
    ):
        for link in re.findall(r"\]\(([^)#]+)", path.read_text()):
            if not link.startswith("http"):
                assert (path.parent / link).exists(), f"{path.name}: {link}"


def test_the_reference_of_the_command_line_is_up_to_date() -> None:
    made = subprocess.check_output(
        [sys.executable, "-m", "typer", "wavefit.cli", "utils", "docs", "--name", "wavefit"], text=True
    )
    held = (ROOT / "docs" / "cli.md").read_text()
    assert held.rstrip() == made.rstrip(), "run `make docs`"  # what is printed ends with one line more


def run(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    words = line.split()
    return subprocess.run(
        [SCRIPTS / words[0], *words[1:]], cwd=folder, capture_output=True, text=True, check=False
    )
