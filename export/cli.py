"""moonfed-export: builds bundles, scores a run's models, and writes them as checked ONNX files.

Everything heavy is imported by the command that needs it.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from moonfed.cli import new_app, print_json, run_program
from moonfed.errors import Unavailable
from moonfed.operator import DEFAULT_IDENTITY, CoordinatorOption, IdentityOption, InsecureOption, JsonOption
from moonfed.server_rules import SERVER_RULES, read_server_rule

if TYPE_CHECKING:
    from export.evaluator import RoundScore
    from export.recipe import Recipe

PROGRAM = "moonfed-export"
HELP = """Compile models for a fleet of devices, score what a run has learned, and write it as ONNX.

\b
Example:
  moonfed-export bundle --model cnn --input 8x8x1 --classes 10 --method moon --output digits-bundle
  moonfed-export evaluate digits --data test.npz --follow
  moonfed-export onnx digits --data test.npz --output digits.onnx
"""

app = new_app(HELP)

RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="The run's name.")]


@app.command()
def bundle(
    input_text: Annotated[
        str, typer.Option("--input", metavar="HxWxC|features:N", help="One raw sample: 32x32x3 pixels, or N features.")
    ],
    classes: Annotated[str, typer.Option(help="Their names with commas between them, or their number.")],
    output: Annotated[Path, typer.Option(metavar="DIR|FILE.zip", help="Where to write the bundle.")],
    model: Annotated[
        str, typer.Option(help="cnn, mlp, resnet18, resnet50, torchvision:NAME or your MODULE:CALLABLE.")
    ] = "cnn",
    projection: Annotated[
        str, typer.Option(metavar="WIDTH|none", help="The projection head's output; none: no head.")
    ] = "256",
    method: Annotated[
        str,
        typer.Option(
            help="fedavg, fedprox, scaffold, moon, l2, fedssc, fedproc, fedssc-two-stage or fedssc-local-contrast."
        ),
    ] = "fedavg",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting of the method or of local training; see `methods`."),
    ] = None,
    server_rule: Annotated[str, typer.Option(help=f"How updates combine: {', '.join(SERVER_RULES)}.")] = "mean",
    server_settings: Annotated[
        list[str] | None, typer.Option("--server-set", metavar="KEY=VALUE", help="A setting of that; see `methods`.")
    ] = None,
    augmentation: Annotated[
        str, typer.Option(help="Of pictures, while training: none, crop-flip or crop-flip-rotate.")
    ] = "none",
    mean: Annotated[
        str | None, typer.Option(help="To subtract, per channel (of 0 to 1) or feature: 0.5,0.5,0.4.")
    ] = None,
    std: Annotated[str | None, typer.Option(help="To divide by, likewise.")] = None,
    seed: Annotated[int, typer.Option(help="Of the initial weights.", min=0)] = 0,
    name: Annotated[str | None, typer.Option(help="The bundle's name; by default the output's.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Build a bundle: a training plan, an ONNX graph, initial weights and a manifest.

    A MODULE:CALLABLE is called with a raw sample's shape, such as (32, 32, 3), and the number of classes; it returns
    three torch modules: encoder, projection head, output layer. Pictures reach the encoder as float [B, C, H, W], with
    sides under 16 pixels resized to 32.

    Example: moonfed-export bundle --model cnn --input 32x32x3 --classes 10 --method moon --set mu=5 --output my-bundle
    """
    from export import recipe as recipes

    recipe = recipes.Recipe(
        name=name or output.stem,
        model=model,
        input=recipes.read_input(input_text),
        classes=recipes.read_classes(classes),
        projection=recipes.read_projection(projection),
        method=recipes.read_federated(method),
        settings=recipes.read_pairs("--set", settings or []),
        server_rule=read_server_rule(
            {**recipes.read_pairs("--server-set", server_settings or []), "name": server_rule}
        ),
        augmentation=augmentation,
        mean=recipes.read_numbers("mean", mean),
        deviation=recipes.read_numbers("std", std),
        seed=seed,
    )
    _write_bundle(recipe, output, as_json=as_json)


@app.command()
def methods(as_json: JsonOption = False) -> None:
    """List the methods and the server rules with their settings and the settings' defaults.

    Example: moonfed-export methods --json
    """
    from export.catalogue import catalogue, table

    if as_json:
        print_json(catalogue())
    else:
        print(table())


@app.command()
def inspect(
    path: Annotated[Path, typer.Argument(metavar="BUNDLE", help="A bundle's directory or .zip.")],
    as_json: JsonOption = False,
) -> None:
    """Say what is in a bundle, after checking that it is whole.

    Example: moonfed-export inspect my-bundle
    """
    from export.inspection import describe, table
    from moonfed.bundle import read_bundle

    found = read_bundle(path)
    if as_json:
        print_json(describe(found))
    else:
        print(table(found))


@app.command()
def evaluate(
    run: RunArgument,
    data: Annotated[Path, typer.Option(metavar="TEST.npz", help="Held-out `inputs` and `labels`.")],
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on with every new global model until the run ends.")
    ] = False,
    identity: IdentityOption = DEFAULT_IDENTITY,
    insecure: InsecureOption = False,
    coordinator: CoordinatorOption = None,
    as_json: JsonOption = False,
) -> None:
    """Score a run's global models on held-out data and keep accuracy and loss with the run.

    Models that have metrics already are left alone. With --json, one line for each model.

    Example: moonfed-export evaluate my-run --data test.npz --follow
    """
    from export.evaluator import open_evaluator
    from export.runs import connect

    with connect(identity, insecure=insecure, address=coordinator) as runs:
        printer = _ScorePrinter(as_json)
        evaluator = open_evaluator(runs, run, data, scored=printer, away=_print_away, patient=follow)
        if follow:
            evaluator.follow()
        else:
            evaluator.catch_up()
        if not printer.used and not as_json:
            print(f"{PROGRAM}: every global model of run {run!r} has its metrics already", file=sys.stderr)


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


def _write_bundle(recipe: Recipe, output: Path, *, as_json: bool) -> None:
    from export.bundling import build_bundle
    from moonfed.bundle import write_bundle

    built = build_bundle(recipe)
    write_bundle(output, built)
    if as_json:
        print_json({"output": str(output), "sha256": built.ref.sha256, "name": recipe.name})
    else:
        print(f"{output} holds bundle {recipe.name!r}, sha256 {built.ref.sha256[:12]}; `inspect` says what is in it")


def _print_away(problem: Unavailable) -> None:
    print(f"{PROGRAM}: {problem}; trying again", file=sys.stderr, flush=True)


class _ScorePrinter:
    """Prints each score as it comes."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self.used = False

    def __call__(self, result: RoundScore) -> None:
        self.used = True
        if self._as_json:
            print_json({"round": result.round, **asdict(result.score), "seconds": round(result.seconds, 3)})
        else:
            print(
                f"round {result.round:3d}  accuracy {result.score.accuracy:.4f}  loss {result.score.loss:.4f}  "
                f"({result.seconds:.1f} s)",
                flush=True,
            )
