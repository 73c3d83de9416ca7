"""wavefit explain: what an error message means, and what mends it on this machine."""

from __future__ import annotations

import shutil
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from wavefit.errors import InputError

if TYPE_CHECKING:
    from wavefit.doctor.explain import Answer, Explanation

_UNKNOWN = 1
_WIDEST = 100


def command(
    words: list[str] = typer.Argument(
        None, metavar="[TEXT]", help="The error text, or a log file; without it standard input is read."
    ),
    root: Path = typer.Option(
        Path("/"), "--root", metavar="PATH", help="Use the facts of a recorded machine, .tar.gz or folder."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print the answer as JSON."),
) -> None:
    """Name the cause and the fix of an error message from ROCm, PyTorch, ONNX Runtime, Docker or the kernel."""
    from wavefit.schema import pretty

    text, cut = _text(words or [])
    answer = _answer(text, root)
    if as_json:
        typer.echo(pretty(answer))
    else:
        _show(answer, cut)
    if not answer.known:
        raise typer.Exit(_UNKNOWN)


def _answer(text: str, root: Path) -> Answer:
    from wavefit.doctor.explain import explain
    from wavefit.doctor.machine import Machine, this_process
    from wavefit.doctor.unpack import open_machine

    if root == Path("/"):
        return explain(text, Machine(process=this_process()))
    with open_machine(root) as machine:
        return explain(text, machine)


def _text(words: list[str]) -> tuple[str, bool]:
    """The text that was meant, and whether the middle of it was left out."""
    from wavefit.device.files import encodable
    from wavefit.doctor.explain_text import decode, read

    if words and words != ["-"]:
        path = Path(words[0])
        if len(words) == 1 and _names_a_log(words[0]) and not _is_file(path):
            raise InputError(
                f"there is no file {words[0]}", "give a log that is there, or the text in quotes"
            )
        if len(words) > 1 or len(words[0]) > 4096 or "\n" in words[0] or not _is_file(path):
            return encodable(" ".join(words)), False
        with path.open("rb") as file:
            data, cut = read(file)
        return decode(data), cut
    if sys.stdin is None or sys.stdin.isatty():
        raise InputError(
            "there is no error text", 'give it as wavefit explain "TEXT", or pipe a log into wavefit explain'
        )
    data, cut = read(sys.stdin.buffer)
    return decode(data), cut


def _names_a_log(word: str) -> bool:
    """Whether one word is meant as a file: no message of an error ends so."""
    return " " not in word and word.endswith((".log", ".txt"))


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def _show(answer: Answer, cut: bool) -> None:
    if cut:
        typer.echo("Only the beginning and the end of this long text were read.\n")
    if not answer.known:
        typer.echo(
            "This error is not known to wavefit.\n"
            f"  wavefit doctor                checks this machine from the application down to the hardware\n"
            f"  {answer.collect}   records its state, personal details left out, for a report\n"
            "Give the whole log, not its last line: the first error in it is mostly the cause."
        )
        return
    first, *others = answer.known
    _show_one(first)
    if others:
        typer.echo("\nAlso in this text, and perhaps only what follows from it:")
    for other in others:
        typer.echo(f"\n{other.area}: {other.title}\n  in: {other.line}\n{_prose(other.cause, 2)}")
        if other.fixes:
            typer.echo(f"    {other.fixes[0].command}")


def _show_one(found: Explanation) -> None:
    typer.echo(f"{found.area}: {found.title}\n  in: {found.line}")
    cause = f"Cause{' on this machine' if found.machine else ''}: {found.cause}"
    typer.echo(f"\n{_prose(cause)}\n\nFix:")
    for fix in found.fixes:
        typer.echo(f"  {fix.command}")
        if fix.why:
            typer.echo(_prose(fix.why, 6))
    typer.echo(f"\nThen check: {found.verify}\nSource: {found.source}")


def _prose(text: str, indent: int = 0) -> str:
    """Sentences in lines that fit. Commands are never broken, so that they can be copied."""
    width = min(shutil.get_terminal_size().columns, _WIDEST)
    margin = " " * indent
    return textwrap.fill(text, max(width, 2 * indent + 20), initial_indent=margin, subsequent_indent=margin)
