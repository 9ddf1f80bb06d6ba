"""The report on a model's variants: a document for scripts, a table for people."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from moonfed.blobs import ref_of_bytes
from moonfed.release.convert import describe_hardware
from moonfed.release.variants import FLOAT32, Variant, VariantOptions
from moonfed.samples import RawSamples

ReportDocument = dict[str, Any]


def variant_path(output: Path, variant: str) -> Path:
    """Where a variant is written: float32 at the output itself, the others beside it."""
    return output if variant == FLOAT32 else output.with_name(f"{output.stem}.{variant}{output.suffix}")


def report_path(output: Path) -> Path:
    """Where the report is written."""
    return output.with_suffix(".report.json")


def report_document(
    variants: Sequence[Variant],
    wishes: VariantOptions,
    data: RawSamples,
    data_sha256: str,
    output: Path,
    facts: Mapping[str, Any],
) -> ReportDocument:
    """What was made, kept and dropped, by which figures, on which data and machine.

    `facts`: what else is known of the model, such as its run.
    """
    calibration = wishes.calibration
    return {
        **facts,
        "data": {"sha256": data_sha256, "samples": len(data)},
        "calibration": calibration and {"sha256": calibration.sha256, "samples": len(calibration.inputs)},
        "max_drop": wishes.max_drop,
        "measured_on": json.loads(describe_hardware()),
        "variants": [_entry(variant, output) for variant in variants],
    }


def table(report: ReportDocument) -> str:
    """One line for each variant and, below, what became of it and why."""
    entries = report["variants"]
    timings = list(entries[0]["milliseconds"])
    head = ["variant", "bytes", "top-1", "drop", "loss", "difference", *(f"ms {name}" for name in timings)]
    rows = [head, *([*_cells(entry), *(f"{entry['milliseconds'][name]:.3g}" for name in timings)] for entry in entries)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    lines = ["  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)) for row in rows]
    said = [f"{entry['variant']}: {'kept' if entry['kept'] else 'dropped'}, {entry['reason']}" for entry in entries]
    return "\n".join([*lines, *said])


def _entry(variant: Variant, output: Path) -> ReportDocument:
    figures, verdict = variant.figures, variant.verdict
    return {
        "variant": variant.name,
        "parent": variant.parent or None,
        "kept": verdict.kept,
        "reason": verdict.reason,
        "file": variant_path(output, variant.name).name if verdict.kept else None,
        "sha256": ref_of_bytes(variant.graph).sha256,
        "bytes": figures.bytes,
        "top1": figures.score.accuracy,
        "drop_points": variant.drop,
        "loss": figures.score.loss,
        "max_abs_diff": variant.difference,
        "milliseconds": dict(figures.milliseconds),
    }


def _cells(entry: ReportDocument) -> list[str]:
    return [
        entry["variant"],
        f"{entry['bytes']:,}",
        f"{entry['top1']:.4f}",
        f"{entry['drop_points']:.2f}",
        f"{entry['loss']:.4f}",
        f"{entry['max_abs_diff']:.2g}",
    ]
