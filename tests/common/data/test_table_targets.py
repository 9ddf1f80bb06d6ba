"""Targets of tables other than classes: values, labels, and the rows after a window."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import UNKNOWN, TargetSpec
from moonfed.data.bad_cells import UnusableTable
from moonfed.data.source import IGNORED
from moonfed.data.table import TableSource
from moonfed.data.table_spec import Column, TableSpec
from moonfed.errors import InvalidInput
from tests.support.refusals import refused
from tests.support.tables import write_csv, write_parquet

AREA = (Column(name="area"),)
PRICES = TargetSpec(kind="values", names=("price", "rent"), shape=(2,))
LABELS = TargetSpec(kind="labels", names=("cat", "dog"), shape=(2,))


def rows_of(targets: tuple[str, ...]) -> InputSpec:
    return InputSpec(kind="features", shape=(1,), table=TableSpec(columns=AREA, targets=targets))


def series_of(window: int, group: str = "") -> InputSpec:
    table = TableSpec(columns=(Column(name="load"), Column(name="temp")), targets=("load",), group=group)
    return InputSpec(kind="series", shape=(window, 2), table=table)


def forecast(steps: int) -> TargetSpec:
    return TargetSpec(kind="values", names=("load",), shape=(steps, 1))


def test_values_are_read_from_their_columns(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "houses.csv", "rent,area,price\n-1.5,10,2e3\n0,20,4000\n")
    samples = TableSource(path).read(rows_of(("price", "rent")), PRICES)
    assert samples.targets is not None
    assert samples.targets.dtype == np.float32
    assert samples.targets.tolist() == [[2000, -1.5], [4000, 0]]
    assert TableSource(path).read(rows_of(("price", "rent")), PRICES, labels=IGNORED).targets is None


@pytest.mark.parametrize(
    ("cells", "sentence"),
    [
        ("1,,3", "row 2, column price: the value is missing"),
        ("1,cheap,3", "row 2, column price: 'cheap' is not a number"),
        ("1,1e39,3", "row 2, column price: '1e39' is too large"),
        ("1,2,NA", "row 2, column rent: the value is missing"),
    ],
)
def test_a_value_that_cannot_be_used_is_named_by_row_and_column(tmp_path: Path, cells: str, sentence: str) -> None:
    path = write_csv(tmp_path / "houses.csv", f"area,price,rent\n{cells}\n")
    with pytest.raises(UnusableTable, match=sentence):
        TableSource(path).read(rows_of(("price", "rent")), PRICES)


def test_labels_are_0_1_or_unknown(tmp_path: Path) -> None:
    text = write_csv(tmp_path / "t.csv", "area,cat,dog\n1,0,1.0\n2,,true\n3,FALSE,NA\n")
    samples = TableSource(text).read(rows_of(("cat", "dog")), LABELS)
    assert samples.targets is not None
    assert samples.targets.dtype == np.uint8
    assert samples.targets.tolist() == [[0, 1], [UNKNOWN, 1], [0, UNKNOWN]]
    columns = {"area": [1.0, 2.0], "cat": [True, None], "dog": [0, 1]}
    typed = TableSource(write_parquet(tmp_path / "t.parquet", columns)).read(rows_of(("cat", "dog")), LABELS)
    assert typed.targets is not None
    assert typed.targets.tolist() == [[1, 0], [UNKNOWN, 1]]


@pytest.mark.parametrize("cell", ["2", "yes", "0.5"])
def test_another_label_is_named_by_row_and_column(tmp_path: Path, cell: str) -> None:
    path = write_csv(tmp_path / "t.csv", f"area,cat,dog\n1,0,1\n2,0,{cell}\n")
    with pytest.raises(UnusableTable, match=f"row 3, column dog: '{cell}' is not 0, 1 or empty"):
        TableSource(path).read(rows_of(("cat", "dog")), LABELS)


def test_one_target_may_be_replaced_but_not_one_of_several(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "t.csv", "area,price,asked\n1,2,3\n")
    one = TargetSpec(kind="values", names=("price",), shape=(1,))
    samples = TableSource(path, "asked").read(rows_of(("price",)), one)
    assert samples.known_targets().tolist() == [[3]]
    with refused(InvalidInput, "target", "asked"):
        TableSource(path, "asked").read(rows_of(("price", "rent")), PRICES)


def load(rows: int) -> str:
    return "".join(f"{row},{row / 2}\n" for row in range(rows))


def test_a_forecast_follows_its_window(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "load.csv", "load,temp\n" + load(6))
    samples = TableSource(path).read(series_of(3), forecast(2))
    assert samples.inputs.tolist() == [[[i, i / 2] for i in range(start, start + 3)] for start in (0, 1)]
    assert samples.known_targets().tolist() == [[[3], [4]], [[4], [5]]]
    assert samples.names() == ["load.csv, row 4", "load.csv, row 5"]
    unlabelled = TableSource(path).read(series_of(3), forecast(2), labels=IGNORED)  # to predict what is not yet known
    assert unlabelled.inputs[-1, :, 0].tolist() == [3, 4, 5]


def test_no_window_crosses_groups(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lines = ["a,0", "b,10", "a,1", "b,11", "a,2", "c,20", "b,12"]
    path = write_csv(tmp_path / "load.csv", "meter,load,temp\n" + "".join(f"{line},0\n" for line in lines))
    samples = TableSource(path).read(series_of(2, "meter"), forecast(1))
    assert samples.inputs[:, :, 0].tolist() == [[0, 1], [10, 11]]
    assert samples.known_targets().tolist() == [[[2]], [[12]]]
    assert "1 of 3 groups" in caplog.text


@pytest.mark.parametrize(
    ("text", "group", "sentence"),
    [
        ("load,temp\n" + load(4), "", "has 4 rows; a window of 3 rows and the next 2 needs 5"),
        ("load,temp\n" + load(1), "", "has 1 row; a window of 3 rows and the next 2 needs 5"),
        (
            "meter,load,temp\n" + "a,1,1\n" * 4 + "b,1,1\n",
            "meter",
            "has 4 rows in its largest group; a window of 3 rows and the next 2 needs 5",
        ),
    ],
)
def test_too_few_rows_are_one_sentence(tmp_path: Path, text: str, group: str, sentence: str) -> None:
    path = write_csv(tmp_path / "load.csv", text)
    with pytest.raises(InvalidInput, match=sentence):
        TableSource(path).read(series_of(3, group), forecast(2))
