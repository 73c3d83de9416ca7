from __future__ import annotations

from pathlib import Path

import pytest

from wavefit.doctor.fix import apply, may_run
from wavefit.schema import Finding, Fix


def finding(*fixes: Fix, status: str = "problem") -> Finding:
    return Finding(check="c", layer="driver", status=status, title="t", fixes=fixes)  # type: ignore[arg-type]


class Asked:
    """Answers every question the same way, and keeps what it was asked."""

    def __init__(self, answer: bool = True) -> None:
        self.answer = answer
        self.commands: list[str] = []
        self.said: list[str] = []

    def __call__(self, finding: Finding, fix: Fix) -> bool:
        self.commands.append(fix.command)
        return self.answer


def test_a_safe_command_runs_after_a_yes(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    fix = Fix(command=f"touch '{mark}'", safe=True)
    no, yes = Asked(False), Asked()
    assert [done.outcome for done in apply([finding(fix)], no, no.said.append)] == ["declined"]
    assert not mark.exists()
    assert [done.outcome for done in apply([finding(fix)], yes, yes.said.append)] == ["ran"]
    assert mark.exists()


def test_an_unsafe_command_is_printed_and_never_asked_about(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    asked = Asked()
    done = apply([finding(Fix(command=f"touch '{mark}'"))], asked, asked.said.append)
    assert [each.outcome for each in done] == ["printed"]
    assert asked.commands == []
    assert asked.said == [f"to run by hand: touch '{mark}'"]
    assert not mark.exists()


@pytest.mark.parametrize(
    "command",
    [
        "sudo reboot",
        "sudo shutdown -r now",
        "rm -rf build",
        "sudo rm /etc/modprobe.d/blacklist.conf",
        "true; rm x",
        "pip uninstall -y torch",
        "sudo apt-get purge rocm",
        "sudo apt autoremove",
        "sudo update-grub",
        "sudo grubby --update-kernel=ALL --args=iommu=pt",
        "sudo mokutil --import key.der",
        "sudo modprobe -r amdgpu",
        "sudo rmmod amdgpu",
        "echo x > /etc/hosts",
        "find . -delete",
        "sudo sed -i s/nomodeset// /etc/default/grub",
        "pip install --force-reinstall torch",
    ],
)
def test_what_reboots_or_deletes_is_never_run_even_if_a_check_calls_it_safe(command: str) -> None:
    assert not may_run(Fix(command=command, safe=True))


@pytest.mark.parametrize(
    "command",
    [
        "sudo usermod -aG render,video $USER",
        "pip install 'wavefit[webgpu]'",
        "sudo modprobe amdgpu",
        "echo /opt/rocm/lib | sudo tee /etc/ld.so.conf.d/rocm.conf && sudo ldconfig",
        "cat x >> y 2>&1",
    ],
)
def test_what_is_harmless_may_run(command: str) -> None:
    assert may_run(Fix(command=command, safe=True))
    assert not may_run(Fix(command=command))


def test_steps_wait_for_the_step_before_them(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    fixes = (Fix(command="pip uninstall -y x", safe=True), Fix(command=f"touch '{mark}'", safe=True))
    asked = Asked()
    assert [each.outcome for each in apply([finding(*fixes)], asked, asked.said.append)] == [
        "printed",
        "printed",
    ]
    assert not mark.exists()


def test_a_failure_stops_the_rest(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    findings = [finding(Fix(command="exit 3", safe=True)), finding(Fix(command=f"touch '{mark}'", safe=True))]
    asked = Asked()
    (done,) = apply(findings, asked, asked.said.append)
    assert (done.outcome, done.code) == ("failed", 3)
    assert not mark.exists()


def test_the_same_command_is_offered_once_and_what_is_well_is_left_alone() -> None:
    fix = Fix(command="true", safe=True)
    asked = Asked()
    done = apply([finding(fix, status="ok"), finding(fix), finding(fix)], asked, asked.said.append)
    assert [each.outcome for each in done] == ["ran"]
    assert asked.commands == ["true"]
