"""Writes a model's kept variants and the report beside them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from moonfed.files import write_durably
from moonfed.release.variant_report import ReportDocument, report_document, report_path, variant_path
from moonfed.release.variants import OPTIMISED, VariantOptions, make_variants
from moonfed.samples import RawSamples


def write_variants(
    graph: bytes,
    data: RawSamples,
    data_sha256: str,
    output: Path,
    wishes: VariantOptions,
    facts: Mapping[str, Any],
    *,
    begun: Callable[[str], None],
) -> ReportDocument:
    """Makes and judges the variants of a checked model, writes those that are kept, and the report; returns it.

    Float32 goes to `output`, a variant beside it as NAME.VARIANT.onnx. A variant that is dropped leaves no file, nor
    one that an earlier export wrote: it would be another model's. Nor does its optimised copy.
    """
    variants = make_variants(graph, data, data_sha256, wishes, begun=begun)
    report = report_document(variants, wishes, data, data_sha256, output, facts)
    for variant in variants:
        path = variant_path(output, variant.name)
        if variant.verdict.kept:
            write_durably(path, variant.graph)
        else:
            path.unlink(missing_ok=True)
            variant_path(output, variant.name + OPTIMISED).unlink(missing_ok=True)
    write_durably(report_path(output), (json.dumps(report, indent=2, ensure_ascii=False) + "\n").encode())
    return report
