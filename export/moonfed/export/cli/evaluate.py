"""The command that scores a run's global models, during the run or afterwards."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from moonfed.command_line import print_json
from moonfed.export.cli.options import PROGRAM, RunArgument, print_unavailable
from moonfed.operator import (
    DEFAULT_IDENTITY,
    CoordinatorOption,
    IdentityOption,
    InsecureOption,
    JsonOption,
    TrustOption,
)

if TYPE_CHECKING:
    from moonfed.export.evaluator import RoundScore


def evaluate(
    run: RunArgument,
    data: Annotated[Path, typer.Option(metavar="TEST.npz", help="Held-out `inputs` and `labels`.")],
    follow: Annotated[bool, typer.Option("--follow", help="Score every new global model until the run ends.")] = False,
    trust: TrustOption = None,
    identity: IdentityOption = DEFAULT_IDENTITY,
    insecure: InsecureOption = False,
    coordinator: CoordinatorOption = None,
    as_json: JsonOption = False,
) -> None:
    """Score a run's global models on held-out data and record accuracy and loss with the run.

    Models that already have metrics are skipped. With --json, prints one line per model.

    Example: moonfed-export evaluate my-run --data test.npz --follow
    """
    from moonfed.export.coordinator_client import connect
    from moonfed.export.evaluator import open_evaluator

    with connect(identity, insecure=insecure, address=coordinator, trust=trust) as runs:
        printer = _ScorePrinter(as_json)
        evaluator = open_evaluator(runs, run, data, on_score=printer, on_unavailable=print_unavailable, wait=follow)
        if follow:
            evaluator.follow()
        else:
            evaluator.catch_up()
        if not printer.printed and not as_json:
            print(f"{PROGRAM}: every global model of run {run!r} already has metrics", file=sys.stderr)


class _ScorePrinter:
    """A callback that prints each score."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self.printed = False

    def __call__(self, result: RoundScore) -> None:
        self.printed = True
        if self._as_json:
            print_json({"round": result.round, **asdict(result.score), "seconds": round(result.seconds, 3)})
        else:
            print(
                f"round {result.round:3d}  accuracy {result.score.accuracy:.4f}  loss {result.score.loss:.4f}  "
                f"({result.seconds:.1f} s)",
                flush=True,
            )
