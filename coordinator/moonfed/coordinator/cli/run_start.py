"""The command `run start`: a run's settings as options."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from moonfed.command_line.programs import print_json
from moonfed.coordinator.aggregation.robust.reducers import REDUCERS
from moonfed.coordinator.cli.options import AllowEmptyOption
from moonfed.coordinator.cli.settings_options import given_settings, with_settings
from moonfed.transport.operator_options import FindEndpoint, JsonOption, operator_options


@operator_options
@partial(with_settings, about={"reducer": f"Aggregation of the updates: {', '.join(REDUCERS)}."})
def start(
    endpoint: FindEndpoint,
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
    json: JsonOption = False,
    **settings: Any,  # noqa: ANN401 - the options of RunSettings
) -> None:
    """Start a run from a bundle, unless its plan is one that devices would reject.

    Example: moonfed-coordinator run start digits.zip --rounds 20 --cohort 50% --over-selection 30% --label site=berlin

    Example: moonfed-coordinator run start digits.zip --quorum 5 --reducer multi_krum --reducer-set byzantine=1

    Example: moonfed-coordinator run start digits.zip --recipe simulated/recipe.toml
    """
    from tempfile import TemporaryDirectory

    from moonfed.blobs.store import ref_of_file
    from moonfed.bundle.files import read_bundle
    from moonfed.client import Coordinator
    from moonfed.client.sync.runs import start_run
    from moonfed.control.document import document
    from moonfed.control.recipe import override, read_recipe_file, run_keys
    from moonfed.control.run_settings import RunSettings
    from moonfed.coordinator.cli.format import snapshot_line
    from moonfed.coordinator.cli.format_privacy import promise
    from moonfed.coordinator.cli.initial_model import find_model
    from moonfed.coordinator.cli.target_metrics import unknown_metrics
    from moonfed.errors import SchemaMismatch
    from moonfed.sandbox.plan_process import require_safe_plan
    from moonfed.signing.bundle_signature import signed_by
    from moonfed.transport.identity import require_name
    from moonfed.v1 import control_pb2

    if name:
        require_name("name", name)
    chosen = run_keys(read_recipe_file(recipe)) if recipe else {}
    given = override(chosen, given_settings(context, settings))
    wanted = RunSettings.read(given)
    opened = read_bundle(bundle, signed_by(None))
    for name_ in unknown_metrics(wanted.target_metrics, opened.manifest, private=wanted.private):
        typer.echo(f"moonfed-coordinator: only a program of your own can record {name_!r}, a --target", err=True)
    require_safe_plan(opened.plans)
    with (
        Coordinator(endpoint()) as client,
        TemporaryDirectory(prefix="moonfed-") as directory,
    ):
        scratch = Path(directory) / "weights"
        initial = find_model(client, model, opened.manifest.tensors, scratch) if model else None
        weights = {ref_of_file(initial.file): initial.file} if initial and initial.file else {}
        request = control_pb2.StartRunRequest(
            name=name,
            model=initial.sha256 if initial else "",
            settings=wanted.to_json(given),
            allow_empty=allow_empty,
        )
        try:
            run = start_run(client.connection, opened, weights, request)
        except SchemaMismatch as error:
            if initial is None:
                raise
            raise SchemaMismatch(
                field="from", value=initial.source, rest=f", which does not match this bundle: {error}"
            ) from error
    if json:
        print_json(document(run))
    else:
        typer.echo(snapshot_line(run))
        if run.privacy:
            typer.echo(promise(run.privacy, wanted.rounds))
