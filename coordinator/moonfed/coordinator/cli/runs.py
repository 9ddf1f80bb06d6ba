"""moonfed-coordinator run …: start, list, show, watch, evaluate, export, pause, resume, stop, prune and delete runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

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
from moonfed.transport.operator_options import FindEndpoint, JsonOption, operator_options

if TYPE_CHECKING:
    from moonfed.client import Coordinator, Run

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
@operator_options
def list_runs(
    endpoint: FindEndpoint,
    json: JsonOption = False,
) -> None:
    """List all runs, oldest first.

    Example: moonfed-coordinator run list
    """
    from moonfed.client import Coordinator
    from moonfed.control.document import document
    from moonfed.coordinator.cli.format import moment
    from moonfed.coordinator.cli.layout import table, terminal_width

    with Coordinator(endpoint()) as client:
        runs = client.runs()
    if json:
        print_json(document(runs))
        return
    rows = [
        [
            run.run,
            run.method,
            run.status,
            f"{run.round} of {run.rounds}",
            moment(run.created),
            run.reason or run.waiting,
        ]
        for run in runs
    ]
    heads = ["run", "method", "status", "rounds", "started", "waiting"]
    typer.echo("\n".join(table(heads, rows, terminal_width())))


@run_app.command()
@operator_options
def show(
    endpoint: FindEndpoint,
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
    json: JsonOption = False,
) -> None:
    """Show a run: its settings, newest rounds with their metrics, evaluations, and the reason if it is waiting.

    Example: moonfed-coordinator run show digits

    Example: moonfed-coordinator run show digits --round 7 --all

    Example: moonfed-coordinator run show digits --recipe > recipe.toml
    """
    from moonfed.client import Coordinator
    from moonfed.control.document import document
    from moonfed.control.recipe import to_toml
    from moonfed.coordinator.cli.format_run import ROUNDS_READ, run_lines
    from moonfed.coordinator.cli.layout import terminal_width
    from moonfed.errors import NotFound

    with Coordinator(endpoint()) as client:
        found = client.run(run)
        if recipe:
            typer.echo(to_toml(found.settings.to_document()), nl=False)
            return
        rule = _server_rule(client, found)
        last = 0 if json or everything else ROUNDS_READ
        rounds = client.rounds(run, last=last, round=round_number or 0)
        if round_number and not rounds:
            raise NotFound(f"run {run!r} has no round {round_number} that has ended", field="run", value=run)
        evaluations = [one for one in client.evaluations(run) if round_number in (None, one.round)]
    if json:
        facts = {"server_rule": rule, "rounds": rounds, "evaluations": evaluations}
        print_json(document(found) | document(facts))
    else:
        width = None if everything else terminal_width()
        typer.echo("\n".join(run_lines(found, rule, rounds, width, evaluations)))


@run_app.command()
@operator_options
def pause(
    endpoint: FindEndpoint,
    run: RunArgument,
    json: JsonOption = False,
) -> None:
    """Pause a run: devices finish their current work, which counts, and get no more until `run resume`.

    Example: moonfed-coordinator run pause digits
    """
    from moonfed.client import Coordinator

    with Coordinator(endpoint()) as client:
        found = client.pause(run)
    _report(found, json=json)


@run_app.command()
@operator_options
def resume(
    endpoint: FindEndpoint,
    run: RunArgument,
    json: JsonOption = False,
) -> None:
    """Resume a paused run.

    Example: moonfed-coordinator run resume digits
    """
    from moonfed.client import Coordinator

    with Coordinator(endpoint()) as client:
        found = client.resume(run)
    _report(found, json=json)


@run_app.command()
@operator_options
def stop(
    endpoint: FindEndpoint,
    run: RunArgument,
    yes: Annotated[bool, typer.Option("--yes", help="Skip the confirmation.")] = False,
    json: JsonOption = False,
) -> None:
    """Stop a run for good; its global models are kept.

    Example: moonfed-coordinator run stop digits --yes
    """
    from moonfed.client import Coordinator

    with Coordinator(endpoint()) as client:
        found = client.run(run)
        if not yes and found.active:
            question = f"Stop run {run} for good, after {found.round} of {found.rounds} rounds?"
            typer.confirm(question, abort=True, err=True)
        found = client.stop(run)
    _report(found, json=json)


@run_app.command()
@operator_options
def prune(
    endpoint: FindEndpoint,
    run: RunArgument,
    keep_last: KeepLastOption = DEFAULTS.keep_last,
    keep_every: KeepEveryOption = DEFAULTS.keep_every,
    json: JsonOption = False,
) -> None:
    """Delete old global models of a run; its rounds stay on record.

    Example: moonfed-coordinator run prune digits --keep-last 1 --keep-every 0
    """
    from moonfed.client import Coordinator
    from moonfed.coordinator.rounds.retention import Retention
    from moonfed.v1 import control_pb2

    kept = Retention(last=keep_last, every=keep_every)
    request = control_pb2.PruneRunRequest(run=run, keep_last=kept.last, keep_every=kept.every)
    with Coordinator(endpoint()) as client:
        # Not retried: a second attempt would find nothing left to delete, and report 0.
        reply = client.connection.ask(control_pb2.PruneRunReply, "PruneRun", request, once=True)
    if json:
        print_json({"models": reply.models, "bytes": reply.bytes})
    else:
        models = count(reply.models, "global model")
        typer.echo(f"deleted {models} of run {run}, freeing {human(reply.bytes)}")


@run_app.command()
@operator_options
def delete(
    endpoint: FindEndpoint,
    run: RunArgument,
    yes: Annotated[bool, typer.Option("--yes", help="Skip the confirmation.")] = False,
    json: JsonOption = False,
) -> None:
    """Delete a run that has ended, with its rounds, metrics and models.

    Example: moonfed-coordinator run delete digits --yes
    """
    from moonfed.client import Coordinator

    with Coordinator(endpoint()) as client:
        if not yes:
            found = client.run(run)
            question = f"Delete run {run} with the models of its {count(found.round, 'round')}?"
            typer.confirm(question, abort=True, err=True)
        freed = client.delete(run)
    if json:
        print_json({"bytes": freed})
    else:
        typer.echo(f"deleted run {run}, freeing {human(freed)}")


def _server_rule(client: Coordinator, run: Run) -> dict[str, Any] | None:
    """Return the run's server rule from its manifest; None if that is damaged and the run suspended."""
    from moonfed.bundle.manifest import MANIFEST_BYTES, Manifest
    from moonfed.errors import Corrupt, InvalidInput, NotFound, VersionMismatch

    try:
        return Manifest.from_bytes(client.connection.fetch(run.manifest, MANIFEST_BYTES)).server_rule.to_document()
    except (Corrupt, InvalidInput, NotFound, VersionMismatch):
        return None


def _report(run: Run, *, json: bool) -> None:
    from moonfed.control.document import document
    from moonfed.coordinator.cli.format import snapshot_line

    if json:
        print_json(document(run))
    else:
        typer.echo(snapshot_line(run))
