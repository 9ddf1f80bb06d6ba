"""The files of a model's variants, and the report on them: a document for scripts, a table for people."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from moonfed.blobs.store import ref_of_bytes
from moonfed.data.data_set import DataSet
from moonfed.files import write_durably
from moonfed.release.convert import describe_hardware
from moonfed.release.variants import FLOAT32, OPTIMISED, Variant, VariantOptions, make_variants

ReportDocument = dict[str, Any]


def variant_path(output: Path, variant: str) -> Path:
    """Return a variant's path: the output itself for float32, a file next to it for others."""
    return output if variant == FLOAT32 else output.with_name(f"{output.stem}.{variant}{output.suffix}")


def report_path(output: Path) -> Path:
    """Return the report's path."""
    return output.with_suffix(".report.json")


def report_document(
    variants: Sequence[Variant],
    options: VariantOptions,
    data: DataSet,
    data_sha256: str,
    output: Path,
    facts: Mapping[str, Any],
) -> ReportDocument:
    """Report the variants made, kept and dropped, with the measurements, data and machine.

    `facts`: further entries about the model, such as its run.
    """
    calibration = options.calibration
    return {
        **facts,
        "data": {"sha256": data_sha256, "samples": len(data)},
        "calibration": calibration and {"sha256": calibration.sha256, "samples": len(calibration.inputs)},
        "max_drop": options.max_drop,
        "keep": options.keep,
        "measured_on": json.loads(describe_hardware()),
        "variants": [_entry(variant, output) for variant in variants],
    }


def table(report: ReportDocument) -> str:
    """Format one line per variant and, below, each decision with its reason."""
    entries = report["variants"]
    timings = list(entries[0]["milliseconds"])
    head = ["variant", "bytes", entries[0]["metric"], "drop", "loss", "difference", *(f"ms {name}" for name in timings)]
    rows = [head, *([*_cells(entry), *(f"{entry['milliseconds'][name]:.3g}" for name in timings)] for entry in entries)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    lines = ["  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)) for row in rows]
    decisions = [
        f"{entry['variant']}: {'kept' if entry['kept'] else 'dropped'}, {entry['reason']}" for entry in entries
    ]
    return "\n".join([*lines, *decisions])


def _entry(variant: Variant, output: Path) -> ReportDocument:
    measured, verdict = variant.measurements, variant.verdict
    return {
        "variant": variant.name,
        "parent": variant.parent or None,
        "kept": verdict.kept,
        "reason": verdict.reason,
        "file": variant_path(output, variant.name).name if verdict.kept else None,
        "sha256": ref_of_bytes(variant.graph).sha256,
        "bytes": measured.bytes,
        "metric": measured.score.metric.name,
        "score": measured.score.value,
        "drop": variant.drop,
        "loss": measured.score.metrics["loss"],
        "max_abs_diff": variant.difference,
        "milliseconds": dict(measured.milliseconds),
    }


def _cells(entry: ReportDocument) -> list[str]:
    return [
        entry["variant"],
        f"{entry['bytes']:,}",
        f"{entry['score']:.4f}",
        f"{entry['drop']:z.2f}",  # no -0.00
        f"{entry['loss']:.4f}",
        f"{entry['max_abs_diff']:.2g}",
    ]


def write_variants(
    graph: bytes,
    data: DataSet,
    data_sha256: str,
    output: Path,
    options: VariantOptions,
    facts: Mapping[str, Any],
    *,
    on_step: Callable[[str], None],
) -> ReportDocument:
    """Make and judge the variants of a checked model, write the kept ones and the report, and return the report.

    Float32 is written to `output`, a variant next to it as NAME.VARIANT.onnx. A dropped variant leaves no file: one
    from an earlier export, and its optimised copy, are removed, since they hold another model.
    """
    variants = make_variants(graph, data, data_sha256, options, on_step=on_step)
    report = report_document(variants, options, data, data_sha256, output, facts)
    for variant in variants:
        path = variant_path(output, variant.name)
        if variant.verdict.kept:
            write_durably(path, variant.graph)
        else:
            path.unlink(missing_ok=True)
            variant_path(output, variant.name + OPTIMISED).unlink(missing_ok=True)
    write_durably(report_path(output), (json.dumps(report, indent=2, ensure_ascii=False) + "\n").encode())
    return report
