"""The command `run weights`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from moonfed.command_line.programs import print_json
from moonfed.coordinator.cli.options import RunArgument
from moonfed.sizes import human
from moonfed.transport.operator_options import FindEndpoint, JsonOption, operator_options


@operator_options
def weights(
    endpoint: FindEndpoint,
    run: RunArgument,
    output: Annotated[Path, typer.Option(metavar="FILE.safetensors", help="The file to write.")],
    round_number: Annotated[
        int | None,
        typer.Option("--round", metavar="N", help="The round; 0: the initial model. Default: the newest.", min=0),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Write the weights of a run's global model to a file, from which `run start --from` can start another run.

    Example: moonfed-coordinator run weights digits --round 8 --output digits-8.safetensors
    """
    from tempfile import TemporaryDirectory

    from moonfed.blobs.store import BlobDirectory
    from moonfed.client import Coordinator
    from moonfed.client.sync.runs import find_model
    from moonfed.files import write_durably

    with Coordinator(endpoint()) as client, TemporaryDirectory() as directory:
        found = client.run(run)
        number = found.round if round_number is None else round_number
        ref = find_model(client, found, number)
        file = client.connection.fetch_file(ref, BlobDirectory(Path(directory)))
        write_durably(output, file.read_bytes())
    if json:
        print_json({"path": str(output), "run": run, "round": number, "sha256": ref.sha256, "bytes": ref.size})
    else:
        typer.echo(f"{output} holds the global model of round {number} of run {run}, {human(ref.size)}")
