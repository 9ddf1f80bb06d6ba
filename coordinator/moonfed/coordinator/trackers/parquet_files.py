"""Export to Parquet files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet

from moonfed.coordinator.trackers.table_files import Columns, TableFiles, open_tables
from moonfed.coordinator.trackers.tracker import TrackerOptions
from moonfed.files import write_durably
from moonfed.registry import Value

PARAMETERS = "moonfed.parameters"  # in each file's metadata, as JSON
TYPES = {"round": pa.int64(), "device": pa.string(), "name": pa.string(), "value": pa.string()}


def open_parquet(options: TrackerOptions) -> AbstractContextManager[TableFiles]:
    """Open a Parquet file or a directory of them."""
    return open_tables(options, ".parquet", write_parquet)


def write_parquet(path: Path, columns: Columns, parameters: Mapping[str, Value]) -> None:
    """Write a table whose metadata holds the run's parameters."""
    arrays = {name: pa.array(values, TYPES.get(name, pa.float64())) for name, values in columns.items()}
    table = pa.table(arrays).replace_schema_metadata({PARAMETERS: json.dumps(dict(parameters))})
    target = pa.BufferOutputStream()
    parquet.write_table(table, target)
    write_durably(path, target.getvalue().to_pybytes())
