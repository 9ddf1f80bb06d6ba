"""The command that writes a run's model as ONNX files."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from moonfed.cli.options import IgnoreFolderOption, RunArgument, TargetOption, print_step
from moonfed.command_line.programs import print_json
from moonfed.data.formats import METAVAR
from moonfed.errors import InvalidInput
from moonfed.transport.operator_options import FindEndpoint, JsonOption, TrustOption, operator_options

if TYPE_CHECKING:
    from moonfed.data.source import Source
    from moonfed.release.model_file import CheckedModel
    from moonfed.release.variant_report import ReportDocument
    from moonfed.release.variants import VariantOptions


@operator_options
def onnx(
    endpoint: FindEndpoint,
    run: RunArgument,
    data: Annotated[
        str,
        typer.Option(
            metavar=METAVAR, help="Real samples, on which graph and plan must agree, with targets to evaluate variants."
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            metavar="FILE.onnx", help="The file to write; variants are written next to it as FILE.VARIANT.onnx."
        ),
    ],
    target: TargetOption = "",
    ignore_folder: IgnoreFolderOption = None,
    round_number: Annotated[
        int | None, typer.Option("--round", metavar="N", help="The round. Default: the newest.")
    ] = None,
    bound: Annotated[
        float,
        typer.Option(help="The largest difference allowed between graph's and plan's outputs; relative above 1."),
    ] = 1e-5,
    embeddings: Annotated[
        bool, typer.Option("--embeddings", help="Add the representation z as a second output, `embeddings`.")
    ] = False,
    variant: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="float32, float16, int8 or all; repeatable. float32 is always written."),
    ] = None,
    optimised: Annotated[
        bool, typer.Option("--optimised", help="Also write copies that ONNX Runtime has optimised for this machine.")
    ] = False,
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
    trust: TrustOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a run's global model as an ONNX file that takes raw samples, after checking it against the plan.

    With --variant or --optimised, also makes variants, evaluates and times each, and keeps those that --max-drop and
    --keep accept: by default, variants that are smaller and at most 5 % slower, and optimised copies that are smaller
    or faster. The decisions are printed with their reasons, and written to FILE.report.json.

    Example: moonfed-export onnx my-run --data test.npz --variant all --calibration calibration.npz --output model.onnx
    """
    from moonfed.data.open_source import open_source
    from moonfed.export.coordinator_client import connect
    from moonfed.files import write_durably
    from moonfed.release.model_file import check_model, require_writable, written_model
    from moonfed.release.variant_gate import read_keep
    from moonfed.release.variant_report import table
    from moonfed.release.variants import VariantOptions

    names, judged_by = read_variants(variant, calibration, max_drop), read_keep(keep)
    source = open_source(data, target, ignored_folders=ignore_folder or ())
    require_writable(output)
    with connect(endpoint(), trust=trust) as runs:
        checked = check_model(runs, run, source, round_number=round_number, bound=bound, embeddings=embeddings)
    report: ReportDocument | None = None
    if names or optimised:
        options = VariantOptions(names=names, optimised=optimised, max_drop=max_drop, keep=judged_by)
        report = _write_variants(checked, source, output, options, calibration)
    else:
        write_durably(output, checked.graph)
    written = written_model(output, checked)
    if as_json:
        print_json({**asdict(written), "path": str(output), **({"report": report} if report else {})})
        return
    print(
        f"{output} holds the global model of round {written.round}; "
        f"its {checked.manifest.target.output} differ from the plan's by {written.max_abs_diff:.2g} at most"
    )
    if report:
        print(table(report))


def read_variants(names: list[str] | None, calibration: str | None, max_drop: float) -> tuple[str, ...]:
    """Return the requested variants, checked before anything is fetched."""
    from moonfed.release.variant_gate import require_max_drop
    from moonfed.release.variants import INT8, read_names

    requested = read_names(names or [])
    if calibration is None and INT8 in requested:
        raise InvalidInput("variant int8 needs data to calibrate on; name them with --calibration", field="calibration")
    if calibration is not None and INT8 not in requested:
        raise InvalidInput(
            field="calibration", value=calibration, rest="; it is for variant int8, which is not requested"
        )
    require_max_drop(max_drop)
    return requested


def _write_variants(
    checked: CheckedModel,
    data: Source,
    output: Path,
    options: VariantOptions,
    calibration: str | None,
) -> ReportDocument:
    from dataclasses import replace

    from moonfed.data.open_source import open_source
    from moonfed.release.calibration import read_calibration
    from moonfed.release.variant_report import write_variants

    manifest = checked.manifest
    samples = data.read(manifest.input, manifest.target)
    sha256 = samples.sha256()
    calibration_data = None
    if calibration is not None:
        source = open_source(calibration, option="calibration")
        calibration_data = read_calibration(source, manifest.input, samples.inputs, sha256, manifest.target)
    options = replace(options, calibration=calibration_data)
    facts = {
        "name": manifest.name,
        "run": checked.run,
        "round": checked.round,
        "model_sha256": checked.weights.sha256,
        "max_abs_diff_from_plan": checked.max_abs_diff,
    }
    return write_variants(checked.graph, samples, sha256, output, options, facts, on_step=print_step)
