"""The command `run export`."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from time import sleep as wait
from typing import TYPE_CHECKING, Annotated

import typer

from moonfed.command_line.programs import pip_install, print_json
from moonfed.coordinator.cli.options import RunArgument
from moonfed.transport.operator_options import FindEndpoint, JsonOption, TrustOption, operator_options

if TYPE_CHECKING:
    from pathlib import Path

    from moonfed.coordinator.cli.run_reader import RunReader
    from moonfed.coordinator.trackers.snapshot import RunSnapshot
    from moonfed.coordinator.trackers.tracker import Tracker
    from moonfed.signing.trust import Trust

POLL_SECONDS = 2.0
WHOLE = 30  # of so many readings, one reads all rounds again, for metrics that come late
EVALUATOR_SECONDS = 60.0  # that the metrics of the last model are waited for


@operator_options
def export(
    endpoint: FindEndpoint,
    run: RunArgument,
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            help="tensorboard: a log directory. mlflow: a tracking URI. wandb: PROJECT or ENTITY/PROJECT. "
            "csv, parquet: a file for the metrics alone, or a directory.",
        ),
    ],
    to: Annotated[str, typer.Option(metavar="TRACKER", help="tensorboard, mlflow, wandb, csv or parquet.")],
    follow: Annotated[bool, typer.Option("--follow", help="Continue until the run ends.")] = False,
    devices: Annotated[bool, typer.Option("--devices", help="Also export series by device.")] = False,
    name: Annotated[str, typer.Option(help="Name of the run in the tracker. Default: RUN.")] = "",
    experiment: Annotated[str, typer.Option(help="MLflow's experiment. Default: moonfed.")] = "",
    trust: TrustOption = None,
    json: JsonOption = False,
) -> None:
    """Export a run to an experiment tracker or to files.

    Exports settings and hyperparameters, metrics by round from the initial model on, curves and confusion matrices as
    pictures, and files: model card, ONNX file and evaluation of the newest release that was created from the run. If
    there is no release, the files are the bundle's manifest and its ONNX graph, which has no trained weights. Files
    must be signed as the trust file requires; without a trust file, they are left out.

    Exporting a run again continues or replaces it in the tracker, and never duplicates it. The role viewer suffices.
    W&B is written offline unless WANDB_MODE is online.

    Example: moonfed-coordinator run export digits --to tensorboard logs

    Example: moonfed-coordinator run export digits --to mlflow http://127.0.0.1:5000 --follow
    """
    from importlib.util import find_spec
    from pathlib import Path
    from tempfile import TemporaryDirectory

    from moonfed.client import Coordinator
    from moonfed.coordinator.cli.run_reader import RunReader
    from moonfed.coordinator.trackers.tracker import TrackerOptions, open_tracker, require_kind, takes_files

    require_kind(to, experiment)
    trusted = _trust(trust) if takes_files(to, target) else None
    with Coordinator(endpoint()) as client, TemporaryDirectory() as scratch:
        reader = RunReader(client, run, Path(scratch), devices=devices, trust=trusted)
        reader.files()  # nothing is written about a run whose files are not trusted
        options = TrackerOptions(
            target=target, name=name or run, identity=reader.identity, experiment=experiment, devices=devices
        )
        with open_tracker(to, options) as tracker:
            if follow:
                follow_run(reader, tracker)
            snapshot = reader.read()
            complete = reader.with_files(snapshot)
            tracker.write(complete)
            place = tracker.place
    if not complete.pictures and find_spec("matplotlib") is None:
        typer.echo(f"without pictures: matplotlib is not installed ({pip_install('export')})", err=True)
    if trusted is None and takes_files(to, target):
        typer.echo("without files: there is no trust file to verify them with; name one with --trust", err=True)
    _report(snapshot, place, json=json)


def _trust(given: Path | None) -> Trust | None:
    """Return the trust that files are verified with; None if this user has none and names none."""
    from moonfed.signing.key_files import TRUST_FILE, default_directory, user_trust

    has_own = (default_directory() / TRUST_FILE).exists()
    return user_trust(given) if given or has_own else None


def follow_run(reader: RunReader, tracker: Tracker, sleep: Callable[[float], None] = wait) -> None:
    """Write what is new until the run has ended and its last model is evaluated; survive outages of both sides."""
    from moonfed.errors import Unavailable
    from moonfed.transport.client import Backoff

    backoff = Backoff(first=POLL_SECONDS, limit=30.0)
    readings = 0
    limit = float("inf")
    while monotonic() < limit:
        pause = POLL_SECONDS
        try:
            snapshot = reader.read(whole=readings % WHOLE == 0)
            tracker.write(snapshot)
            readings += 1
            backoff.reset()
            if snapshot.ended:
                limit = min(limit, monotonic() + EVALUATOR_SECONDS)
                if not reader.lacks_metrics():
                    return
        except Unavailable as problem:
            typer.echo(f"{problem}; retrying", err=True)
            pause = backoff.next()
        sleep(pause)


def _report(snapshot: RunSnapshot, place: str, *, json: bool) -> None:
    from moonfed.formatting import count

    rounds = max((point.round for point in snapshot.points), default=0)
    if json:
        document = {"run": snapshot.run, "status": snapshot.status, "round": rounds, "place": place}
        print_json(document | {"points": len(snapshot.points), "device_points": len(snapshot.device_points)})
        return
    values = count(len(snapshot.points) + len(snapshot.device_points), "value")
    typer.echo(f"exported run {snapshot.run}, {snapshot.status}, {count(rounds, 'round')}, {values}, to {place}")
