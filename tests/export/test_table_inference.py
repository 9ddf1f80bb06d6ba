"""Descriptions of columns inferred from an example."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from moonfed.errors import InvalidInput, NotFound
from moonfed.export.table_description import Scale
from moonfed.export.table_inference import ColumnChoices, infer_description
from moonfed.table_spec import Column
from tests.support.tables import write_csv, write_parquet

TEXT = "id,age,plan,zip,churn\na1,1,plus,10,1\na2,3,basic,9,0\na3,5,plus,10,10\n"
CHURN = ColumnChoices(target="churn")


def test_kinds_categories_classes_and_scales_follow_from_the_cells(tmp_path: Path) -> None:
    choices = ColumnChoices(target="churn", ignored=("id",), categorical=("zip",))
    found = infer_description(write_csv(tmp_path / "customers.csv", TEXT), choices)
    assert found.table.columns == (
        Column(name="age"),
        Column(name="plan", categories=("basic", "plus")),
        Column(name="zip", categories=("9", "10")),
    )
    assert found.table.target == "churn"
    assert found.classes == ("0", "1", "10")  # whole numbers by value
    assert found.scales == {"age": Scale(3, float(f"{np.std([1, 3, 5]):.6g}"))}
    assert list(found.mean) == [3, 0, 0, 0, 0]
    assert list(found.deviation[1:]) == [1, 1, 1, 1]
    assert found.input.shape == (5,)


def test_scales_of_many_batches_are_those_of_all_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moonfed.data.table_reader.BLOCK_BYTES", 2000)
    values = np.random.default_rng(1).normal(1000, 3, 3000).astype(np.float32)
    rows = "".join(f"{value!r},5,{i % 2}\n" for i, value in enumerate(values.tolist()))
    found = infer_description(write_csv(tmp_path / "customers.csv", "age,same,churn\n" + rows), CHURN)
    assert found.scales["age"].mean == pytest.approx(values.mean(dtype=np.float64), rel=1e-5)
    assert found.scales["age"].deviation == pytest.approx(values.std(dtype=np.float64), rel=1e-5)
    assert found.scales["same"] == Scale(5, 1)  # it never changes


def test_parquet_files_are_described_alike(tmp_path: Path) -> None:
    columns = {"age": [1, 3, 5], "plan": ["plus", "basic", "plus"], "churn": [1, 0, 10]}
    by_parquet = infer_description(write_parquet(tmp_path / "c.parquet", columns), CHURN)
    choices = ColumnChoices(target="churn", ignored=("id", "zip"))
    assert by_parquet == infer_description(write_csv(tmp_path / "c.csv", TEXT), choices)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("age,churn\n1,a\nx,b\n3,a\n", r"c\.csv, row 3, column age: 'x' is not a number"),
        ("age,churn\n1,a\n,b\n3,a\n", r"c\.csv, row 3, column age: the value is missing"),
        ("plan,churn\na,a\n,b\nb,a\n", r"c\.csv, row 3, column plan: the value is missing"),
        ("age,churn\n1,a\n2,\n3,b\n", r"c\.csv, row 3, column churn: the value is missing"),
        ("age,churn\n1,a\n2,a\n", "target is 'churn', which has only 'a'; it must have at least two classes"),
        ("age,left\n1,a\n", "lacks the column 'churn'; its columns are age, left"),
        ("churn\na\nb\n", "no column besides the target"),
        (",age,churn\n1,1,a\n2,2,b\n", "has a column without a name; name it in the header, or remove it"),
        ("age,churn\n", "has no rows; at least one is needed"),
        ("age,empty,churn\n1,,a\n2,,b\n", r"c\.csv, column empty is empty; leave it out with --ignore"),
        (
            "id,churn\n" + "".join(f"x{i},{i % 2}\n" for i in range(300)),
            "column id has more than 256 different values, such as 'x0'; it must be numeric, or name categories",
        ),
        (
            "age,churn\n" + "".join(f"{i},x{i}\n" for i in range(1001)),
            "column churn has more than 1000 different values, such as 'x0'; a target must name at most 1000 classes",
        ),
    ],
)
def test_a_table_that_cannot_be_described_is_reported(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        infer_description(write_csv(tmp_path / "c.csv", text), CHURN)


def test_what_is_no_table_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"data is '.*'; it must be a \.csv or \.parquet file"):
        infer_description(write_csv(tmp_path / "c.npz", ""), CHURN)
    with pytest.raises(NotFound, match="there is no such file"):
        infer_description(tmp_path / "absent.csv", CHURN)
    with pytest.raises(InvalidInput, match="target is missing; it must be one of the columns, id, age"):
        infer_description(write_csv(tmp_path / "c.csv", TEXT), ColumnChoices(target=""))
