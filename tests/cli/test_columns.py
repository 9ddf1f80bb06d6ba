"""`moonfed-export columns`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from moonfed.cli.program import app
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
    assert document == {"output": str(output), "classes": ["no", "yes"], "columns": 2, "features": 3}
