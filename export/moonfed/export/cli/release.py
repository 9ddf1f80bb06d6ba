"""Commands that bring models to a server: publish one, follow a run, go back."""

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
    from moonfed.release.follow import Decision
    from moonfed.release.publish import Candidate

RepositoryOption = Annotated[
    Path, typer.Option("--repository", metavar="REPOSITORY", help="The model repository's directory.")
]
NameOption = Annotated[str, typer.Option("--name", help="The model's name, under which it is served.")]
SignOption = Annotated[
    Path | None,
    typer.Option(
        "--sign", metavar="KEY", help="Sign versions with this private key (PEM; P-256, P-384 or P-521); see the docs."
    ),
]


def repository(
    source: Annotated[
        str, typer.Argument(metavar="RUN|FILE.onnx", help="A run's name, or a file that `onnx` has written.")
    ],
    name: NameOption,
    output: Annotated[
        Path, typer.Option("--output", metavar="REPOSITORY", help="The model repository's directory; made if absent.")
    ],
    version: Annotated[
        int | None, typer.Option(help="The version's number; by default the round, or the next one.", min=1)
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(metavar="TEST.npz", help="Held-out `inputs` and `labels` for the model card; needed for a run."),
    ] = None,
    round_number: Annotated[
        int | None, typer.Option("--round", help="Of a run: which round; by default the newest.")
    ] = None,
    max_batch_size: Annotated[int, typer.Option(help="Samples in a batch, for a new config.pbtxt.", min=1)] = 32,
    instances: Annotated[int, typer.Option(help="Runs at once, for a new config.pbtxt.", min=1)] = 2,
    sign: SignOption = None,
    identity: IdentityOption = DEFAULT_IDENTITY,
    insecure: InsecureOption = False,
    coordinator: CoordinatorOption = None,
    as_json: JsonOption = False,
) -> None:
    """Publish a model in a model repository that `serve`, Triton and KServe take as it is.

    Writes NAME/config.pbtxt and labels.txt unless they are there, and NAME/VERSION with model.onnx, MODEL_CARD.md and
    bom.cdx.json. Servers see a version when it is whole.

    Example: moonfed-export repository my-run --data test.npz --name digits --output models
    """
    from moonfed.release.publish import publish
    from moonfed.release.repository import ModelDirectory

    directory = ModelDirectory(output, name)
    candidate = _candidate(source, data, round_number, identity, insecure=insecure, coordinator=coordinator)
    published = publish(
        directory,
        candidate,
        version=version,
        data=data,
        key=sign,
        max_batch_size=max_batch_size,
        instances=instances,
    )
    if published.kept_config:
        print(f"{PROGRAM}: {directory.path}/config.pbtxt was there and stays as it is", file=sys.stderr)
    served = directory.served()
    if as_json:
        print_json({**asdict(published), "path": str(published.path), "served": served})
    else:
        print(f"{published.path} {'holds' if published.new else 'held already'} {candidate.where}")
        if published.version not in served:
            print(f"servers serve version {', '.join(map(str, served)) or 'none'}, by version_policy in config.pbtxt")


def follow(
    run: RunArgument,
    repository: RepositoryOption,
    name: NameOption,
    data: Annotated[Path, typer.Option(metavar="TEST.npz", help="Held-out `inputs` and `labels`, for the gate.")],
    margin: Annotated[
        float, typer.Option(metavar="POINTS", help="How far top-1 may fall below the version served.")
    ] = 0.5,
    keep: Annotated[int, typer.Option(help="Versions that stay, to go back to.")] = 5,
    sign: SignOption = None,
    identity: IdentityOption = DEFAULT_IDENTITY,
    insecure: InsecureOption = False,
    coordinator: CoordinatorOption = None,
    as_json: JsonOption = False,
) -> None:
    """Keep a served repository at a run's newest round that passes the gate, until the run has ended.

    A round passes if its top-1 accuracy on the data is at most the margin below that of the version served. What
    `roll-back` took back does not return; a later round may.

    Example: moonfed-export follow my-run --repository models --name digits --data test.npz
    """
    from moonfed.export.coordinator_client import connect
    from moonfed.export.run_watcher import watch_run
    from moonfed.release.follow import AccuracyGate, RunFollower
    from moonfed.release.repository import ModelDirectory

    directory, gate = ModelDirectory(repository, name), AccuracyGate(data=data, margin=margin)
    if there := directory.versions():
        print(f"{PROGRAM}: {directory.path} has version {there[-1]}; only later rounds are looked at", file=sys.stderr)
    with connect(identity, insecure=insecure, address=coordinator) as runs:
        follower = RunFollower(
            runs, run, directory, gate, decided=lambda found: _print_decision(found, as_json), kept=keep, key=sign
        )
        watch_run(runs, run, look=follower.catch_up, away=print_away)


def roll_back(
    repository: RepositoryOption,
    name: NameOption,
    version: Annotated[int | None, typer.Option(help="Which one; by default the one before that is served.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Make servers serve an earlier version again, by the version policy in config.pbtxt.

    Example: moonfed-export roll-back --repository models --name digits
    """
    from moonfed.release.repository import ModelDirectory

    before, now = ModelDirectory(repository, name).roll_back(version)
    if as_json:
        print_json({"from": before, "to": now})
    else:
        print(f"{name} serves version {now}" + (f", no longer {before}" if before not in (None, now) else ""))


def _candidate(
    source: str,
    data: Path | None,
    round_number: int | None,
    identity: Path,
    *,
    insecure: bool,
    coordinator: str | None,
) -> Candidate:
    from moonfed.errors import InvalidInput
    from moonfed.release.publish import candidate_of_run, read_candidate

    if source.endswith(".onnx"):
        if round_number is not None:
            raise InvalidInput(f"round is {round_number}; it is of a run, and {source!r} is a file")
        return read_candidate(Path(source))
    if data is None and Path(source).is_file():
        raise InvalidInput(f"{source!r} is a file, whose name must end in .onnx; otherwise it must be a run's name")
    if data is None:
        raise InvalidInput("data is missing; a run's model is compared with its plan on real samples: --data TEST.npz")
    from moonfed.export.coordinator_client import connect
    from moonfed.export.model_file import check_model

    with connect(identity, insecure=insecure, address=coordinator) as runs:
        return candidate_of_run(runs, check_model(runs, source, data, round_number=round_number))


def _print_decision(found: Decision, as_json: bool) -> None:
    if as_json:
        print_json(asdict(found))
        return
    against = "" if found.served_accuracy is None else f", version {found.served} {found.served_accuracy:.4f}"
    done = "published" if found.published else "not good enough"
    gone = f"; removed {', '.join(map(str, found.removed))}" if found.removed else ""
    print(f"round {found.round:3d}  accuracy {found.accuracy:.4f}{against}: {done}{gone}", flush=True)
