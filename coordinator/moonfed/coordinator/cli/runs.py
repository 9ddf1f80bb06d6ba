"""moonfed-coordinator run …: start, list, show, watch, stop, prune and delete runs."""

from __future__ import annotations

from typing import Annotated

import typer

from moonfed.command_line import print_json
from moonfed.coordinator.cli.options import KeepEveryOption, KeepLastOption
from moonfed.coordinator.cli.run_start import start
from moonfed.operator import DEFAULT_IDENTITY, CoordinatorOption, IdentityOption, InsecureOption, JsonOption

HELP = """Runs: rounds of training, from a bundle to a finished model.

Example: moonfed-coordinator run start digits-bundle --rounds 10
"""

run_app = typer.Typer(help=HELP, no_args_is_help=True)
run_app.command()(start)
RunArgument = Annotated[str, typer.Argument(help="The run's name.", show_default=False)]


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
    from moonfed.coordinator.cli.control_client import connect
    from moonfed.coordinator.cli.format import moment, run_document, run_status, table
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
            f"{run.round} of {run.settings.rounds}",
            moment(run.created),
            run.waiting,
        ]
        for run in runs
    ]
    typer.echo("\n".join(table(["run", "method", "status", "rounds", "started", "waiting"], rows)))


@run_app.command()
def show(
    run: RunArgument,
    identity: IdentityOption = DEFAULT_IDENTITY,
    insecure: InsecureOption = False,
    coordinator: CoordinatorOption = None,
    json: JsonOption = False,
) -> None:
    """Show a run: its rounds with their metrics, and what it waits for.

    Example: moonfed-coordinator run show digits
    """
    from moonfed.coordinator.cli.control_client import connect
    from moonfed.coordinator.cli.format import round_document, run_document, run_lines
    from moonfed.v1 import control_pb2

    with connect(identity, insecure=insecure, address=coordinator) as console:
        found = console.ask(console.control.GetRun, control_pb2.GetRunRequest(run=run))
        rule = console.server_rule(found)
        rounds = console.rounds(run)
    if json:
        told = {"server_rule": rule, "rounds": [round_document(round_) for round_ in rounds]}
        print_json(run_document(found) | told)
    else:
        typer.echo("\n".join(run_lines(found, rule, rounds)))


@run_app.command()
def watch(
    run: RunArgument,
    identity: IdentityOption = DEFAULT_IDENTITY,
    insecure: InsecureOption = False,
    coordinator: CoordinatorOption = None,
    json: Annotated[bool, typer.Option("--json", help="One line of JSON per event.")] = False,
) -> None:
    """Follow a run until it ends, across coordinator restarts.

    Only --json prints the devices' progress within a round.

    Example: moonfed-coordinator run watch digits
    """
    from moonfed.coordinator.cli.control_client import connect
    from moonfed.coordinator.cli.format import event_document, event_line
    from moonfed.v1 import control_pb2

    last = ""
    with connect(identity, insecure=insecure, address=coordinator) as console:
        for event in console.follow(run, lambda problem: typer.echo(f"{problem}; retrying", err=True)):
            if json:
                print_json(event_document(event))
            elif event.kind != control_pb2.EVENT_KIND_PROGRESS and (line := event_line(event)) != last:
                print(line, flush=True)  # an ended run's last event repeats its first line
                last = line


@run_app.command()
def stop(
    run: RunArgument,
    identity: IdentityOption = DEFAULT_IDENTITY,
    insecure: InsecureOption = False,
    coordinator: CoordinatorOption = None,
    json: JsonOption = False,
) -> None:
    """Stop a run for good; its global models are kept.

    Example: moonfed-coordinator run stop digits
    """
    from moonfed.coordinator.cli.control_client import connect
    from moonfed.coordinator.cli.format import run_document, snapshot_line
    from moonfed.v1 import control_pb2

    with connect(identity, insecure=insecure, address=coordinator) as console:
        found = console.ask(console.control.StopRun, control_pb2.StopRunRequest(run=run))
    if json:
        print_json(run_document(found))
    else:
        typer.echo(snapshot_line(found))


@run_app.command()
def prune(
    run: RunArgument,
    keep_last: KeepLastOption = 20,
    keep_every: KeepEveryOption = 100,
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
    retention = control_pb2.Retention(last=kept.last, every=kept.every)
    with connect(identity, insecure=insecure, address=coordinator) as console:
        # Not retried: a second attempt would find nothing left to delete, and report 0.
        reply = console.ask_once(console.control.PruneRun, control_pb2.PruneRunRequest(run=run, retention=retention))
    if json:
        print_json({"models": reply.models, "bytes": reply.bytes})
    else:
        typer.echo(f"deleted {reply.models} global models of run {run}, freeing {reply.bytes / 1e6:.1f} MB")


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
            question = f"Delete run {run} with the models of its {found.round} rounds?"
            typer.confirm(question, abort=True, err=True)
        reply = console.ask_once(console.control.DeleteRun, control_pb2.DeleteRunRequest(run=run))
    if json:
        print_json({"bytes": reply.bytes})
    else:
        typer.echo(f"deleted run {run}, freeing {reply.bytes / 1e6:.1f} MB")
