"""Export to CSV files."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from moonfed.coordinator.trackers.table_files import Columns, TableFiles, open_tables
from moonfed.coordinator.trackers.tracker import TrackerOptions
from moonfed.files import write_durably
from moonfed.registry import Value


def open_csv(options: TrackerOptions) -> AbstractContextManager[TableFiles]:
    """Open a CSV file or a directory of them."""
    return open_tables(options, ".csv", write_csv)


def write_csv(path: Path, columns: Columns, _parameters: Mapping[str, Value]) -> None:
    """Write a table with a header; missing values are empty."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    write_durably(path, text.getvalue().encode())
