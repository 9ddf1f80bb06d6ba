"""The command that scores a run's global models, during the run or afterwards."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from moonfed.cli.options import (
    PROGRAM,
    IgnoreFolderOption,
    RunArgument,
    TargetOption,
    TestDataOption,
    print_unavailable,
)
from moonfed.command_line.log_options import LogFormatOption, LogLevelOption
from moonfed.command_line.programs import print_json
from moonfed.formatting import measured
from moonfed.observability.logs import MESSAGE, configure_logs, report
from moonfed.transport.operator_options import FindEndpoint, TrustOption, operator_options

if TYPE_CHECKING:
    from moonfed.export.evaluator import RoundScore


@operator_options
def evaluate(
    endpoint: FindEndpoint,
    run: RunArgument,
    data: TestDataOption,
    target: TargetOption = "",
    ignore_folder: IgnoreFolderOption = None,
    test_set: Annotated[
        str,
        typer.Option("--test-set", metavar="NAME", help="Name of the test set; models can be scored on several."),
    ] = "test",
    metrics: Annotated[
        list[str] | None,
        typer.Option(
            "--metric",
            metavar="NAME",
            help="Also compute this metric of an installed package; repeatable.",
        ),
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Also score models that already have a score on this set.")
    ] = False,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE.png", help="Draw the last scored model's confusion matrix.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Score every new global model until the run ends.")] = False,
    trust: TrustOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON per model.")] = False,
    log_format: LogFormatOption = "text",
    log_level: LogLevelOption = "warning",
) -> None:
    """Score a run's global models on a test set, and record the results with the run.

    Records the task's metrics and the loss; for classes, also precision, recall, the confusion matrix and, unless they
    are of pixels, the calibration error. Models that already have these figures on a test set of this name are skipped.
    With --json, prints one line per model.

    Example: moonfed-export evaluate my-run --data night.npz --test-set night --follow
    """
    from moonfed.control.confusion_picture import draw_confusion, require_picture
    from moonfed.data.open_source import open_source
    from moonfed.export.coordinator_client import connect
    from moonfed.export.evaluator import newest_score, open_evaluator

    configure_logs(log_format, log_level, MESSAGE)
    source = open_source(data, target, ignored_folders=ignore_folder or ())
    if picture:
        require_picture(picture)
    with connect(endpoint(), trust=trust) as runs:
        printer = _ScorePrinter(as_json)
        evaluator = open_evaluator(
            runs,
            run,
            source,
            test_set=test_set,
            metrics=metrics or [],
            again=again,
            on_score=printer,
            on_unavailable=print_unavailable,
            wait=follow,
        )
        if follow:
            evaluator.follow()
        else:
            evaluator.catch_up()
        if not printer.last and not as_json:
            sentence = f"every global model of run {run!r} has a score on {test_set!r}"
            report(PROGRAM, sentence, level=logging.INFO, run=run)
        if picture and (last := printer.last or newest_score(runs.scores(run, test_set))):
            draw_confusion(picture, last.score, f"run {run}, round {last.round}, test set {test_set}")


class _ScorePrinter:
    """A callback that prints each score."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self.last: RoundScore | None = None

    def __call__(self, result: RoundScore) -> None:
        self.last = result
        if self._as_json:
            print_json({"round": result.round, **result.score.to_json(), "seconds": round(result.seconds, 3)})
        else:
            unit_of, shown = result.score.metric.unit_of, result.score.described().items()
            values = "  ".join(f"{name} {measured(value, unit_of(name))}" for name, value in shown)
            print(f"round {result.round:3d}  {values}  ({result.seconds:.1f} s)", flush=True)
