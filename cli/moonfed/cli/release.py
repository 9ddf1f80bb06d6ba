"""Commands that release models to a server: publish a model, follow a run, roll back."""

from __future__ import annotations

import logging
import sys
from dataclasses import asdict
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
from moonfed.data.formats import METAVAR
from moonfed.observability.logs import MESSAGE, configure_logs, report
from moonfed.transport.operator_options import FindEndpoint, JsonOption, TrustOption, operator_options

if TYPE_CHECKING:
    from moonfed.data.source import Source
    from moonfed.release.follow import Decision
    from moonfed.release.publish import Candidate

RepositoryOption = Annotated[
    Path, typer.Option("--repository", metavar="REPOSITORY", help="The model repository's directory.")
]
NameOption = Annotated[str, typer.Option("--name", help="The name under which the model is served.")]
SignOption = Annotated[
    Path | None,
    typer.Option(
        "--sign",
        metavar="KEY",
        help="Sign versions with this private key (PEM; Ed25519, P-256, P-384 or P-521).",
    ),
]
VerifyOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--verify-key",
        metavar="KEY.pub",
        help="Require the served version to be signed with this public key, or one of several; repeatable.",
    ),
]


@operator_options
def repository(
    endpoint: FindEndpoint,
    source: Annotated[
        str, typer.Argument(metavar="RUN|FILE.onnx", help="A run's name, or a file that `onnx` has written.")
    ],
    name: NameOption,
    output: Annotated[
        Path,
        typer.Option("--output", metavar="REPOSITORY", help="The model repository's directory; created if absent."),
    ],
    version: Annotated[
        int | None, typer.Option(help="The version. Default: the round; for a file, the next version.", min=1)
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(metavar=METAVAR, help="Held-out samples for the model card; required for a run."),
    ] = None,
    target: TargetOption = "",
    ignore_folder: IgnoreFolderOption = None,
    round_number: Annotated[
        int | None, typer.Option("--round", metavar="N", help="The run's round. Default: the newest.")
    ] = None,
    max_batch_size: Annotated[int, typer.Option(help="Maximum batch size in a new config.pbtxt.", min=1)] = 32,
    instances: Annotated[int, typer.Option(help="Concurrent executions in a new config.pbtxt.", min=1)] = 2,
    sign: SignOption = None,
    trust: TrustOption = None,
    as_json: JsonOption = False,
) -> None:
    """Publish a model in a model repository for `serve`, Triton and KServe.

    Writes NAME/config.pbtxt and labels.txt unless they exist, and NAME/VERSION with model.onnx, MODEL_CARD.md and
    bom.cdx.json. Servers see a version only when it is complete.

    Example: moonfed-export repository my-run --data test.npz --name digits --output models
    """
    from moonfed.data.open_source import open_source
    from moonfed.errors import InvalidInput
    from moonfed.release.publish import publish
    from moonfed.release.repository import ModelDirectory

    directory = ModelDirectory(output, name)
    if target and data is None:
        raise InvalidInput(field="target", value=target, rest="; it names a column of --data, which is missing")
    if ignore_folder and data is None:
        raise InvalidInput(
            field="ignore-folder", value=ignore_folder[0], rest="; it names a folder in --data, which is missing"
        )
    test_data = open_source(data, target, ignored_folders=ignore_folder or ()) if data is not None else None
    candidate = _candidate(source, test_data, round_number, endpoint, trust)
    published = publish(
        directory,
        candidate,
        version=version,
        data=test_data,
        key=sign,
        max_batch_size=max_batch_size,
        instances=instances,
    )
    if published.kept_config:
        print(f"{PROGRAM}: {directory.path}/config.pbtxt exists and was not changed", file=sys.stderr)
    served = directory.served()
    if as_json:
        print_json({**asdict(published), "path": str(published.path), "served": served})
    else:
        print(f"{published.path} {'holds' if published.new else 'already held'} {candidate.where}")
        if published.version not in served:
            plural = "" if len(served) == 1 else "s"
            versions = f"version{plural} {', '.join(map(str, served))}" if served else "no version"
            print(f"servers serve {versions}, because of version_policy in config.pbtxt")


