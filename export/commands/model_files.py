"""The command that writes a run's model as ONNX files."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from export.commands.options import RunArgument
from moonfed.cli import print_json
from moonfed.operator import DEFAULT_IDENTITY, CoordinatorOption, IdentityOption, InsecureOption, JsonOption


def onnx(
    run: RunArgument,
    data: Annotated[Path, typer.Option(metavar="REAL.npz", help="Real `inputs`, on which graph and plan must agree.")],
    output: Annotated[Path, typer.Option(metavar="FILE.onnx", help="The file to write.")],
    round_number: Annotated[int | None, typer.Option("--round", help="Of which round; by default the newest.")] = None,
    bound: Annotated[float, typer.Option(help="The largest difference allowed between two probabilities.")] = 1e-5,
    embeddings: Annotated[
        bool, typer.Option("--embeddings", help="The representation z as a second output, `embeddings`.")
    ] = False,
    identity: IdentityOption = DEFAULT_IDENTITY,
    insecure: InsecureOption = False,
    coordinator: CoordinatorOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a run's global model as one ONNX file that takes raw samples, after checking it against the plan.

    Example: moonfed-export onnx my-run --data test.npz --output model.onnx
    """
    from export.model_file import write_onnx
    from export.runs import connect

    with connect(identity, insecure=insecure, address=coordinator) as runs:
        written = write_onnx(runs, run, data, output, round_number=round_number, bound=bound, embeddings=embeddings)
    if as_json:
        print_json({**asdict(written), "path": str(written.path)})
    else:
        print(
            f"{written.path} holds the global model of round {written.round}; "
            f"its probabilities differ from the plan's by {written.max_abs_diff:.2g} at most"
        )
