"""The command `run start`: a run's settings as options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from moonfed.command_line import print_json
from moonfed.coordinator.aggregation.robust.reducers import DEFAULT_REDUCER, REDUCERS
from moonfed.coordinator.cli.options import KeepEveryOption, KeepLastOption
from moonfed.operator import DEFAULT_IDENTITY, CoordinatorOption, IdentityOption, InsecureOption, JsonOption


def start(
    bundle: Annotated[Path, typer.Argument(help="A bundle: a directory or a .zip.", show_default=False)],
    rounds: Annotated[int, typer.Option(help="Rounds to commit.")] = 10,
    cohort: Annotated[str, typer.Option(help="Devices per round: 10, 20% of those online, or all.")] = "all",
    minimum_devices: Annotated[int, typer.Option(help="Devices that must be online before a round opens.")] = 1,
    quorum: Annotated[str, typer.Option(help="Updates required per round: 3, 50% of the cohort, or all.")] = "50%",
    deadline: Annotated[float, typer.Option(help="Maximum duration of a round in seconds.")] = 3600.0,
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
            help="With --asynchronous: maximum age, in models, of an update's initial model. Default: 20.",
            show_default=False,
        ),
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(help="Select only devices with this label, NAME=VALUE; repeatable.", show_default=False),
    ] = None,
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
        str,
        typer.Option(
            help="Maximum weight of one device, such as 20%. Without this, a clip or a reducer: 30% and a clip "
            "factor of 3, in rounds of five updates or more.",
            show_default=False,
        ),
    ] = "",
    clip_norm: Annotated[
        float, typer.Option(help="Maximum L2 norm of a device's change of the parameters; 0: none.")
    ] = 0.0,
    clip_factor: Annotated[
        float, typer.Option(help="The same limit as a multiple of the round's median norm; 0: none.")
    ] = 0.0,
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
    seed: Annotated[int, typer.Option(help="Determines cohorts and the order of samples.")] = 0,
    keep_last: KeepLastOption = 20,
    keep_every: KeepEveryOption = 100,
    name: Annotated[str, typer.Option(help="Name of the run. Default: derived from the bundle's.")] = "",
    model: Annotated[
        Path | None, typer.Option("--from", help="Initial weights (.safetensors). Default: the bundle's.")
    ] = None,
    identity: IdentityOption = DEFAULT_IDENTITY,
    insecure: InsecureOption = False,
    coordinator: CoordinatorOption = None,
    json: JsonOption = False,
) -> None:
    """Start a run from a bundle.

    Example: moonfed-coordinator run start digits.zip --rounds 20 --cohort 50% --over-selection 30% --label site=berlin

    Example: moonfed-coordinator run start digits.zip --quorum 5 --reducer multi_krum --reducer-set byzantine=1
    """
    from moonfed.bundle import read_bundle
    from moonfed.coordinator.aggregation.compatibility import default_bounds
    from moonfed.coordinator.aggregation.robust.config import RobustSettings
    from moonfed.coordinator.cli.control_client import connect
    from moonfed.coordinator.cli.format import run_document, snapshot_line
    from moonfed.coordinator.rounds.fedbuff_settings import parse_asynchronous
    from moonfed.coordinator.rounds.retention import Retention
    from moonfed.coordinator.rounds.settings import RunSettings, parse_amount, parse_fraction, parse_sampling
    from moonfed.encodings import parse_encodings
    from moonfed.errors import InvalidInput
    from moonfed.labels import parse_labels
    from moonfed.registry import Selection, read_pairs
    from moonfed.signing.bundle_signature import signed_by

    robust = RobustSettings(
        weight_cap=parse_fraction("weight_cap", weight_cap or "0%"),
        clip_norm=clip_norm,
        clip_factor=clip_factor,
        reducer=Selection(reducer, read_pairs("--reducer-set", reducer_set or ())),
    )
    if trusting and robust:
        raise InvalidInput("trusting is given together with bounds or a reducer; it must be given alone")
    opened = read_bundle(bundle, signed_by(None))
    settings = RunSettings(
        rounds=rounds,
        cohort=parse_amount("cohort", cohort),
        minimum_devices=minimum_devices,
        quorum=parse_amount("quorum", quorum),
        deadline_seconds=deadline,
        heartbeat_timeout_seconds=heartbeat_timeout,
        over_selection=parse_fraction("over_selection", over_selection),
        labels=parse_labels(label or ()),
        asynchronous=parse_asynchronous(asynchronous, max_staleness),
        seed=seed,
        sampling=parse_sampling(sampling),
        encodings=parse_encodings(downlink_encoding, uplink_encoding),
        retention=Retention(last=keep_last, every=keep_every),
        robust=robust if robust or trusting else default_bounds(opened.manifest),
    )
    with connect(identity, insecure=insecure, address=coordinator) as console:
        run = console.start_run(name, opened, model, settings)
    if json:
        print_json(run_document(run))
    else:
        typer.echo(snapshot_line(run))