@operator_options
def follow(
    endpoint: FindEndpoint,
    run: RunArgument,
    repository: RepositoryOption,
    name: NameOption,
    data: TestDataOption,
    target: TargetOption = "",
    ignore_folder: IgnoreFolderOption = None,
    margin: Annotated[
        float,
        typer.Option(
            metavar="POINTS",
            help="How much worse than the served version, see `release create`.",
        ),
    ] = 0.5,
    at_least: Annotated[
        float,
        typer.Option(metavar="VALUE", help="What every version needs: percent of accuracy, the largest RMSE."),
    ] = 0.0,
    keep: Annotated[int, typer.Option(help="Newest versions to keep, for rolling back.")] = 5,
    sign: SignOption = None,
    verify_key: VerifyOption = None,
    trust: TrustOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON per round.")] = False,
    log_format: LogFormatOption = "text",
    log_level: LogLevelOption = "warning",
) -> None:
    """Publish the newest round of a run that passes the gate, again and again until the run ends.

    A round passes if its metric on the data is no more than --margin worse than the served version's, and reaches
    --at-least. Without --at-least, a first version is published whatever it scores. A version that `roll-back`
    withdrew is not published again; a later round may be. With --verify-key, the served version, its configuration and
    its labels must be as they were signed.

    Example: moonfed-export follow my-run --repository models --name digits --data test.npz
    """
    from moonfed.data.open_source import open_source
    from moonfed.export.coordinator_client import connect
    from moonfed.export.run_watcher import watch_run
    from moonfed.release.follow import FollowGate, ReleaseFollower
    from moonfed.release.repository import ModelDirectory
    from moonfed.signing.release_signature import read_release_key

    configure_logs(log_format, log_level, MESSAGE)
    source = open_source(data, target, ignored_folders=ignore_folder or ())
    gate = FollowGate(data=source, margin=margin, at_least=at_least)
    directory = ModelDirectory(repository, name)
    trusted = [read_release_key(path) for path in verify_key or []]
    if versions := directory.versions():
        sentence = f"{directory.path} has version {versions[-1]}; only later rounds are considered"
        report(PROGRAM, sentence, level=logging.INFO, run=run)
    with connect(endpoint(), trust=trust) as runs:
        follower = ReleaseFollower(
            runs,
            run,
            directory,
            gate,
            on_decision=lambda decision: _print_decision(decision, as_json),
            kept=keep,
            key=sign,
            verify_keys=trusted,
        )
        watch_run(runs, run, on_model=follower.catch_up, on_unavailable=print_unavailable)


def roll_back(
    repository: RepositoryOption,
    name: NameOption,
    version: Annotated[int | None, typer.Option(help="The version. Default: the one before the served one.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Roll back to an earlier version through the version policy in config.pbtxt.

    Example: moonfed-export roll-back --repository models --name digits
    """
    from moonfed.release.repository import ModelDirectory

    before, now = ModelDirectory(repository, name).roll_back(version)
    if as_json:
        print_json({"from": before, "to": now})
    else:
        print(f"{name} serves version {now}" + (f", no longer {before}" if before not in (None, now) else ""))


def sign_release(
    repository: RepositoryOption,
    name: NameOption,
    key: Annotated[
        Path, typer.Option("--sign", metavar="KEY", help="The private key (PEM; Ed25519, P-256, P-384 or P-521).")
    ],
    version: Annotated[int | None, typer.Option(help="The version to sign. Default: all.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Sign published versions, for example after a change of config.pbtxt.

    A version that this key signed before is signed again only if nothing but its configuration and labels has changed.

    Example: moonfed-export sign-release --repository models --name digits --sign release.pem
    """
    from moonfed.errors import NotFound
    from moonfed.release.repository import ModelDirectory
    from moonfed.release.signing import ReleaseSigner

    directory, signer = ModelDirectory(repository, name), ReleaseSigner(key)
    versions = directory.versions() if version is None else [version]
    if not versions:
        raise NotFound(f"{directory.path} has no versions")
    for each in versions:
        directory.sign(each, signer)
    if as_json:
        print_json({"signed": versions})
    else:
        print(f"signed version{'s' if len(versions) > 1 else ''} {', '.join(map(str, versions))} of {directory.path}")


def _candidate(
    source: str, data: Source | None, round_number: int | None, endpoint: FindEndpoint, trust: Path | None
) -> Candidate:
    from moonfed.errors import InvalidInput
    from moonfed.release.publish import candidate_of_run, read_candidate

    if source.endswith(".onnx"):
        if round_number is not None:
            raise InvalidInput(
                field="round", value=round_number, rest=f"; it applies to a run, and {source!r} is a file"
            )
        return read_candidate(Path(source))
    if data is None and Path(source).is_file():
        raise InvalidInput(f"{source!r} is a file, whose name must end in .onnx; otherwise it must be a run's name")
    if data is None:
        raise InvalidInput("data is missing; it must name samples, on which a run's model is compared with its plan")
    from moonfed.export.coordinator_client import connect
    from moonfed.release.model_file import check_model

    with connect(endpoint(), trust=trust) as runs:
        return candidate_of_run(runs, check_model(runs, source, data, round_number=round_number))


def _print_decision(decision: Decision, as_json: bool) -> None:
    if as_json:
        print_json(asdict(decision))
        return
    served = "" if decision.served_score is None else f", version {decision.served} {decision.served_score:.4f}"
    result = "published" if decision.published else "not good enough"
    removed = f"; removed {', '.join(map(str, decision.removed))}" if decision.removed else ""
    print(f"round {decision.round:3d}  {decision.metric} {decision.score:.4f}{served}: {result}{removed}", flush=True)
