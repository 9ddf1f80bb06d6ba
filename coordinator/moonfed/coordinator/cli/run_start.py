"""The command `run start`: a run's settings as options."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from moonfed.command_line.programs import print_json
from moonfed.coordinator.aggregation.robust.reducers import DEFAULT_REDUCER, REDUCERS
from moonfed.coordinator.cli.options import AllowEmptyOption, KeepEveryOption, KeepLastOption
from moonfed.transport.operator_options import (
    DEFAULT_IDENTITY,
    CoordinatorOption,
    IdentityOption,
    InsecureOption,
    JsonOption,
)

DEFENCE = ("weight_cap", "clip_norm", "clip_factor", "reducer")  # options that are keys of the table [robust]


def start(
    context: typer.Context,
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="A bundle: a directory or a .zip.")],
    recipe: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Settings from a recipe, such as a simulation's recipe.toml; options given here override it.",
            show_default=False,
        ),
    ] = None,
    rounds: Annotated[int, typer.Option(help="Rounds to commit.")] = 10,
    cohort: Annotated[
        str,
        typer.Option(
            help="Devices per round (with --asynchronous, devices that train at the same time): a number, a share such "
            "as 20% of the eligible devices online, or all."
        ),
    ] = "all",
    minimum_devices: Annotated[
        int,
        typer.Option(
            help="Eligible devices that must be online before a round opens, or more if --quorum needs more; with "
            "--asynchronous K, before the first round only, and at least K."
        ),
    ] = 1,
    quorum: Annotated[
        str,
        typer.Option(
            help="Updates required per round: a number, a share of the cohort (with --asynchronous K, of K), or all."
        ),
    ] = "50%",
    deadline: Annotated[
        float,
        typer.Option(
            help="Maximum duration of an attempt at a round in seconds; with --asynchronous, the time after which "
            "--quorum is enough."
        ),
    ] = 3600.0,
    max_attempts: Annotated[
        int, typer.Option(help="Failed attempts at one round, in a row, after which the run fails.")
    ] = 10,
    heartbeat_timeout: Annotated[
        float, typer.Option(help="Seconds without a heartbeat after which a device is lost.")
    ] = 120.0,
    over_selection: Annotated[
        str, typer.Option(help="Additional devices to select, as a share of the cohort; stragglers are dropped.")
    ] = "0%",
    asynchronous: Annotated[
        int | None,
        typer.Option(
            metavar="K", help="Use asynchronous rounds (FedBuff): every K updates make a model.", show_default=False
        ),
    ] = None,
    max_staleness: Annotated[
        int | None,
        typer.Option(
            help="With --asynchronous: maximum age, in models, of the model that an update was trained from. "
            "Default: 20.",
            show_default=False,
        ),
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Select only devices with this label; repeatable.", show_default=False),
    ] = None,
    trusted_labels: Annotated[
        bool, typer.Option("--trusted-labels", help="Consider only labels that operators have set with `device label`.")
    ] = False,
    allow_empty: AllowEmptyOption = False,
    sampling: Annotated[
        str, typer.Option(help="Selection: uniform, or samples (in proportion to the devices' samples).")
    ] = "uniform",
    uplink_encoding: Annotated[
        str, typer.Option(help="Encoding of updates: float32, bfloat16 or int8, optionally with +zstd.")
    ] = "float32",
    downlink_encoding: Annotated[
        str, typer.Option(help="Encoding of global models for devices; values as for --uplink-encoding.")
    ] = "float32",
    weight_cap: Annotated[
        float,
        typer.Option(
            help="Maximum weight of one device, as a multiple of 1/N, N being the size of the cohort. Default, unless "
            "a clip, a reducer or --trusting is given: 1.25, with a clip factor of 1.25; SCAFFOLD has no default clip, "
            "and FedNova no default bound.",
            show_default=False,
        ),
    ] = 0.0,
    clip_norm: Annotated[
        float, typer.Option(help="Maximum L2 norm of a device's change to the parameters; 0: not set.")
    ] = 0.0,
    clip_factor: Annotated[
        float,
        typer.Option(
            help="The same limit as a multiple of the round's median norm. Default: see --weight-cap.",
            show_default=False,
        ),
    ] = 0.0,
    exclude_after: Annotated[
        int,
        typer.Option(
            metavar="K",
            help="Leave out a device once its update was reported as clipped in K rounds in a row; 0: never.",
        ),
    ] = 0,
    trusting: Annotated[
        bool, typer.Option("--trusting", help="Average without bounds on a device's influence.")
    ] = False,
    reducer: Annotated[
        str, typer.Option(help=f"Aggregation of the updates: {', '.join(REDUCERS)}.")
    ] = DEFAULT_REDUCER.name,
    reducer_set: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="A setting of the reducer, such as byzantine=2.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the order of samples and of augmentation.")] = 0,
    keep_last: KeepLastOption = 20,
    keep_every: KeepEveryOption = 100,
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
) -> None:
    """Start a run from a bundle, unless its plan is one that devices would reject.

    Example: moonfed-coordinator run start digits.zip --rounds 20 --cohort 50% --over-selection 30% --label site=berlin

    Example: moonfed-coordinator run start digits.zip --quorum 5 --reducer multi_krum --reducer-set byzantine=1

    Example: moonfed-coordinator run start digits.zip --recipe simulated/recipe.toml
    """
    from tempfile import TemporaryDirectory

    from moonfed.bundle.files import read_bundle
    from moonfed.bundle.manifest import PLAN_FILE
    from moonfed.coordinator.cli.control_client import connect
    from moonfed.coordinator.cli.format import snapshot_line
    from moonfed.coordinator.cli.initial_model import find_model
    from moonfed.coordinator.documents.runs import run_document
    from moonfed.coordinator.rounds.run_recipe import read_recipe_file, read_run_recipe, run_keys
    from moonfed.sandbox.plan_process import require_safe_plan
    from moonfed.signing.bundle_signature import signed_by
    from moonfed.transport.identity import require_name

    if name:
        require_name("name", name)
    chosen = run_keys(read_recipe_file(recipe)) if recipe else {}
    wanted = read_run_recipe(override(chosen, _given(context)))
    opened = read_bundle(bundle, signed_by(None))
    settings = wanted.settings(opened.manifest)
    require_safe_plan(opened.contents[PLAN_FILE])
    with (
        connect(identity, insecure=insecure, address=coordinator) as console,
        TemporaryDirectory(prefix="moonfed-") as directory,
    ):
        scratch = Path(directory) / "weights"
        initial = find_model(console, model, opened.manifest.tensors, scratch) if model else None
        run = console.start_run(name, opened, initial, settings, allow_empty=allow_empty)
    if json:
        print_json(run_document(run))
    else:
        typer.echo(snapshot_line(run))


def _given(context: typer.Context) -> dict[str, Any]:
    """Return the options that the operator gave, by their names."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return {name: context.params[name] for name, source in sources.items() if source and source.name != "DEFAULT"}


def override(recipe: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recipe's keys with the given options in their place."""
    from moonfed.coordinator.rounds.run_recipe import LABELS, ROBUST, RUN_KEYS
    from moonfed.labels import parse_labels

    values = {**recipe, **{key: given[key] for key in RUN_KEYS if key in given}}
    if labels := given.get("label"):
        values[LABELS] = parse_labels(labels)
    if defence := _defence(given):
        kept = {} if "trusting" in given else values.get(ROBUST, {})
        values[ROBUST] = {**_kept_defence(kept, defence), **defence}
        values["trusting"] = given.get("trusting", False)
    elif given.get("trusting"):
        values.pop(ROBUST, None)
    return values


def _kept_defence(table: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the recipe's defence settings that still apply: only the bounds, if another reducer is given."""
    from moonfed.coordinator.aggregation.robust.config import BOUNDS

    return {key: value for key, value in table.items() if "reducer" not in given or key in BOUNDS}


def _defence(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that belong in the table [robust]."""
    from moonfed.registry import read_pairs

    bounds = {name: given[name] for name in DEFENCE if name in given}
    return {**bounds, **read_pairs("--reducer-set", given.get("reducer_set") or ())}
