"""Arguments and progress messages that several commands share."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from moonfed.data.formats import IGNORE_FOLDER_HELP, METAVAR, TARGET_HELP
from moonfed.observability.logs import report

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
    float, typer.Option("--expires-days", metavar="DAYS", help="Lifetime of the signature in days.")
]
BundleVersionOption = Annotated[
    int | None,
    typer.Option(
        "--bundle-version",
        metavar="N",
        help="The signed version; devices reject versions older than one they have accepted. Default: the Unix time.",
        show_default=False,
    ),
]
TestDataOption = Annotated[
    str, typer.Option("--data", metavar=METAVAR, help="Held-out samples: a folder of images by class, a .npz, .csv or "
                      ".parquet file, or a function.")
]  # fmt: skip
TargetOption = Annotated[str, typer.Option("--target", metavar="COLUMN", help=TARGET_HELP)]
IgnoreFolderOption = Annotated[
    list[str] | None, typer.Option("--ignore-folder", metavar="NAME", help=IGNORE_FOLDER_HELP)
]
RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="The run's name.")]


def print_unavailable(error: Unavailable) -> None:
    """Print that the coordinator is unavailable."""
    report(PROGRAM, f"{error}; retrying", level=logging.WARNING, docs=error.docs)


def print_step(step: str) -> None:
    """Print the step that is starting."""
    print(f"{PROGRAM}: {step}", file=sys.stderr, flush=True)
