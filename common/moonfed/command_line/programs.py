"""Shared parts of the command-line programs: errors as sentences and exit codes, and JSON output."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

from moonfed import errors
from moonfed.command_line.exit_codes import exit_code
from moonfed.observability import logs
from moonfed.version import RELEASE

if TYPE_CHECKING:  # a device's long-lived process uses the exit codes without it
    import typer

INTERRUPTED = 128 + signal.SIGINT
FILE_ERROR, INTERRUPTION = "file-error", "interrupted"  # pages in docs/errors of what is no MoonfedError


def run_program(app: typer.Typer, name: str, *, extra: str = "") -> NoReturn:
    """Run a program: a MoonfedError becomes `name: one sentence (docs: PAGE)` on standard error and its exit code.

    `extra`: moonfed's optional dependencies that the program needs, for the advice when one is missing.
    """
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # errors are reported by us, once
    with errors_as_exit_codes(name):
        try:
            app(prog_name=name)
        except ModuleNotFoundError as error:
            raise missing_package(error, extra) from error
        except SystemExit as end:  # typer turns Ctrl-C into a silent exit
            if interrupt := _interrupt_behind(end):
                raise interrupt from None
            raise
    sys.exit(0)


@contextmanager
def errors_as_exit_codes(name: str) -> Iterator[None]:
    """End the process as `run_program` does if the body raises a MoonfedError, or an OSError about a file.

    A KeyboardInterrupt may carry a few words of advice, which follow the word "interrupted".
    """
    try:
        yield
    except errors.MoonfedError as error:
        code = exit_code(error)
        _report(name, str(error), error.slug, code)
        sys.exit(code)
    except BrokenPipeError:  # the reader of our output closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(1)
    except OSError as error:
        if error.filename is None:
            raise
        _report(name, f"{error.filename}: {error.strerror}", FILE_ERROR, 1)
        sys.exit(1)
    except KeyboardInterrupt as interrupt:
        _report(name, "; ".join(("interrupted", *map(str, interrupt.args))), INTERRUPTION, INTERRUPTED)
        sys.exit(INTERRUPTED)


def _report(name: str, sentence: str, slug: str, code: int) -> None:
    """Write a program's last sentence, with the page that explains it."""
    logs.report(name, errors.with_reference(sentence, slug), docs=f"errors/{slug}", exit_code=code)


def _interrupt_behind(end: SystemExit) -> KeyboardInterrupt | None:
    """Return the Ctrl-C that led to this exit, if one did."""
    error: BaseException | None = end
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error


def missing_package(error: ModuleNotFoundError, extra: str) -> errors.NotFound:
    """Return the error about a package that is not installed, with the command that installs moonfed's extra."""
    return errors.NotFound(f"the package {error.name!r} is not installed; run {pip_install(extra)}")


def pip_install(extra: str) -> str:
    """Return the command that installs an extra; pip asks no package index for the moonfed that is installed."""
    return f"pip install 'moonfed[{extra}]'"


def new_app(help_text: str) -> typer.Typer:
    """Return a typer application with moonfed's conventions: `--version`, help without arguments, plain tracebacks.

    Its options `--install-completion` and `--show-completion` complete commands and options in the user's shell.
    """
    import typer

    from moonfed.command_line.group import Commands

    app = Commands(help=help_text, pretty_exceptions_enable=False, rich_markup_mode=None)

    @app.callback()
    def main(
        version: bool = typer.Option(
            False, "--version", help="Print the release and exit.", callback=_version, is_eager=True
        ),
    ) -> None:
        pass

    main.__doc__ = help_text
    return app


def new_group(help_text: str) -> typer.Typer:
    """Return a group of commands, to be added to an application."""
    from moonfed.command_line.group import Commands

    return Commands(help=help_text)


def print_json(document: object) -> None:
    """Print one line of JSON to standard output."""
    print(json.dumps(document, separators=(", ", ": ")), flush=True)


def _version(asked: bool) -> None:
    import typer

    if asked:
        print(f"moonfed {RELEASE}")
        raise typer.Exit
