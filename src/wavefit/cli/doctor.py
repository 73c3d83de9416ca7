"""wavefit doctor: why the GPU cannot be used yet, and what mends it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wavefit.cli._options import Json, grouped
from wavefit.errors import InputError

if TYPE_CHECKING:
    from wavefit.doctor.machine import Machine
    from wavefit.doctor.stack import Examination
    from wavefit.schema import Finding, Fix

_NARROWEST = 80
_UNUSABLE = 1
_LAST = "selftests"


@dataclass(frozen=True)
class DoctorOptions:
    """What is examined, and what is done with the findings."""

    only: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only this check (may be repeated).")
    ] = None
    selftest: Annotated[
        bool, typer.Option("--selftest/--no-selftest", help="Multiply matrices on every runtime, last.")
    ] = True
    fix: Annotated[bool, typer.Option("--fix", help="Run the safe fixes, each after a question.")] = False
    root: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="A recorded machine, .tar.gz, folder or rocm-smi's JSON, instead of this one.",
        ),
    ] = None
    collect: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a recording (.tar.gz) without personal details."),
    ] = None


@grouped
def command(options: DoctorOptions, as_json: Json = False) -> None:
    """Say layer by layer what is here, what is wrong, and which command mends it."""
    from wavefit.doctor.machine import Machine, this_process
    from wavefit.doctor.unpack import open_machine

    if options.fix and (as_json or options.root is not None):
        raise InputError("--fix asks questions about this machine", "use it without --json and --root")
    if options.root is None or options.root == Path("/"):
        _examine(Machine(process=this_process()), options, as_json)
        return
    with open_machine(options.root) as machine:
        _examine(machine, options, as_json)


def _examine(machine: Machine, options: DoctorOptions, as_json: bool) -> None:
    from wavefit import __version__
    from wavefit.doctor import examine
    from wavefit.doctor.stack import examination
    from wavefit.schema import pretty

    if options.collect is not None:
        _collect(machine, options.collect)
        return
    result = examination(machine, examine(machine, _checks(options)), __version__)
    if as_json:
        typer.echo(pretty(result))
    else:
        _show(result)
    if options.fix:
        _fix(result)
    if not result.usable:
        raise typer.Exit(_UNUSABLE)


def _checks(options: DoctorOptions) -> list[str]:
    """The self-tests last: what the others found explains what they show."""
    from wavefit.doctor import names

    if options.only:
        return list(dict.fromkeys(options.only))
    return [name for name in names() if name != _LAST] + ([_LAST] if options.selftest else [])


def _collect(machine: Machine, file: Path) -> None:
    from wavefit.doctor.collect import collect

    if file.is_dir() or not file.absolute().parent.is_dir():
        raise InputError(
            f"--collect {file} is no file that can be written", "name one in a folder that is there"
        )
    if file.exists():
        raise InputError(f"--collect {file} is there already", "name another file, or delete it first")
    count = collect(machine, file)
    typer.echo(f"{file}: {count} files. Look through it before you send it: tar -tzf {file}")
    typer.echo(f"It is read with: wavefit doctor --root {file}")


def _show(result: Examination) -> None:
    from rich.console import Console

    from wavefit.doctor.screen import screen

    console = Console(highlight=False, soft_wrap=False)
    if console.width < _NARROWEST:
        console.width = _NARROWEST
    console.print(screen(result))


def _fix(result: Examination) -> None:
    from wavefit.doctor.fix import apply

    done = apply(result.findings, _ask, typer.echo)
    ran = sum(each.outcome == "ran" for each in done)
    typer.echo(f"{ran} of {len(done)} fixes were run; `wavefit doctor` shows what is left.")


def _ask(finding: Finding, fix: Fix) -> bool:
    """No without a terminal's answer: nothing is run that nobody saw."""
    typer.echo(f"\n{finding.title}\n  $ {fix.command}" + (f"  ({fix.why})" if fix.why else ""))
    sys.stdout.write("run it? [y/N] ")
    sys.stdout.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")
