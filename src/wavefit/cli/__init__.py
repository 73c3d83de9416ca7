"""The command line: one file a verb, found by its name. A verb only reads options and shows results."""

from __future__ import annotations

import errno
import importlib
import io
import os
import pkgutil
import sys

import typer

from wavefit.cli._stop import Stopped
from wavefit.errors import InputError, RouteError

BAD_INPUT = 2
FAILED = 1
INTERRUPTED = 130

# What the machine can refuse at any write or read; other errors are bugs, whose traceback should be seen.
_OF_THE_MACHINE = {
    errno.ENOSPC,
    errno.EDQUOT if hasattr(errno, "EDQUOT") else errno.ENOSPC,
    errno.EROFS,
    errno.EACCES,
    errno.EPERM,
    errno.EIO,
    errno.EMFILE,
    errno.ENFILE,
    errno.ENAMETOOLONG,
}


def main() -> None:
    """Runs the command line; bad input is one line on standard error and exit code 2."""
    # From 1.29 on ONNX Runtime's packages else send usage data and leave a file ".ses" in the folder for temporary
    # files (its pull request 27379): that disturbs a measurement, and nothing here may go over the network.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # None where it is closed
            stream.reconfigure(
                errors="replace"
            )  # a terminal without "\N{MULTIPLICATION SIGN}" still gets its table
    try:
        app()
    except InputError as error:
        _stop(str(error), BAD_INPUT)
    except RouteError as error:
        _stop(str(error), FAILED)
    except Stopped as stopped:
        _stop(stopped.said, 128 + stopped.number)
    except KeyboardInterrupt:
        _stop("stopped", INTERRUPTED)
    except OSError as error:
        if "temporary directory" in (error.strerror or ""):  # Python's own words where none can be written
            _stop("no folder for temporary files can be written; set TMPDIR to one that can", FAILED)
        if error.errno not in _OF_THE_MACHINE:
            raise
        where = f"{error.filename}: " if error.filename else ""
        _stop(f"{where}{error.strerror}", FAILED)


def _stop(text: str, code: int) -> None:
    sys.stderr.write("wavefit: " + " ".join(text.split()) + "\n")
    sys.exit(code)


def _make_app() -> typer.Typer:
    app = typer.Typer(
        name="wavefit",
        help="Fit a trained model to the AMD GPU at hand: measured on every route, answers proven unchanged.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_version)
    for entry in pkgutil.iter_modules(__path__):
        if not entry.name.startswith("_"):
            module = importlib.import_module(f"{__name__}.{entry.name}")
            if hasattr(module, "group"):  # a verb with verbs of its own
                app.add_typer(module.group, name=entry.name)
            else:
                app.command(entry.name.rstrip("_"))(module.command)
    return app


def _version(
    version: bool = typer.Option(False, "--version", help="Print the version and stop.", is_eager=True),
) -> None:
    if version:
        from wavefit import __version__

        typer.echo(__version__)
        raise typer.Exit


app = _make_app()
