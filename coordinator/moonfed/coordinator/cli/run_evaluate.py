"""The command `run evaluate`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from moonfed.command_line.programs import print_json
from moonfed.coordinator.cli.options import RunArgument
from moonfed.transport.operator_options import (
    DEFAULT_IDENTITY,
    CoordinatorOption,
    IdentityOption,
    InsecureOption,
    JsonOption,
)

if TYPE_CHECKING:
    from moonfed.coordinator.cli.control_client import Console
    from moonfed.v1 import control_pb2

POLL_SECONDS = 1.0


def evaluate(
    run: RunArgument,
    round_number: Annotated[
        int | None,
        typer.Option("--round", metavar="N", help="The round; 0: the initial model. Default: the newest.", min=0),
    ] = None,
    deadline: Annotated[
        float, typer.Option(help="Seconds after which the evaluation ends, even if devices have not answered.")
    ] = (3600.0),
    again: Annotated[bool, typer.Option("--again", help="Repeat an evaluation that has ended.")] = False,
    identity: IdentityOption = DEFAULT_IDENTITY,
    insecure: InsecureOption = False,
    coordinator: CoordinatorOption = None,
    json: JsonOption = False,
) -> None:
    """Have devices score a run's global model on their holdouts, along with their own latest models.

    Waits until the run's devices have answered. If you interrupt the command, the evaluation continues; the same
    command waits for it again. Each device reports only three counts of samples.

    Example: moonfed-coordinator run evaluate digits
    """
    from moonfed.coordinator.cli.control_client import connect
    from moonfed.coordinator.cli.format_evaluations import device_evaluation_lines
    from moonfed.coordinator.documents.evaluations import device_evaluation_document
    from moonfed.v1 import control_pb2

    request = control_pb2.EvaluateRunRequest(run=run, round=round_number, deadline_seconds=deadline, again=again)
    with connect(identity, insecure=insecure, address=coordinator) as console:
        found = console.ask(console.control.EvaluateRun, request)
        if not found.closed:
            typer.echo(f"devices evaluate global model {found.round} of run {run}", err=True)
            found = _ended(console, found)
    if json:
        print_json(device_evaluation_document(found))
    else:
        typer.echo("\n".join(device_evaluation_lines(found)))


def _ended(console: Console, began: control_pb2.DeviceEvaluation) -> control_pb2.DeviceEvaluation:
    """Wait for the end of an evaluation, or of the one that replaced it, and report the number of answers."""
    from moonfed.errors import NotFound, Unavailable

    answers = -1
    while True:
        try:
            found = [found.devices for found in console.evaluations(began.run) if found.HasField("devices")]
            own = next((each for each in found if each.round == began.round), None)
            if own is None:
                raise NotFound(f"the evaluation of global model {began.round} of run {began.run!r} was deleted")
            if own.closed:
                return own
            answered = len(own.scores) + sum(len(group.devices) for group in own.skipped)
            if answered != answers:
                answers = answered
                typer.echo(f"{answered:,} of {answered + len(own.waiting):,} devices have answered", err=True)
        except Unavailable as problem:
            typer.echo(f"{problem}; retrying", err=True)
        time.sleep(POLL_SECONDS)
