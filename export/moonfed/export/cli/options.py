"""Arguments and progress messages that several commands share."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from moonfed.errors import Unavailable

PROGRAM = "moonfed-export"

RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="The run's name.")]


def print_unavailable(error: Unavailable) -> None:
    """Print that the coordinator is unavailable."""
    print(f"{PROGRAM}: {error}; retrying", file=sys.stderr, flush=True)


def print_step(step: str) -> None:
    """Print the step that is starting."""
    print(f"{PROGRAM}: {step}", file=sys.stderr, flush=True)
