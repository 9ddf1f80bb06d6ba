"""The command `run evaluate`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from moonfed.command_line.programs import print_json
from moonfed.coordinator.cli.options import RunArgument
from moonfed.transport.operator_options import FindEndpoint, JsonOption, operator_options

if TYPE_CHECKING:
    from moonfed.client import Coordinator, Evaluation

POLL_SECONDS = 1.0


@operator_options
def evaluate(
    endpoint: FindEndpoint,
    run: RunArgument,
    round_number: Annotated[
        int | None,
        typer.Option("--round", metavar="N", help="The round; 0: the initial model. Default: the newest.", min=0),
    ] = None,
    deadline: Annotated[
        float, typer.Option(help="Seconds after which the evaluation ends, even if devices have not answered.")
    ] = (3600.0),
    again: Annotated[bool, typer.Option("--again", help="Repeat an evaluation that has ended.")] = False,
    without_privacy: Annotated[
        bool,
        typer.Option(
            "--without-privacy",
            help="Evaluate a run with differential privacy, too; the privacy ledger then names the scores.",
        ),
    ] = False,
    json: JsonOption = False,
) -> None:
    """Have devices score a run's global model on their holdouts, along with their own latest models.

    Waits until the run's devices have answered. If you interrupt the command, the evaluation continues; the same
    command waits for it again. Each device reports only the size of its holdout and two scores.

    Example: moonfed-coordinator run evaluate digits
    """
    from moonfed.client import Coordinator
    from moonfed.control.document import document
    from moonfed.coordinator.cli.format_evaluations import device_evaluation_lines

    with Coordinator(endpoint()) as client:
        found = client.evaluate(
            run, round=round_number, deadline=deadline, again=again, without_privacy=without_privacy, wait=False
        )
        if found.on_devices and not found.on_devices.closed:
            typer.echo(f"devices evaluate global model {found.round} of run {run}", err=True)
            found = _ended(client, found)
    if json:
        print_json(document(found))
    elif found.on_devices:
        typer.echo("\n".join(device_evaluation_lines(found.on_devices)))


def _ended(client: Coordinator, began: Evaluation) -> Evaluation:
    """Wait for the end of an evaluation, or of the one that replaced it, and report the number of answers."""
    from moonfed.errors import NotFound, Unavailable

    answers = -1
    while True:
        try:
            found = [found for found in client.evaluations(began.run) if found.round == began.round]
            evaluation, own = next(((one, one.on_devices) for one in found if one.on_devices), (began, None))
            if own is None:
                raise NotFound(f"the evaluation of global model {began.round} of run {began.run!r} was deleted")
            if own.closed:
                return evaluation
            answered = len(own.scores) + sum(len(group.devices) for group in own.skipped)
            if answered != answers:
                answers = answered
                typer.echo(f"{answered:,} of {answered + len(own.waiting):,} devices have answered", err=True)
        except Unavailable as problem:
            typer.echo(f"{problem}; retrying", err=True)
        time.sleep(POLL_SECONDS)
