"""moonfed-export: builds bundles, scores a run's models, and writes them as checked ONNX files.

The commands are in `export.commands`; everything heavy is imported by the command that needs it.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from export.commands.bundles import bundle, inspect, methods
from export.commands.evaluation import evaluate
from export.commands.options import PROGRAM, RunArgument
from moonfed.cli import new_app, print_json, run_program
from moonfed.operator import DEFAULT_IDENTITY, CoordinatorOption, IdentityOption, InsecureOption, JsonOption

HELP = """Compile models for a fleet of devices, score what a run has learned, and write it as ONNX.

\b
Example:
  moonfed-export bundle --model cnn --input 8x8x1 --classes 10 --method moon --output digits-bundle
  moonfed-export evaluate digits --data test.npz --follow
  moonfed-export onnx digits --data test.npz --output digits.onnx
"""

app = new_app(HELP)
for command in (bundle, methods, inspect, evaluate):
    app.command()(command)


@app.command()
def onnx(
    run: RunArgument,
    data: Annotated[Path, typer.Option(metavar="REAL.npz", help="Real `inputs`, on which graph and plan must agree.")],
    output: Annotated[Path, typer.Option(metavar="FILE.onnx", help="The file to write.")],
    round_number: Annotated[int | None, typer.Option("--round", help="Of which round; by default the newest.")] = None,
    bound: Annotated[float, typer.Option(help="The largest difference allowed between two probabilities.")] = 1e-5,
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
        written = write_onnx(runs, run, data, output, round_number=round_number, bound=bound)
    if as_json:
        print_json({**asdict(written), "path": str(written.path)})
    else:
        print(
            f"{written.path} holds the global model of round {written.round}; "
            f"its probabilities differ from the plan's by {written.max_abs_diff:.2g} at most"
        )


def main() -> None:
    """The program's entry point."""
    run_program(app, PROGRAM, extra="export")
