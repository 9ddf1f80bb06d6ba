"""Tables of customers, as CSV and Parquet files, and the description of their columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import class_target
from moonfed.data.data_set import DataSet
from moonfed.data.source import REQUIRED, LabelUse
from moonfed.data.table import TableSource
from moonfed.data.table_spec import Column, TableSpec

TABLE = TableSpec(columns=(Column(name="age"), Column(name="plan", categories=("basic", "plus"))), targets=("churn",))
INPUT = InputSpec(kind="features", shape=(3,), table=TABLE)
CLASSES = ("no", "yes")
GOOD = "id,plan,age,churn\n1,plus,31.5,no\n2,basic,-4e1,yes\n3,plus,.5,no\n"


def write_csv(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def write_parquet(path: Path, columns: Mapping[str, Sequence[Any] | Any]) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table(dict(columns)), path)
    return path


def read(path: Path, labels: LabelUse = REQUIRED, target: str = "", classes: Sequence[str] = CLASSES) -> DataSet:
    return TableSource(path, target).read(INPUT, class_target(classes), labels=labels)
