"""moonfed-coordinator run …: start, list, show, watch, stop, prune and delete runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from moonfed.cli import print_json
from moonfed.operator import DEFAULT_IDENTITY, CoordinatorOption, IdentityOption, InsecureOption, JsonOption

HELP = """Runs: rounds of training, from a bundle to a finished model.

Example: moonfed-coordinator run start digits-bundle --rounds 10
"""

run_app = typer.Typer(help=HELP, no_args_is_help=True)
RunArgument = Annotated[str, typer.Argument(help="The run's name.", show_default=False)]


@run_app.command()
def start(
    bundle: Annotated[Path, typer.Argument(help="A bundle: a directory or a .zip.", show_default=False)],
    rounds: Annotated[int, typer.Option(help="Rounds to commit.")] = 10,
    cohort: Annotated[str, typer.Option(help="Devices of one round: 10, 20% of those attending, or all.")] = "all",
    minimum_devices: Annotated[int, typer.Option(help="Devices that must attend before a round opens.")] = 1,
    quorum: Annotated[str, typer.Option(help="Updates that a round needs: 3, 50% of the cohort, or all.")] = "50%",
    deadline: Annotated[float, typer.Option(help="Seconds that one round may take.")] = 3600.0,
    patience: Annotated[
        float, typer.Option(help="Seconds without a sign of progress, after which a device counts as lost.")
    ] = 120.0,
    over_selection: Annotated[
        str, typer.Option(help="Devices to draw beyond the cohort, which the round does not wait for: 30% of it.")
    ] = "0%",
    asynchronous: Annotated[
        int | None,
        typer.Option(metavar="K", help="Asynchronous rounds: every K updates make a model.", show_default=False),
    ] = None,
    max_staleness: Annotated[
        int, typer.Option(help="With --asynchronous: models that may have been made since a device began.")
    ] = 20,
    label: Annotated[
        list[str] | None,
        typer.Option(help="Draws only devices with this label, NAME=VALUE; may be repeated.", show_default=False),
    ] = None,
    sampling: Annotated[
        str, typer.Option(help="How a cohort is drawn: uniform, or with probability by the devices' samples.")
    ] = "uniform",
    uplink_encoding: Annotated[
        str, typer.Option(help="Of devices' updates: float32, bfloat16 or int8, each perhaps with +zstd.")
    ] = "float32",
    downlink_encoding: Annotated[
        str, typer.Option(help="Of global models on their way to devices: as for --uplink-encoding.")
    ] = "float32",
    weight_cap: Annotated[
        str,
        typer.Option(help="The most that one device may weigh, such as 20%; else by its samples.", show_default=False),
    ] = "",
    clip_norm: Annotated[
        float, typer.Option(help="L2 norm that bounds a device's change of the parameters; 0: none.")
    ] = 0.0,
    clip_factor: Annotated[
        float, typer.Option(help="The same bound as a multiple of the median of the round's norms; 0: none.")
    ] = 0.0,
    reducer: Annotated[
        str, typer.Option(help="mean, median, trimmed_mean, multi_krum or geometric_median of a round's updates.")
    ] = "mean",
    byzantine: Annotated[
        int, typer.Option(help="Faulty or malicious devices of a round that the reducer must cope with.")
    ] = 0,
    seed: Annotated[int, typer.Option(help="Decides the cohorts and the devices' order of samples.")] = 0,
    keep_last: Annotated[int, typer.Option(help="Newest global models that are kept.")] = 20,
    keep_every: Annotated[int, typer.Option(help="Also that of every so-many-th round; 0: no others.")] = 100,
    name: Annotated[str, typer.Option(help="The run's name; else made from the bundle's.")] = "",
    model: Annotated[
        Path | None, typer.Option("--from", help="Weights to start from (.safetensors); else the bundle's.")
    ] = None,
    identity: IdentityOption = DEFAULT_IDENTITY,
    insecure: InsecureOption = False,
    coordinator: CoordinatorOption = None,
    json: JsonOption = False,
) -> None:
    """Starts a run from a bundle.

    Example: moonfed-coordinator run start digits.zip --rounds 20 --cohort 50% --over-selection 30% --label site=berlin

    Example: moonfed-coordinator run start digits.zip --quorum 5 --clip-factor 2.5 --reducer multi_krum --byzantine 1
    """
    from coordinator.aggregation.defence import Defence, parse_reducer, parse_share
    from coordinator.commands.console import connect
    from coordinator.commands.printing import run_document, snapshot_line
    from coordinator.rounds.asynchronous import Asynchronous
    from coordinator.rounds.retention import Retention
    from coordinator.rounds.settings import Settings, parse_amount, parse_fraction, parse_sampling
    from moonfed.bundle import read_bundle
    from moonfed.encodings import Encodings, parse_encoding
    from moonfed.labels import parse_labels

    settings = Settings(
        rounds=rounds,
        cohort=parse_amount("cohort", cohort),
        minimum_devices=minimum_devices,
        quorum=parse_amount("quorum", quorum),
        deadline_seconds=deadline,
        patience_seconds=patience,
        over_selection=parse_fraction("over_selection", over_selection),
        labels=parse_labels(label or ()),
        asynchronous=(None if asynchronous is None else Asynchronous(buffer=asynchronous, max_staleness=max_staleness)),
        seed=seed,
        sampling=parse_sampling(sampling),
        encodings=Encodings(
            down=parse_encoding("downlink_encoding", downlink_encoding),
            up=parse_encoding("uplink_encoding", uplink_encoding),
        ),
        retention=Retention(last=keep_last, every=keep_every),
        defence=Defence(
            weight_cap=parse_share("weight_cap", weight_cap),
            clip_norm=clip_norm,
            clip_factor=clip_factor,
            reducer=parse_reducer(reducer),
            byzantine=byzantine,
        ),
    )
    opened = read_bundle(bundle)
    with connect(identity, insecure=insecure, address=coordinator) as console:
        run = console.start_run(name, opened, model, settings)
    if json:
        print_json(run_document(run))
    else:
        typer.echo(snapshot_line(run))


@run_app.command("list")
def list_runs(
    identity: IdentityOption = DEFAULT_IDENTITY,
    insecure: InsecureOption = False,
    coordinator: CoordinatorOption = None,
    json: JsonOption = False,
) -> None:
    """Lists all runs, oldest first.

    Example: moonfed-coordinator run list
    """
    from coordinator.commands.console import connect
    from coordinator.commands.printing import moment, run_document, run_status, table
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
    """Shows a run: its rounds with their metrics, and whom it waits for.

    Example: moonfed-coordinator run show digits
    """
    from coordinator.commands.console import connect
    from coordinator.commands.printing import round_document, run_document, run_lines
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
    json: Annotated[bool, typer.Option("--json", help="One line of JSON for each event.")] = False,
) -> None:
    """Follows a run until it has ended, over restarts of the coordinator.

    The devices' progress within a round is in the --json lines only.

    Example: moonfed-coordinator run watch digits
    """
    from coordinator.commands.console import connect
    from coordinator.commands.printing import event_document, event_line
    from moonfed.v1 import control_pb2

    last = ""
    with connect(identity, insecure=insecure, address=coordinator) as console:
        for event in console.follow(run, lambda problem: typer.echo(f"{problem}; trying again", err=True)):
            if json:
                print_json(event_document(event))
            elif event.kind != control_pb2.EVENT_KIND_PROGRESS and (line := event_line(event)) != last:
                print(line, flush=True)  # a run that had ended before ends with the line that it began with
                last = line


@run_app.command()
def stop(
    run: RunArgument,
    identity: IdentityOption = DEFAULT_IDENTITY,
    insecure: InsecureOption = False,
    coordinator: CoordinatorOption = None,
    json: JsonOption = False,
) -> None:
    """Ends a run for good; its global models stay.

    Example: moonfed-coordinator run stop digits
    """
    from coordinator.commands.console import connect
    from coordinator.commands.printing import run_document, snapshot_line
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
    keep_last: Annotated[int, typer.Option(help="Newest global models that are kept.")] = 20,
    keep_every: Annotated[int, typer.Option(help="Also that of every so-many-th round; 0: no others.")] = 100,
    identity: IdentityOption = DEFAULT_IDENTITY,
    insecure: InsecureOption = False,
    coordinator: CoordinatorOption = None,
    json: JsonOption = False,
) -> None:
    """Deletes old global models of a run; its rounds stay on record.

    Example: moonfed-coordinator run prune digits --keep-last 1 --keep-every 0
    """
    from coordinator.commands.console import connect
    from coordinator.rounds.retention import Retention
    from moonfed.v1 import control_pb2

    kept = Retention(last=keep_last, every=keep_every)
    retention = control_pb2.Retention(last=kept.last, every=kept.every)
    with connect(identity, insecure=insecure, address=coordinator) as console:
        # Not repeated by itself: a second attempt would find nothing left to delete, and say so.
        reply = console.ask_once(console.control.PruneRun, control_pb2.PruneRunRequest(run=run, retention=retention))
    if json:
        print_json({"models": reply.models, "bytes": reply.bytes})
    else:
        typer.echo(f"deleted {reply.models} global models of run {run}: {reply.bytes / 1e6:.1f} MB are free again")


@run_app.command()
def delete(
    run: RunArgument,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    identity: IdentityOption = DEFAULT_IDENTITY,
    insecure: InsecureOption = False,
    coordinator: CoordinatorOption = None,
    json: JsonOption = False,
) -> None:
    """Deletes a run that has ended, with its rounds, metrics and models.

    Example: moonfed-coordinator run delete digits --yes
    """
    from coordinator.commands.console import connect
    from moonfed.v1 import control_pb2

    if not yes:
        typer.confirm(f"Delete run {run} with all its models?", abort=True, err=True)
    with connect(identity, insecure=insecure, address=coordinator) as console:
        reply = console.ask_once(console.control.DeleteRun, control_pb2.DeleteRunRequest(run=run))
    if json:
        print_json({"bytes": reply.bytes})
    else:
        typer.echo(f"deleted run {run}: {reply.bytes / 1e6:.1f} MB are free again")
