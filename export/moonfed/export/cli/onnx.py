"""The command that writes a run's model as ONNX files."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from moonfed.command_line import print_json
from moonfed.errors import InvalidInput
from moonfed.export.cli.options import RunArgument, print_step
from moonfed.operator import (
    DEFAULT_IDENTITY,
    CoordinatorOption,
    IdentityOption,
    InsecureOption,
    JsonOption,
    TrustOption,
)

if TYPE_CHECKING:
    from moonfed.export.model_file import CheckedModel
    from moonfed.release.variant_report import ReportDocument


def onnx(
    run: RunArgument,
    data: Annotated[
        Path,
        typer.Option(
            metavar="TEST.npz",
            help="Real `inputs`, on which graph and plan must agree, and `labels` to evaluate variants.",
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            metavar="FILE.onnx", help="The file to write; variants are written next to it as FILE.VARIANT.onnx."
        ),
    ],
    round_number: Annotated[int | None, typer.Option("--round", help="The round; by default, the newest.")] = None,
    bound: Annotated[float, typer.Option(help="The largest difference allowed between two probabilities.")] = 1e-5,
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
        Path | None,
        typer.Option(metavar="DATA.npz", help="`inputs` to calibrate int8 on; they must not overlap the test data."),
    ] = None,
    max_drop: Annotated[
        float, typer.Option(metavar="POINTS", help="How far a variant's top-1 may fall below float32's.")
    ] = 0.5,
    trust: TrustOption = None,
    identity: IdentityOption = DEFAULT_IDENTITY,
    insecure: InsecureOption = False,
    coordinator: CoordinatorOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a run's global model as an ONNX file that takes raw samples, after checking it against the plan.

    With --variant or --optimised, also makes variants: each is evaluated and timed, and kept if its top-1 is good
    enough and it is smaller or faster. The decisions are printed with their reasons, and written to FILE.report.json.

    Example: moonfed-export onnx my-run --data test.npz --variant all --calibration calibration.npz --output model.onnx
    """
    from moonfed.export.coordinator_client import connect
    from moonfed.export.model_file import check_model, require_writable, written_model
    from moonfed.files import write_durably
    from moonfed.release.variant_report import table

    names = _read_variants(variant, calibration, max_drop)
    require_writable(output)
    with connect(identity, insecure=insecure, address=coordinator, trust=trust) as runs:
        checked = check_model(runs, run, data, round_number=round_number, bound=bound, embeddings=embeddings)
    report: ReportDocument | None = None
    if names or optimised:
        report = _write_variants(checked, data, output, names, calibration, optimised=optimised, max_drop=max_drop)
    else:
        write_durably(output, checked.graph)
    written = written_model(output, checked)
    if as_json:
        print_json({**asdict(written), "path": str(output), **({"report": report} if report else {})})
        return
    print(
        f"{output} holds the global model of round {written.round}; "
        f"its probabilities differ from the plan's by {written.max_abs_diff:.2g} at most"
    )
    if report:
        print(table(report))


def _read_variants(names: list[str] | None, calibration: Path | None, max_drop: float) -> tuple[str, ...]:
    """Return the requested variants, checked before anything is fetched."""
    from moonfed.release.gate import require_max_drop
    from moonfed.release.variants import INT8, read_names

    requested = read_names(names or [])
    if calibration is None and INT8 in requested:
        raise InvalidInput("variant int8 needs data to calibrate on; name an .npz file with --calibration")
    if calibration is not None and INT8 not in requested:
        raise InvalidInput(f"calibration is {str(calibration)!r}; it is for variant int8, which is not requested")
    require_max_drop(max_drop)
    return requested


def _write_variants(
    checked: CheckedModel,
    data: Path,
    output: Path,
    names: tuple[str, ...],
    calibration: Path | None,
    *,
    optimised: bool,
    max_drop: float,
) -> ReportDocument:
    from moonfed.blobs import ref_of_file
    from moonfed.release.calibration import read_calibration
    from moonfed.release.variants import VariantOptions
    from moonfed.release.write_variants import write_variants
    from moonfed.samples import read_npz

    manifest, sha256 = checked.manifest, ref_of_file(data).sha256
    samples = read_npz(data, manifest.input, manifest.classes)
    calibration_data = (
        None if calibration is None else read_calibration(calibration, manifest.input, samples.inputs, sha256)
    )
    options = VariantOptions(names=names, optimised=optimised, max_drop=max_drop, calibration=calibration_data)
    facts = {
        "name": manifest.name,
        "run": checked.run,
        "round": checked.round,
        "model_sha256": checked.model,
        "max_abs_diff_from_plan": checked.max_abs_diff,
    }
    return write_variants(checked.graph, samples, sha256, output, options, facts, on_step=print_step)
