"""The command `run start`: a run's settings as options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from moonfed.command_line.programs import print_json
from moonfed.coordinator.aggregation.robust.reducers import REDUCERS
from moonfed.coordinator.cli.options import AllowEmptyOption
from moonfed.coordinator.cli.settings_options import given_settings, with_settings
from moonfed.transport.operator_options import (
    DEFAULT_IDENTITY,
    CoordinatorOption,
    IdentityOption,
    InsecureOption,
    JsonOption,
)


def start(
    context: typer.Context,
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="A bundle: a directory or a .zip.")],
    recipe: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Settings from a recipe, such as a simulation's recipe.toml, or from those of `run show --json`; "
            "options given here override it.",
            show_default=False,
        ),
    ] = None,
    *,
    allow_empty: AllowEmptyOption = False,
    name: Annotated[str, typer.Option(help="The run's name. Default: derived from the bundle's.")] = "",
    model: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="RUN|FILE",
            help="Initial weights: another run's newest model, a .safetensors or .onnx file. Default: the bundle's.",
        ),
    ] = "",
    identity: IdentityOption = DEFAULT_IDENTITY,
    insecure: InsecureOption = False,
    coordinator: CoordinatorOption = None,
    json: JsonOption = False,
    **settings: Any,  # noqa: ANN401 - the options of RunSettings
) -> None:
    """Start a run from a bundle, unless its plan is one that devices would reject.

    Example: moonfed-coordinator run start digits.zip --rounds 20 --cohort 50% --over-selection 30% --label site=berlin

    Example: moonfed-coordinator run start digits.zip --quorum 5 --reducer multi_krum --reducer-set byzantine=1

    Example: moonfed-coordinator run start digits.zip --recipe simulated/recipe.toml
    """
    from tempfile import TemporaryDirectory

    from moonfed.bundle.files import read_bundle
    from moonfed.bundle.manifest import PLAN_FILE
    from moonfed.control.recipe import override, read_recipe_file, run_keys
    from moonfed.control.run_settings import RunSettings
    from moonfed.coordinator.cli.control_client import connect
    from moonfed.coordinator.cli.format import snapshot_line
    from moonfed.coordinator.cli.initial_model import find_model
    from moonfed.coordinator.documents.runs import run_document
    from moonfed.sandbox.plan_process import require_safe_plan
    from moonfed.signing.bundle_signature import signed_by
    from moonfed.transport.identity import require_name

    if name:
        require_name("name", name)
    chosen = run_keys(read_recipe_file(recipe)) if recipe else {}
    given = override(chosen, given_settings(context, settings))
    wanted = RunSettings.read(given)
    opened = read_bundle(bundle, signed_by(None))
    require_safe_plan(opened.contents[PLAN_FILE])
    with (
        connect(identity, insecure=insecure, address=coordinator) as console,
        TemporaryDirectory(prefix="moonfed-") as directory,
    ):
        scratch = Path(directory) / "weights"
        initial = find_model(console, model, opened.manifest.tensors, scratch) if model else None
        run = console.start_run(name, opened, initial, wanted, given, allow_empty=allow_empty)
    if json:
        print_json(run_document(run))
    else:
        typer.echo(snapshot_line(run))


with_settings(start, {"reducer": f"Aggregation of the updates: {', '.join(REDUCERS)}."})
