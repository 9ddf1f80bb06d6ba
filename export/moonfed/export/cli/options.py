"""Arguments and progress messages that several commands share."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from moonfed.errors import Unavailable

PROGRAM = "moonfed-export"

SignersOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--sign",
        metavar="KEY",
        help="Sign with this private key; repeatable. Default: your own key, created if there is none.",
    ),
]
ExpiresOption = Annotated[
    float, typer.Option("--expires-days", metavar="DAYS", help="Lifetime of the signature, after which it is rejected.")
]
BundleVersionOption = Annotated[
    int | None,
    typer.Option(
        "--bundle-version",
        metavar="N",
        help="The signed version; devices reject versions older than one they have accepted. Default: the time.",
        show_default=False,
    ),
]
RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="The run's name.")]


def print_unavailable(error: Unavailable) -> None:
    """Print that the coordinator is unavailable."""
    print(f"{PROGRAM}: {error}; retrying", file=sys.stderr, flush=True)


def print_step(step: str) -> None:
    """Print the step that is starting."""
    print(f"{PROGRAM}: {step}", file=sys.stderr, flush=True)
