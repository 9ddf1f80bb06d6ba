"""The command `run weights`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from moonfed.command_line.programs import print_json
from moonfed.coordinator.cli.options import RunArgument
from moonfed.sizes import human
from moonfed.transport.operator_options import (
    DEFAULT_IDENTITY,
    CoordinatorOption,
    IdentityOption,
    InsecureOption,
    JsonOption,
)

if TYPE_CHECKING:
    from moonfed.coordinator.cli.control_client import Console
    from moonfed.v1 import blob_pb2, control_pb2


def weights(
    run: RunArgument,
    output: Annotated[Path, typer.Option(metavar="FILE.safetensors", help="The file to write.")],
    round_number: Annotated[
        int | None,
        typer.Option("--round", metavar="N", help="The round; 0: the initial model. Default: the newest.", min=0),
    ] = None,
    identity: IdentityOption = DEFAULT_IDENTITY,
    insecure: InsecureOption = False,
    coordinator: CoordinatorOption = None,
    json: JsonOption = False,
) -> None:
    """Write the weights of a run's global model to a file, from which `run start --from` can start another run.

    Example: moonfed-coordinator run weights digits --round 8 --output digits-8.safetensors
    """
    from tempfile import TemporaryDirectory

    from moonfed.blobs.store import BlobDirectory
    from moonfed.coordinator.cli.control_client import connect
    from moonfed.files import write_durably
    from moonfed.transport.client import fetch_blob, from_message
    from moonfed.v1 import control_pb2

    with connect(identity, insecure=insecure, address=coordinator) as console, TemporaryDirectory() as directory:
        found = console.ask(console.control.GetRun, control_pb2.GetRunRequest(run=run))
        number = found.round if round_number is None else round_number
        ref = from_message(_model(console, found, number))
        blobs = BlobDirectory(Path(directory))
        file = console.ask(lambda asked, timeout: fetch_blob(console.control.Fetch, asked, blobs), ref)
        write_durably(output, file.read_bytes())
    if json:
        print_json({"path": str(output), "run": run, "round": number, "sha256": ref.sha256, "bytes": ref.size})
    else:
        typer.echo(f"{output} holds the global model of round {number} of run {run}, {human(ref.size)}")


def _model(console: Console, run: control_pb2.Run, number: int) -> blob_pb2.Blob:
    """Return the global model of a round; raise NotFound if there is none, or none any longer."""
    from moonfed.errors import NotFound

    if number == run.round:
        return run.model
    if number == 0:
        return run.initial_model
    if number > run.round:
        raise NotFound(
            f"run {run.run!r} has no global model of round {number}; its newest is {run.round}",
            field="run",
            value=run.run,
        )
    for found in console.rounds(run.run, number=number):
        if found.HasField("model"):
            return found.model
    kept = [found for found in console.rounds(run.run) if found.HasField("model")]
    newest = ", ".join(str(found.round) for found in kept[-10:])
    raise NotFound(f"the global model of round {number} of run {run.run!r} was deleted; the newest are {newest}")
