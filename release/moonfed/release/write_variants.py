"""Writing the kept variants of a model and their report."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from moonfed.data.data_set import DataSet
from moonfed.files import write_durably
from moonfed.release.variant_report import ReportDocument, report_document, report_path, variant_path
from moonfed.release.variants import OPTIMISED, VariantOptions, make_variants


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
