"""What the doctor shows: the stack, then what was found, problems first. 80 columns, and readable without colour."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from wavefit.device.files import printable
from wavefit.doctor.stack import LAYERS, Examination
from wavefit.schema import Finding, Fix, Part

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

_STATES = {"ok": "green", "missing": "yellow", "broken": "bold red", "unused": "dim", "unknown": "dim"}
_ORDER = ("problem", "unknown", "note")
_STYLES = {"problem": "bold red", "unknown": "yellow", "note": "cyan"}


def screen(examination: Examination) -> RenderableType:
    """The whole screen."""
    from rich.console import Group

    parts: list[RenderableType] = [
        _text(examination.machine or "operating system unknown", "bold"),
        _text(""),
    ]
    parts += [_stack(examination), _text("")]
    for status in _ORDER:
        for finding in examination.findings:
            if finding.status == status:
                parts += [_finding(finding), _text("")]
    parts += _fine(examination.findings)
    return Group(*parts, _text(examination.sentence, "bold"))


def _text(text: str, style: str = "") -> RenderableType:
    from rich.text import Text

    return Text(printable(text), style=style)


def _grid(*widths: int) -> Table:
    """Columns of fixed width, and one that takes the rest."""
    from rich.table import Table

    table = Table.grid(padding=(0, 1, 0, 0))
    for width in widths:
        table.add_column(width=width, no_wrap=True)
    table.add_column(overflow="fold")
    return table


def _stack(examination: Examination) -> Table:
    table = _grid(11, 7)
    for layer in (*LAYERS, "environment"):
        rows = [
            (_text(part.state, _STATES[part.state]), _text(_line(part)))
            for part in examination.stack
            if part.layer == layer
        ]
        broken = sum(each.layer == layer and each.status == "problem" for each in examination.findings)
        if broken:
            said = "1 problem, see below" if broken == 1 else f"{broken} problems, see below"
            rows.append((_text("broken", _STATES["broken"]), _text(f"<- {said}", "bold red")))
        for number, row in enumerate(rows):
            table.add_row(_text("" if number else layer, "bold"), *row)
    return table


def _line(part: Part) -> str:
    name = f"{part.name} {part.version}" if part.version else part.name
    return f"{name}: {part.detail}" if part.detail else name


def _finding(finding: Finding) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    heading = _grid(len(finding.status))
    title = Text.assemble((printable(finding.title), "bold"), (f"  [{finding.check}]", "dim"))
    heading.add_row(_text(finding.status, _STYLES[finding.status]), title)
    table = _grid(1, 6)
    for number, line in enumerate(finding.evidence):
        table.add_row("", _text("" if number else "seen", "dim"), _text(line))
    if finding.cause:
        table.add_row("", _text("cause", "dim"), _text(finding.cause))
    for number, fix in enumerate(finding.fixes):
        table.add_row("", _text("" if number else "fix", "dim"), _fix(fix))
    if finding.verify:
        table.add_row("", _text("verify", "dim"), _text(f"$ {finding.verify}"))
    return Group(heading, table)


def _fix(fix: Fix) -> RenderableType:
    from rich.text import Text

    notes = ", ".join(note for note in (fix.why, "--fix runs it" if fix.safe else "") if note)
    text = f"  ({printable(notes)})" if notes else ""
    return Text.assemble((f"$ {printable(fix.command)}", "bold"), (text, "dim"))


def _fine(findings: Sequence[Finding]) -> list[RenderableType]:
    """What is right takes one line each, without its evidence."""
    fine = [finding for finding in findings if finding.status == "ok"]
    if not fine:
        return []
    table = _grid(7)
    for finding in fine:
        table.add_row(_text("ok", "green"), _text(finding.title))
    return [table, _text("")]
