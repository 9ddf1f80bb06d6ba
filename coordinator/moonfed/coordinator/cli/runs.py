"""moonfed-coordinator run …: start, list, show, watch, evaluate, export, pause, resume, stop, prune and delete runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from moonfed.command_line.programs import new_group, print_json
from moonfed.control.run_settings import DEFAULTS
from moonfed.coordinator.cli.options import AllOption, KeepEveryOption, KeepLastOption, RunArgument
from moonfed.coordinator.cli.run_evaluate import evaluate
from moonfed.coordinator.cli.run_export import export
from moonfed.coordinator.cli.run_start import start
from moonfed.coordinator.cli.run_watch import watch
from moonfed.coordinator.cli.run_weights import weights
from moonfed.formatting import count
from moonfed.sizes import human
from moonfed.transport.operator_options import (
    DEFAULT_IDENTITY,
    CoordinatorOption,
    IdentityOption,
    InsecureOption,
    JsonOption,
)

if TYPE_CHECKING:
    from moonfed.v1 import control_pb2

HELP = """Start, watch and manage runs, each of which trains the model of a bundle.

Example: moonfed-coordinator run start digits-bundle --rounds 10
"""

run_app = new_group(HELP)
run_app.command()(start)
run_app.command()(watch)
run_app.command()(evaluate)
run_app.command()(export)
run_app.command()(weights)


@run_app.command("list")
def list_runs(
    identity: IdentityOption = DEFAULT_IDENTITY,
    insecure: InsecureOption = False,
    coordinator: CoordinatorOption = None,
    json: JsonOption = False,
) -> None:
    """List all runs, oldest first.

    Example: moonfed-coordinator run list
    """
    from moonfed.control.run_settings import RunSettings
    from moonfed.coordinator.cli.control_client import connect
    from moonfed.coordinator.cli.format import moment
    from moonfed.coordinator.cli.layout import table, terminal_width
    from moonfed.coordinator.documents.runs import run_document
    from moonfed.coordinator.documents.values import run_status
    from moonfed.v1 import control_pb2

    with connect(identity, insecure=insecure, address=coordinator) as console:
        runs = console.ask(console.control.ListRuns, control_pb2.ListRunsRequest()).runs
    if json:
        print_json([run_document(run) for run in runs])
        return
    rows = [
        [
            run.run,
            run.method,
            run_status(run),
            f"{run.round} of {RunSettings.received(run.settings).rounds}",
            moment(run.created),
            run.reason or run.waiting,
        ]
        for run in runs
    ]
    heads = ["run", "method", "status", "rounds", "started", "waiting"]
    typer.echo("\n".join(table(heads, rows, terminal_width())))


@run_app.command()
def show(
    run: RunArgument,
    everything: AllOption = False,
    round_number: Annotated[
        int | None,
        typer.Option(
            "--round",
            metavar="N",
            help="Show only the attempts at this round, and the evaluations of its model.",
            min=1,
            max=2**32 - 1,
            show_default=False,
        ),
    ] = None,
    recipe: Annotated[
        bool, typer.Option("--recipe", help="Print the settings as a recipe, for run start and for simulations.")
    ] = False,
    identity: IdentityOption = DEFAULT_IDENTITY,
    insecure: InsecureOption = False,
    coordinator: CoordinatorOption = None,
    json: JsonOption = False,
) -> None:
    """Show a run: its settings, newest rounds with their metrics, evaluations, and the reason if it is waiting.

    Example: moonfed-coordinator run show digits

    Example: moonfed-coordinator run show digits --round 7 --all

    Example: moonfed-coordinator run show digits --recipe > recipe.toml
    """
    from moonfed.control.recipe import to_toml
    from moonfed.control.run_settings import RunSettings
    from moonfed.coordinator.cli.control_client import connect
    from moonfed.coordinator.cli.format_run import ROUNDS_READ, run_lines
    from moonfed.coordinator.cli.layout import terminal_width
    from moonfed.coordinator.documents.evaluations import evaluations_document
    from moonfed.coordinator.documents.runs import round_document, run_document
    from moonfed.errors import NotFound
    from moonfed.v1 import control_pb2

    with connect(identity, insecure=insecure, address=coordinator) as console:
        found = console.ask(console.control.GetRun, control_pb2.GetRunRequest(run=run))
        if recipe:
            typer.echo(to_toml(RunSettings.received(found.settings).to_document()), nl=False)
            return
        rule = console.server_rule(found)
        last = 0 if json or everything else ROUNDS_READ
        rounds = console.rounds(run, last=last, number=round_number or 0)
        if round_number and not rounds:
            raise NotFound(f"run {run!r} has no round {round_number} that has ended", field="run", value=run)
        evaluations = [one for one in console.evaluations(run) if round_number in (None, one.round)]
    if json:
        facts = {"server_rule": rule, "rounds": [round_document(round_) for round_ in rounds]}
        print_json(run_document(found) | facts | evaluations_document(evaluations))
    else:
        width = None if everything else terminal_width()
        typer.echo("\n".join(run_lines(found, rule, rounds, width, evaluations)))


@run_app.command()
def pause(
    run: RunArgument,
    identity: IdentityOption = DEFAULT_IDENTITY,
    insecure: InsecureOption = False,
    coordinator: CoordinatorOption = None,
    json: JsonOption = False,
) -> None:
    """Pause a run: devices finish their current work, which counts, and get no more until `run resume`.

    Example: moonfed-coordinator run pause digits
    """
    from moonfed.coordinator.cli.control_client import connect
    from moonfed.v1 import control_pb2

    with connect(identity, insecure=insecure, address=coordinator) as console:
        found = console.ask(console.control.PauseRun, control_pb2.PauseRunRequest(run=run))
    _report(found, json=json)


@run_app.command()
def resume(
    run: RunArgument,
    identity: IdentityOption = DEFAULT_IDENTITY,
    insecure: InsecureOption = False,
    coordinator: CoordinatorOption = None,
    json: JsonOption = False,
) -> None:
    """Resume a paused run.

    Example: moonfed-coordinator run resume digits
    """
    from moonfed.coordinator.cli.control_client import connect
    from moonfed.v1 import control_pb2

    with connect(identity, insecure=insecure, address=coordinator) as console:
        found = console.ask(console.control.ResumeRun, control_pb2.ResumeRunRequest(run=run))
    _report(found, json=json)


@run_app.command()
def stop(
    run: RunArgument,
    yes: Annotated[bool, typer.Option("--yes", help="Skip the confirmation.")] = False,
    identity: IdentityOption = DEFAULT_IDENTITY,
    insecure: InsecureOption = False,
    coordinator: CoordinatorOption = None,
    json: JsonOption = False,
) -> None:
    """Stop a run for good; its global models are kept.

    Example: moonfed-coordinator run stop digits --yes
    """
    from moonfed.control.run_settings import RunSettings
    from moonfed.coordinator.cli.control_client import connect
    from moonfed.v1 import control_pb2

    with connect(identity, insecure=insecure, address=coordinator) as console:
        found = console.ask(console.control.GetRun, control_pb2.GetRunRequest(run=run))
        if not yes and found.status in (control_pb2.RUN_STATUS_RUNNING, control_pb2.RUN_STATUS_PAUSED):
            rounds = RunSettings.received(found.settings).rounds
            question = f"Stop run {run} for good, after {found.round} of {rounds} rounds?"
            typer.confirm(question, abort=True, err=True)
        found = console.ask(console.control.StopRun, control_pb2.StopRunRequest(run=run))
    _report(found, json=json)


@run_app.command()
def prune(
    run: RunArgument,
    keep_last: KeepLastOption = DEFAULTS.keep_last,
    keep_every: KeepEveryOption = DEFAULTS.keep_every,
    identity: IdentityOption = DEFAULT_IDENTITY,
    insecure: InsecureOption = False,
    coordinator: CoordinatorOption = None,
    json: JsonOption = False,
) -> None:
    """Delete old global models of a run; its rounds stay on record.

    Example: moonfed-coordinator run prune digits --keep-last 1 --keep-every 0
    """
    from moonfed.coordinator.cli.control_client import connect
    from moonfed.coordinator.rounds.retention import Retention
    from moonfed.v1 import control_pb2

    kept = Retention(last=keep_last, every=keep_every)
    request = control_pb2.PruneRunRequest(run=run, keep_last=kept.last, keep_every=kept.every)
    with connect(identity, insecure=insecure, address=coordinator) as console:
        # Not retried: a second attempt would find nothing left to delete, and report 0.
        reply = console.ask_once(console.control.PruneRun, request)
    if json:
        print_json({"models": reply.models, "bytes": reply.bytes})
    else:
        models = count(reply.models, "global model")
        typer.echo(f"deleted {models} of run {run}, freeing {human(reply.bytes)}")


@run_app.command()
def delete(
    run: RunArgument,
    yes: Annotated[bool, typer.Option("--yes", help="Skip the confirmation.")] = False,
    identity: IdentityOption = DEFAULT_IDENTITY,
    insecure: InsecureOption = False,
    coordinator: CoordinatorOption = None,
    json: JsonOption = False,
) -> None:
    """Delete a run that has ended, with its rounds, metrics and models.

    Example: moonfed-coordinator run delete digits --yes
    """
    from moonfed.coordinator.cli.control_client import connect
    from moonfed.v1 import control_pb2

    with connect(identity, insecure=insecure, address=coordinator) as console:
        if not yes:
            found = console.ask(console.control.GetRun, control_pb2.GetRunRequest(run=run))
            question = f"Delete run {run} with the models of its {count(found.round, 'round')}?"
            typer.confirm(question, abort=True, err=True)
        reply = console.ask_once(console.control.DeleteRun, control_pb2.DeleteRunRequest(run=run))
    if json:
        print_json({"bytes": reply.bytes})
    else:
        typer.echo(f"deleted run {run}, freeing {human(reply.bytes)}")


def _report(run: control_pb2.Run, *, json: bool) -> None:
    from moonfed.coordinator.cli.format import snapshot_line
    from moonfed.coordinator.documents.runs import run_document

    if json:
        print_json(run_document(run))
    else:
        typer.echo(snapshot_line(run))
