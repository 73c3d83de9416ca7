"""The command line: one file a verb, found by its name. A verb only reads options and shows results."""

from __future__ import annotations

import importlib
import pkgutil
import sys

import typer

from wavefit.errors import InputError, RouteError

BAD_INPUT = 2
FAILED = 1
INTERRUPTED = 130


def main() -> None:
    """Runs the command line; bad input is one line on standard error and exit code 2."""
    try:
        app()
    except InputError as error:
        _stop(str(error), BAD_INPUT)
    except RouteError as error:
        _stop(str(error), FAILED)
    except KeyboardInterrupt:
        _stop("stopped; what was measured is kept, and the same command goes on from there", INTERRUPTED)


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
