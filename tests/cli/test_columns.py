"""`moonfed-export columns`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from moonfed.cli.program import app
from moonfed.data.table import TableSource
from moonfed.errors import InvalidInput
from moonfed.export.table_description import read_description
from tests.support.tables import TABLE, write_csv

TEXT = "id,age,plan,churn\na,1,plus,no\nb,2,basic,yes\nc,3,plus,no\n"


def test_several_targets_are_rejected(tmp_path: Path) -> None:
    path, output = write_csv(tmp_path / "customers.csv", TEXT), tmp_path / "columns.json"
    options = ["columns", str(path), "--target", "churn", "--target", "plan", "--output", str(output)]
    with pytest.raises(InvalidInput, match="target is 'churn' and 'plan'; it must be one column"):
        CliRunner().invoke(app, options, catch_exceptions=False)
    assert not output.exists()


def test_a_table_is_described_for_people_and_scripts(tmp_path: Path) -> None:
    path, output = write_csv(tmp_path / "customers.csv", TEXT), tmp_path / "columns.json"
    options = ["columns", str(path), "--target", "churn", "--ignore", "id", "--output", str(output)]
    shown = CliRunner().invoke(app, options)
    assert shown.exit_code == 0, shown.output
    assert shown.output.splitlines() == [
        "age    numeric, mean 2, standard deviation 0.816497",
        "plan   categories basic, plus",
        "churn  target, classes no, yes",
    ]
    assert read_description(output).table == TABLE
    document = json.loads(CliRunner().invoke(app, [*options, "--json"]).output)
    assert document == {
        "output": str(output),
        "task": "classification",
        "target": {"kind": "class", "names": ["no", "yes"], "shape": []},
        "columns": 2,
        "features": 3,
    }


HOUSES = "area,city,price,rent\n10,a,1,0\n20,b,3,1\n30,a,5,\n"
LOAD = "meter,temp,load\n" + "".join(f"{'mn'[row % 2]},{row % 5},{2 * row}\n" for row in range(12))


@pytest.mark.parametrize(
    ("text", "options", "lines"),
    [
        (
            HOUSES,
            ["--target", "price", "--task", "regression", "--ignore", "rent"],
            ["price  target, mean 3, standard deviation 1.63299"],
        ),
        (
            HOUSES,
            ["--target", "rent", "--task", "multilabel", "--ignore", "price"],
            ["rent  target, 0 or 1"],
        ),
        (
            HOUSES,
            ["--task", "anomaly-detection", "--ignore", "price", "--target", "rent"],
            ["rent  says which rows are anomalous, for evaluation"],
        ),
        (
            LOAD,
            ["--target", "load", "--task", "regression", "--window", "4", "--horizon", "2", "--group", "meter"],
            [
                "load     target, mean 11, standard deviation 6.90411, the next 2 rows",
                "samples  windows of 4 rows, within each meter",
            ],
        ),
    ],
)
def test_other_targets_are_described(tmp_path: Path, text: str, options: list[str], lines: list[str]) -> None:
    path, output = write_csv(tmp_path / "t.csv", text), tmp_path / "columns.json"
    shown = CliRunner().invoke(app, ["columns", str(path), *options, "--output", str(output)], catch_exceptions=False)
    assert shown.output.splitlines()[-len(lines) :] == lines
    described = read_description(output)
    read = TableSource(path).read(described.input, described.target)
    assert read.known_targets().shape[1:] == described.target.shape or described.target.kind == "none"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--target", "price"], "give --task regression to predict the number"),
        (["--target", "city", "--task", "regression"], "row 2, column city: 'a' is not a number"),
        (["--target", "price", "--task", "multilabel"], "row [0-9]+, column price"),
        (
            ["--target", "city", "--task", "regression", "--window", "4", "--horizon", "2"],
            "target is 'city'; it must be a column of numbers",
        ),
        (["--task", "regression"], "target is missing"),
        (["--target", "price", "--task", "segmentation"], "task is 'segmentation', whose samples are no rows"),
        (["--target", "price", "--horizon", "2"], "horizon is 2; it must not be given without --window"),
        (["--target", "price", "--group", "city"], "group is 'city'; it must not be given without --window"),
    ],
)
def test_wrong_targets_are_named(tmp_path: Path, options: list[str], message: str) -> None:
    rows = "".join(f"{row % 7},{'ab'[row % 2]},{row / 8}\n" for row in range(40))
    path = write_csv(tmp_path / "t.csv", "area,city,price\n" + rows)
    with pytest.raises(InvalidInput, match=message):
        CliRunner().invoke(
            app, ["columns", str(path), *options, "--output", str(tmp_path / "c")], catch_exceptions=False
        )
