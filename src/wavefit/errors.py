"""What a user did that cannot be done, said in one sentence."""

from __future__ import annotations


class InputError(Exception):
    """A bad model, file, option or data set.

    The command line prints it as one line and exits with 2, and nothing has been written by then.

    Args:
        what: what is wrong, naming the file, node or value.
        fix: what to do about it, or "" where the sentence already says it.
    """

    def __init__(self, what: str, fix: str = "") -> None:
        self.what = what
        self.fix = fix
        super().__init__(f"{what}; {fix}" if fix else what)


class RouteError(Exception):
    """A route could not open or run a plan. It becomes the failure in that plan's Record.

    Args:
        reason: what happened, with the runtime's own words where they help.
        fix: the command or setting that mends it, or "" where none is known.
    """

    def __init__(self, reason: str, fix: str = "") -> None:
        self.reason = reason
        self.fix = fix
        super().__init__(f"{reason}; {fix}" if fix else reason)
