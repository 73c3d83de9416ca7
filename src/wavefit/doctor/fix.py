"""Running the fixes that are safe, each after a question. Whatever reboots or deletes is never run, only printed."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from wavefit.schema import Finding, Fix

# A second lock beside Fix.safe: a check that marks such a command safe by mistake changes nothing.
_NEVER = re.compile(
    r"\b(reboot|shutdown|poweroff|halt|kexec|telinit|rm|rmdir|unlink|shred|wipefs|mkfs\S*|fdisk|parted|dd|truncate|"
    r"uninstall|purge|autoremove|remove|erase|grub\S*|update-grub|mokutil|efibootmgr|kernelstub|grubby|rpm-ostree|"
    r"rmmod|force-reinstall|userdel|groupdel|mv|init)\b|modprobe\s+(-r|--remove)|systemctl\s+(isolate|kexec)|"
    r"(?<![>0-9&])>(?!>|&)|\bcrontab\b|\bsed\s+-i|--delete\b|-delete\b"
)


@dataclass(frozen=True)
class Done:
    """What came of one command."""

    command: str
    outcome: Literal["ran", "failed", "declined", "printed"]
    code: int | None = None


def may_run(fix: Fix) -> bool:
    """Whether a fix may be offered to be run."""
    return fix.safe and _NEVER.search(fix.command) is None


def apply(
    findings: Iterable[Finding], ask: Callable[[Finding, Fix], bool], say: Callable[[str], None]
) -> list[Done]:
    """Goes through the fixes of what is not right, in order; after a command that fails the next ones are left.

    Args:
        ask: whether to run a command; it is asked for every command that may be run, and for no other.
        say: a line for people.
    """
    done: list[Done] = []
    tried: set[str] = set()
    for finding in findings:
        by_hand = False
        for fix in finding.fixes if finding.status != "ok" else ():
            if fix.command in tried:
                continue
            tried.add(fix.command)
            by_hand = by_hand or not may_run(fix)
            if by_hand:  # what follows a step that nobody has taken yet waits for it
                say(f"to run by hand: {fix.command}")
                done.append(Done(fix.command, "printed"))
                continue
            done.append(_offer(finding, fix, ask, say))
            if done[-1].outcome == "failed":
                return done
    return done


def _offer(
    finding: Finding, fix: Fix, ask: Callable[[Finding, Fix], bool], say: Callable[[str], None]
) -> Done:
    if not ask(finding, fix):
        return Done(fix.command, "declined")
    code = subprocess.run(fix.command, shell=True, check=False).returncode  # it has pipes and variables
    if code != 0:
        say(f"it ended with exit code {code}: {fix.command}")
    return Done(fix.command, "failed" if code else "ran", code)
