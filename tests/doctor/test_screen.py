from __future__ import annotations

import io
from pathlib import Path

from fakes import software
from rich.console import Console

from wavefit.doctor.screen import screen
from wavefit.doctor.stack import examination
from wavefit.schema import Finding, Fix

BROKEN = Finding(
    check="device_nodes",
    layer="driver",
    status="problem",
    title="/dev/kfd may not be opened, " + "and that takes a long line to say " * 3,
    evidence=("open(/dev/kfd): EACCES", "[red]groups[/red] 1000"),
    cause="This user is not in the group render.",
    fixes=(
        Fix(command="sudo usermod -aG render $USER", why="then log in again", safe=True),
        Fix(command="reboot"),
    ),
    verify="id",
)
NOTE = Finding(check="power", layer="hardware", status="note", title="no power")
FINE = Finding(check="dkms", layer="driver", status="ok", title="all is well", evidence=("not shown",))


def shown(root: Path, *findings: Finding, width: int = 80) -> str:
    sink = io.StringIO()
    console = Console(file=sink, width=width, color_system=None, highlight=False)
    console.print(screen(examination(software.machine(root, "card apu"), findings, "0.2.0")))
    return sink.getvalue()


def test_every_part_is_there_in_80_columns_and_without_colour(tmp_path: Path) -> None:
    text = shown(tmp_path, NOTE, FINE, BROKEN)
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text
    for said in (
        "application",
        "hardware",
        "gfx1103",
        "open(/dev/kfd): EACCES",
        "[red]groups[/red] 1000",  # as it is, no markup
        "This user is not in the group render.",
        "$ sudo usermod -aG render $USER",
        "--fix runs it",
        "$ id",
        "[device_nodes]",
        "all is well",
        "<- 1 problem, see below",
    ):
        assert said in text, said
    assert "not shown" not in text
    assert text.index("problem /dev/kfd") < text.index("note no power") < text.index("all is well")


def test_only_a_safe_fix_says_that_it_can_be_run(tmp_path: Path) -> None:
    lines = shown(tmp_path, BROKEN).splitlines()
    assert [line.strip() for line in lines if "reboot" in line] == ["$ reboot"]


def test_layers_stand_from_top_to_bottom(tmp_path: Path) -> None:
    text = shown(tmp_path, FINE)
    places = [
        text.index(f"\n{layer}") for layer in ("application", "framework", "runtime", "driver", "hardware")
    ]
    assert places == sorted(places)
    assert "environment" not in text


def test_a_strangers_recording_does_not_speak_to_the_terminal(tmp_path: Path) -> None:
    evil = "\x1b]0;owned\x07\x9b31m"
    said = Finding(
        check="c",
        layer="driver",
        status="problem",
        title=f"a{evil}b",
        evidence=(evil,),
        fixes=(Fix(command=f"ls {evil}", why=evil),),
        verify=evil,
    )
    machine = software.machine(tmp_path, "card", files={"etc/os-release": f'PRETTY_NAME="{evil}"'})
    sink = io.StringIO()
    Console(file=sink, width=80, color_system=None).print(screen(examination(machine, [said], "0.2.0")))
    assert not set("\x1b\x07\x9b") & set(sink.getvalue())
