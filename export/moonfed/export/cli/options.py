"""What several commands share: their arguments, and how they talk to people."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from moonfed.errors import Unavailable

PROGRAM = "moonfed-export"

RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="The run's name.")]


def print_away(problem: Unavailable) -> None:
    """Says that the coordinator is away."""
    print(f"{PROGRAM}: {problem}; trying again", file=sys.stderr, flush=True)


def print_step(step: str) -> None:
    """Says what takes a while now."""
    print(f"{PROGRAM}: {step}", file=sys.stderr, flush=True)
