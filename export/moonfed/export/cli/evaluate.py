"""The command that scores a run's global models, beside the run or afterwards."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from moonfed.command_line import print_json
from moonfed.export.cli.options import PROGRAM, RunArgument, print_away
from moonfed.operator import DEFAULT_IDENTITY, CoordinatorOption, IdentityOption, InsecureOption, JsonOption

if TYPE_CHECKING:
    from moonfed.export.evaluator import RoundScore


def evaluate(
    run: RunArgument,
    data: Annotated[Path, typer.Option(metavar="TEST.npz", help="Held-out `inputs` and `labels`.")],
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on with every new global model until the run ends.")
    ] = False,
    identity: IdentityOption = DEFAULT_IDENTITY,
    insecure: InsecureOption = False,
    coordinator: CoordinatorOption = None,
    as_json: JsonOption = False,
) -> None:
    """Score a run's global models on held-out data and keep accuracy and loss with the run.

    Models that have metrics already are left alone. With --json, one line for each model.

    Example: moonfed-export evaluate my-run --data test.npz --follow
    """
    from moonfed.export.coordinator_client import connect
    from moonfed.export.evaluator import open_evaluator

    with connect(identity, insecure=insecure, address=coordinator) as runs:
        printer = _ScorePrinter(as_json)
        evaluator = open_evaluator(runs, run, data, scored=printer, away=print_away, patient=follow)
        if follow:
            evaluator.follow()
        else:
            evaluator.catch_up()
        if not printer.used and not as_json:
            print(f"{PROGRAM}: every global model of run {run!r} has its metrics already", file=sys.stderr)


class _ScorePrinter:
    """Prints each score as it comes."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self.used = False

    def __call__(self, result: RoundScore) -> None:
        self.used = True
        if self._as_json:
            print_json({"round": result.round, **asdict(result.score), "seconds": round(result.seconds, 3)})
        else:
            print(
                f"round {result.round:3d}  accuracy {result.score.accuracy:.4f}  loss {result.score.loss:.4f}  "
                f"({result.seconds:.1f} s)",
                flush=True,
            )
