"""Programs, groups and commands of typer whose help is complete and shows no types of Python."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from moonfed.errors import InvalidInput, with_reference

NO_LIMIT = 1000  # characters of a summary, which the formatter wraps
_TYPE = re.compile(r" <([^>]+)>$")  # typer shows those of parameters, such as <list[path]> and <int range>
_VALUES = {"str": "TEXT", "path": "PATH", "int": "N", "int range": "N", "float": "NUMBER", "float range": "NUMBER"}


class Command(TyperCommand):
    """A command; its arguments are shown by their names alone, its options with the kind of value."""

    def format_options(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - typer's or click's, by release
        """Write the lists of arguments and options."""
        shown = [(param, param.get_help_record(ctx)) for param in self.get_params(ctx)]
        for title, kind in (("Arguments", "argument"), ("Options", "option")):
            records = [record for param, record in shown if record and param.param_type_name == kind]
            if records:
                with formatter.section(title):
                    formatter.write_dl([(without_type(name, kind), text) for name, text in records])


def without_type(name: str, kind: str) -> str:
    """Return how help shows a parameter: without its Python type."""
    return _TYPE.sub("" if kind == "argument" else lambda found: f" {_VALUES.get(found[1], found[1].upper())}", name)


@contextmanager
def _referring() -> Iterator[None]:
    """Add the documentation page to errors about the command line, as other errors have it."""
    try:
        yield
    except Exception as error:
        describe = getattr(error, "format_message", str)  # of typer's UsageError, or click's, by release
        if describe is not str and "\n" not in (sentence := describe().rstrip(".")):  # else it is the help
            message = with_reference(sentence, InvalidInput.slug)
            error.format_message = lambda: message  # type: ignore[attr-defined]
        raise


class CommandGroup(TyperGroup):
    """A group of commands; typer's own would cut the summaries at the terminal's width."""

    def make_context(self, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - typer's or click's
        """Parse the group's own options."""
        with _referring():
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401
        """Parse and run a command of the group."""
        with _referring():
            return super().invoke(ctx)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - typer's or click's, by release
        """Write the list of commands."""
        named = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [
            (name, command.get_short_help_str(NO_LIMIT)) for name, command in named if command and not command.hidden
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


class Commands(typer.Typer):
    """A program, or a group of its commands."""

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401 - typer's
        super().__init__(cls=CommandGroup, no_args_is_help=True, **settings)

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Any], Any]:  # noqa: ANN401
        """Register a function as a command."""
        return super().command(name, cls=Command, **settings)
