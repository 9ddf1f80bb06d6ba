"""Descriptions of columns inferred from an example."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from moonfed.data.bad_cells import UnusableTable
from moonfed.data.table_spec import Column
from moonfed.errors import InvalidInput, NotFound
from moonfed.export.table_description import Scale
from moonfed.export.table_inference import ColumnChoices, infer_description
from tests.support.refusals import refused
from tests.support.tables import write_csv, write_parquet

TEXT = "id,age,plan,zip,churn\na1,1,plus,10,1\na2,3,basic,9,0\na3,5,plus,10,10\n"
CHURN = ColumnChoices(targets=("churn",))


def test_kinds_categories_classes_and_scales_follow_from_the_cells(tmp_path: Path) -> None:
    choices = ColumnChoices(targets=("churn",), ignored=("id",), categorical=("zip",))
    found = infer_description(write_csv(tmp_path / "customers.csv", TEXT), choices)
    assert found.table.columns == (
        Column(name="age"),
        Column(name="plan", categories=("basic", "plus")),
        Column(name="zip", categories=("9", "10")),
    )
    assert found.table.targets == ("churn",)
    assert found.target.names == ("0", "1", "10")  # whole numbers by value
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
    choices = ColumnChoices(targets=("churn",), ignored=("id", "zip"))
    assert by_parquet == infer_description(write_csv(tmp_path / "c.csv", TEXT), choices)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("age,churn\n1,a\nx,b\n3,a\n", r"c\.csv, row 3, column age: 'x' is not a number"),
        ("age,churn\n1,a\n,b\n3,a\n", r"c\.csv, row 3, column age: the value is missing"),
        ("plan,churn\na,a\n,b\nb,a\n", r"c\.csv, row 3, column plan: the value is missing"),
        ("age,churn\n1,a\n2,\n3,b\n", r"c\.csv, row 3, column churn: the value is missing"),
        ("age,churn\n1,a\n2,a\n", "target is 'churn'"),
        ("age,left\n1,a\n", "lacks the column 'churn'; its columns are age, left"),
        ("churn\na\nb\n", "no column besides the target"),
        (",age,churn\n1,1,a\n2,2,b\n", "has a column without a name; name it in the header, or remove it"),
        ("age,churn\n", "has no rows"),
        ("age,empty,churn\n1,,a\n2,,b\n", r"c\.csv, column empty is empty; leave it out with --ignore"),
        (
            "id,churn\n" + "".join(f"x{i},{i % 2}\n" for i in range(300)),
            "column id has more than 256 different values, such as 'x0'; it must be numeric, or name categories",
        ),
        (
            "age,churn\n" + "".join(f"{i % 7},x{i % 1001}\n" for i in range(2100)),
            "column churn has more than 1000 different values, such as 'x0'; a target must name at most 1000 classes",
        ),
    ],
)
def test_a_table_that_cannot_be_described_is_reported(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        infer_description(write_csv(tmp_path / "c.csv", text), CHURN)


def table(tmp_path: Path, cells: Sequence[str], target: Sequence[str] = ("yes", "no", "no")) -> Path:
    """Write 60 rows; the cells and targets are repeated."""
    ages = np.random.default_rng(1).permutation(60) / 8
    rows = [(ages[i], cells[i % len(cells)], target[i % len(target)]) for i in range(60)]
    text = io.StringIO()
    csv.writer(text).writerows([("age", "it", "ill"), *rows])
    return write_csv(tmp_path / "c.csv", text.getvalue())


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ([f"{i},50" for i in range(60)], "has 60 different values in 60 rows"),
        ([f"{i}.5 %" for i in range(60)], "has 60 different values in 60 rows"),
        ([f"patient {i}" for i in range(55)], "has 55 different values in 60 rows"),
        ([str(i) for i in range(1000, 1060)], "numbers the rows"),
        (
            [str(1764200000 + i * 7 % 60) for i in range(60)],
            "holds large numbers whose differences are lost in 32 bits",
        ),
        ([f"{6123456 + i * 7 % 60 / 100}" for i in range(60)], "holds large numbers whose differences are lost"),
    ],
    ids=["decimal-comma", "percent", "names", "row-numbers", "seconds", "easting"],
)
def test_a_column_that_may_be_no_feature_needs_a_word_of_the_user(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, cells: Sequence[str], reason: str
) -> None:
    path = table(tmp_path, cells)
    with pytest.raises(InvalidInput, match=f"^{path}, column it {reason}.*--numeric, --categorical or --ignore"):
        infer_description(path, ColumnChoices(targets=("ill",)))
    found = infer_description(path, ColumnChoices(targets=("ill",), categorical=["it"]))
    assert len(found.table.columns[1].categories) == len(set(cells))
    assert infer_description(path, ColumnChoices(targets=("ill",), ignored=["it"])).table.names == ("age",)
    assert caplog.records == []
    infer_description(path, ColumnChoices(targets=("ill",), ask=False))
    assert len(caplog.records) == 1


@pytest.mark.parametrize(
    ("cells", "note"),
    [
        ([f"2026-11-{i + 10} 10:00:00" for i in range(15)], "becomes 15 categories with digits, such as '2026-11-10"),
        ([f"${i}" for i in range(15)], "becomes 15 categories with digits"),
        ([f"{i} kg" for i in range(15)], "becomes 15 categories with digits"),
        ([chr(0x4E00 + i) for i in range(40)], "becomes 40 categories of 60 rows"),
        ([str(i * 7 % 60) for i in range(60)], "holds another whole number in every row"),
        (["1.5", "2.5", "20", "-999"], "holds -999 apart from all other numbers, which may stand for missing values"),
        (["1", "2", "3", "-1"], "holds -1 apart"),
        (["100", "120", "99999"], "holds 99999 apart"),
    ],
    ids=["dates", "currency", "units", "most-differ", "identifiers", "sentinel", "minus-one", "nines"],
)
def test_a_doubtful_column_is_reported_until_the_user_names_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, cells: Sequence[str], note: str
) -> None:
    path = table(tmp_path, cells)
    found = infer_description(path, ColumnChoices(targets=("ill",)))
    (record,) = caplog.records
    assert record.message.startswith(f"{path}, column it {note}")
    kind = "numeric" if "it" in found.scales else "categorical"
    named = ColumnChoices(targets=("ill",), **{kind: ["it"]})  # type: ignore[arg-type]
    assert infer_description(path, named) == found
    assert len(caplog.records) == 1


@pytest.mark.parametrize("cells", [["0", "1"], ["plus", "basic"], ["0.5", "99"], ["-1", "0", "1", "-2"], ["5"]])
def test_what_is_plain_is_not_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture, cells: Sequence[str]) -> None:
    infer_description(table(tmp_path, cells), ColumnChoices(targets=("ill",)))
    assert caplog.records == []


@pytest.mark.parametrize("name", ["Unnamed: 0", "__index_level_0__", "index"])
def test_the_index_of_pandas_is_no_feature_even_if_it_is_shuffled(tmp_path: Path, name: str) -> None:
    columns = {name: [3, 1, 2], "age": [1, 3, 5], "churn": [1, 0, 1]}
    with pytest.raises(InvalidInput, match=f"column {name} numbers the rows"):
        infer_description(write_parquet(tmp_path / "c.parquet", columns), CHURN)


def test_numeric_columns_have_no_other_cells(tmp_path: Path) -> None:
    path = table(tmp_path, ["1,5", "2,5"])
    with pytest.raises(UnusableTable, match=r"has 60 cells .* row 2, column it: '1,5' is not a number"):
        infer_description(path, ColumnChoices(targets=("ill",), numeric=["it"]))
    with refused(InvalidInput, "numeric", "it"):
        ColumnChoices(targets=("ill",), numeric=["it"], categorical=["it"])


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ([f"{i}.5" for i in range(4)], "holds numbers, 4 different ones"),
        ([str(i) for i in range(30)], "holds numbers, 30 different ones"),
        ([f"{i / 7:.3f}" for i in range(60)], "holds numbers, 60 different ones"),
        ([f"{i} EUR" for i in range(60)], "has 60 different values in 60 rows"),
    ],
    ids=["fractions", "whole", "prices", "units"],
)
def test_a_target_that_names_no_classes_is_refused(tmp_path: Path, target: Sequence[str], reason: str) -> None:
    path = table(tmp_path, ["a", "b"], target)
    with refused(InvalidInput, "target", "ill"):
        infer_description(path, ColumnChoices(targets=("ill",), ask=False))
    assert len(infer_description(path, ColumnChoices(targets=("ill",), categorical=["ill"])).target.names) == len(
        target
    )


def test_spellings_of_one_name_are_one_category(tmp_path: Path) -> None:
    found = infer_description(
        table(tmp_path, ["True", "false", "TRUE", "False"], ["1", "0.0", "1.0", "0"]), ColumnChoices(targets=("ill",))
    )
    assert found.target.names == ("0.0", "1")
    assert found.table.columns[1].categories == ("True", "false")


def test_a_mean_has_as_many_decimals_as_the_deviation(tmp_path: Path) -> None:
    found = infer_description(table(tmp_path, ["100000.25", "100001.5", "100001.75"]), ColumnChoices(targets=("ill",)))
    assert found.scales["it"].mean == pytest.approx(100001.16666667, abs=1e-4)


def test_what_is_no_table_is_named(tmp_path: Path) -> None:
    with refused(InvalidInput, "data"):
        infer_description(write_csv(tmp_path / "c.npz", ""), CHURN)
    with refused(NotFound, "data"):
        infer_description(tmp_path / "absent.csv", CHURN)
    with refused(InvalidInput, "target"):
        infer_description(write_csv(tmp_path / "c.csv", TEXT), ColumnChoices(targets=("",)))
