"""Export of simulations to the trackers of runs."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from moonfed.errors import InvalidInput
from moonfed.experiments.cli import app
from moonfed.experiments.fleet.engine import EngineSettings
from moonfed.experiments.fleet.export import export_result, read_exports, snapshot_of
from moonfed.experiments.fleet.run import run_simulation
from tests.support.refusals import refused
from tests.support.simulations import make_simulation

pytestmark = pytest.mark.slow


def test_results_are_exported_and_compared_by_the_tasks_metric(tmp_path: Path) -> None:
    recipe = tmp_path / "diabetes.toml"
    recipe.write_text('dataset = "diabetes"\nmodel = "mlp"\nparties = 2\nrounds = 2\n[settings]\nepochs = 1\n')
    words = ["simulate", str(recipe), "--output", str(tmp_path / "rates"), "--sweep", "learning_rate=0.0001,0.01"]
    done = CliRunner().invoke(app, [*words, "--export", f"csv={tmp_path / 'tables'}"], catch_exceptions=False)
    best, worst = ("learning_rate=0.01", "learning_rate=0.0001")
    assert done.output.index(best) < done.output.index(worst), "the smaller error first"
    with (tmp_path / "tables" / best / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    lines = [json.loads(line) for line in (tmp_path / "rates" / best / "results.jsonl").read_text().splitlines()]
    assert [float(row["rmse"]) for row in rows] == [line["rmse"] for line in lines]
    assert [float(row["mae"]) for row in rows] == [line["other_scores"]["mae"] for line in lines]
    assert (tmp_path / "rates" / best / "rmse.png").is_file()


def test_parties_alone_are_exported_as_devices_and_again_without_a_change(tmp_path: Path) -> None:
    simulation = make_simulation(dataset="diabetes", model="mlp", method="solo", parties=2, settings={"epochs": 1})
    result = run_simulation(simulation, tmp_path / "a", engine=EngineSettings(workers=1))
    assert snapshot_of(result, "a").metric == "rmse"
    first = export_result(result, "csv", str(tmp_path / "tables"), "a")
    text = (tmp_path / "tables" / "devices.csv").read_text()
    assert export_result(result, "csv", str(tmp_path / "tables"), "a") == first
    assert (tmp_path / "tables" / "devices.csv").read_text() == text
    with (tmp_path / "tables" / "devices.csv").open() as file:
        rows = {row["device"]: float(row["rmse"]) for row in csv.DictReader(file)}
    assert rows == {party.party: party.score for party in result.parties}


@pytest.mark.parametrize("text", ["excel=a.xlsx", "csv", "csv="], ids=["unknown", "plain", "empty"])
def test_exports_name_a_tracker_and_a_target(text: str) -> None:
    with refused(InvalidInput, "export", text):
        read_exports([text])
