"""moonfed-export release …: make releases, which `moonfed-coordinator release` deploys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from moonfed.cli.options import (
    ExpiresOption,
    IgnoreFolderOption,
    RunArgument,
    SignersOption,
    TargetOption,
    TestDataOption,
    print_step,
)
from moonfed.command_line.programs import new_group, print_json
from moonfed.data.formats import METAVAR
from moonfed.formatting import iso, measured
from moonfed.transport.operator_options import FindEndpoint, JsonOption, TrustOption, operator_options

if TYPE_CHECKING:
    from moonfed.release.create import CreatedRelease

HELP = """Releases: versions of named models, signed by you, which operators deploy to devices.

Example: moonfed-export release create my-run --name digits --data test.npz
"""
release_app = new_group(HELP)


@release_app.callback()
def group() -> None:
    """Keep `create` a subcommand although it is the only one."""


@release_app.command()
@operator_options
def create(
    endpoint: FindEndpoint,
    run: RunArgument,
    name: Annotated[str, typer.Option("--name", help="The model's name; its next version is created.")],
    data: TestDataOption,
    target: TargetOption = "",
    ignore_folder: IgnoreFolderOption = None,
    round_number: Annotated[int | None, typer.Option("--round", help="The round; by default, the newest.")] = None,
    best: Annotated[
        bool, typer.Option("--best", help="Take the round with the best score of those that were evaluated.")
    ] = False,
    variant: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="float16, int8 or all; repeatable. Those that pass the gate are added."),
    ] = None,
    calibration: Annotated[
        str | None,
        typer.Option(metavar=METAVAR, help="Samples to calibrate int8 on; they must not overlap the test data."),
    ] = None,
    max_drop: Annotated[
        float,
        typer.Option(metavar="POINTS", help="How much worse than float32: points of accuracy, percent of an RMSE."),
    ] = 0.5,
    keep: Annotated[
        str,
        typer.Option(
            metavar="both|smaller",
            help="With 'both', variants must be smaller and at most 5 % slower; with 'smaller', they may be slower.",
        ),
    ] = "both",
    sign: SignersOption = None,
    expires_days: ExpiresOption = 365.0,
    trust: TrustOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create the next version of a released model from a run that has ended.

    The version contains the model's ONNX file (checked against the plan), the variants that pass the gate, a model
    card, a bill of materials, an evaluation, and your signature, which devices verify. `--data` needs 32 samples or
    more.

    Example: moonfed-export release create my-run --round 40 --name digits --data test.npz

    Example: moonfed-export release create my-run --best --name digits --data test.npz
    """
    from moonfed.cli.onnx import read_variants
    from moonfed.data.open_source import open_source
    from moonfed.export.coordinator_client import connect
    from moonfed.release.create import ReleaseOptions, create_release
    from moonfed.release.variant_gate import read_keep
    from moonfed.release.variants import VariantOptions
    from moonfed.signing.key_files import open_signer

    names = read_variants(variant, calibration, max_drop)
    options = ReleaseOptions(
        name=name,
        data=open_source(data, target, ignored_folders=ignore_folder or ()),
        round=round_number,
        best=best,
        variants=VariantOptions(names=names, max_drop=max_drop, keep=read_keep(keep)),
        calibration=open_source(calibration, option="calibration") if calibration is not None else None,
        expires_days=expires_days,
    )
    signer = open_signer(sign or [], print_step)
    with connect(endpoint(), trust=trust) as runs:
        created = create_release(runs, run, options, signer, print_step)
    _print(created, as_json=as_json)


def _print(created: CreatedRelease, *, as_json: bool) -> None:
    release = created.release
    if as_json:
        print_json(
            {
                "name": release.name,
                "version": release.version,
                "run": release.run,
                "round": release.round,
                "created": iso(release.created),
                "manifest": release.manifest.sha256,
                "variants": list(release.variants),
                "dropped": dict(created.dropped),
                release.metric.name: release.score,
                "samples": release.samples,
            }
        )
        return
    print(
        f"created version {release.version} of {release.name} from round {release.round} of run {release.run}; "
        f"{release.metric.name} {measured(release.score or 0.0, release.metric.unit)} on {release.samples:,} samples"
    )
    print(f"variants: {', '.join(release.variants)}")
    for variant, reason in created.dropped.items():
        print(f"dropped {variant}: {reason}")
    print(f"deploy it with: moonfed-coordinator release deploy {release.name} --version {release.version}")
