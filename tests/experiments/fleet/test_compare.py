"""Sweeps over recipes' keys, and the comparison of their simulations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from moonfed.errors import Corrupt, InvalidInput, NotFound
from moonfed.experiments.cli import app
from moonfed.experiments.fleet.compare import directory_of, grid, read_outcomes, table
from tests.support.quick_simulations import rows
from tests.support.refusals import refused


def test_a_grid_has_every_combination_in_order() -> None:
    assert grid([]) == [()]
    assert grid(["mu=1, 5", "seed=1,2"]) == [
        ("mu=1", "seed=1"),
        ("mu=1", "seed=2"),
        ("mu=5", "seed=1"),
        ("mu=5", "seed=2"),
    ]
    assert directory_of(("model=a/b:c", "mu=1")) == "model=a_b:c,mu=1"


@pytest.mark.parametrize("sweep", ["mu", "=1,2", "mu=", "mu=1,,2", "mu=1,1"])
def test_a_sweep_names_a_key_and_different_values(sweep: str) -> None:
    with refused(InvalidInput, "sweep", sweep):
        grid([sweep])


MANY, LONG = f"seed={','.join(map(str, range(201)))}", f"target={'x' * 300},y"


@pytest.mark.parametrize(
    "sweeps", [["mu=1", "mu=2"], [MANY], ["target=a/b,a_b"], [LONG]], ids=["twice", "many", "alike", "long"]
)
def test_a_grid_is_of_different_keys_and_not_endless(sweeps: list[str]) -> None:
    with refused(InvalidInput, "sweep", ", ".join(sweeps)):
        grid(sweeps)


METRIC = {"name": "accuracy", "maximise": True, "share": True, "unit": "", "later": 1}  # a later release's field


def written(directory: Path, accuracies: list[float], **recipe: Any) -> Path:
    """Write what a finished simulation leaves."""
    directory.mkdir()
    entries = [
        {"round": number, "accuracy": value, "loss": 1.0, "seconds": 2.0, "metrics": {}, "party_seconds": 1.0,
         "sent_bytes": 1_000_000, "received_bytes": 500_000, "environment": {}, "metric": METRIC}
        for number, value in enumerate(accuracies, 1)
    ]  # fmt: skip
    (directory / "results.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    summary = {
        "recipe": {"name": directory.name, **recipe},
        "accuracy": accuracies[-1],
        "best_accuracy": max(accuracies),
        "sent_bytes": 1_000_000 * len(accuracies),
        "received_bytes": 500_000 * len(accuracies),
        "seconds": 2.0 * len(accuracies),
        "metric": METRIC,
    }
    (directory / "summary.json").write_text(json.dumps(summary))
    return directory


def test_outcomes_are_named_by_the_keys_in_which_they_differ(tmp_path: Path) -> None:
    common = {"rounds": 2, "parties": 3}
    one = written(tmp_path / "one", [0.5, 0.9, 0.8], method="moon", settings={"mu": 1.0, "tau": 0.5}, **common)
    two = written(tmp_path / "two", [0.2, 0.3, 0.85], method="fedavg", settings={}, **common)
    first, second = read_outcomes([one, two])
    assert (first.label, second.label) == ("method=moon, mu=1, tau=0.5", "method=fedavg")
    assert (first.last, first.best, first.rounds, first.megabytes, first.seconds) == (0.8, 0.9, 3, 4.5, 6.0)
    assert [line.split()[-5:-2] for line in table([first, second]).splitlines()[1:]] == [
        ["0.8500", "0.8500", "3"],  # the most accurate first
        ["0.8000", "0.9000", "3"],
    ]
    same = written(tmp_path / "three", [0.1], method="fedavg", settings={}, **common)
    assert [outcome.label for outcome in read_outcomes([two, same])] == ["two", "three"], "alike but for the directory"


def test_a_directory_without_a_finished_simulation_is_named(tmp_path: Path) -> None:
    with refused(NotFound, "directory", str(tmp_path)):
        read_outcomes([tmp_path])


@pytest.mark.parametrize("summary", ["", "{}", "[]", '{"recipe": 3}', '{"recipe": {}}'])
def test_a_damaged_directory_is_named(summary: str, tmp_path: Path) -> None:
    directory = written(tmp_path / "damaged", [0.5])
    (directory / "summary.json").write_text(summary)
    with pytest.raises(Corrupt, match=str(directory / "summary.json")):
        read_outcomes([directory])
    (directory / "results.jsonl").write_text("")
    with pytest.raises(Corrupt, match=str(directory / "results.jsonl")):
        read_outcomes([directory])


@pytest.mark.slow
def test_a_sweep_leaves_each_simulation_a_table_and_a_picture_and_is_not_repeated(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('dataset = "digits-features"\nmodel = "mlp"\nparties = 2\nrounds = 2\n[settings]\nepochs = 1\n')
    output = tmp_path / "sweep"
    command = ["simulate", str(recipe), "--sweep", "learning_rate=0.01,0.1", "--workers", "1", "--output", str(output)]
    shown = json.loads(CliRunner().invoke(app, [*command, "--json"], catch_exceptions=False).output)
    labels = [found["label"] for found in shown["simulations"]]
    assert labels == ["learning_rate=0.01", "learning_rate=0.1"]
    assert json.loads((output / "comparison.json").read_text()) == shown["simulations"]
    assert (output / "comparison.png").read_bytes().startswith(b"\x89PNG")
    for label, found in zip(labels, shown["simulations"], strict=True):
        assert [row["round"] for row in rows(output / label)] == [1, 2]
        assert rows(output / label)[-1]["accuracy"] == found["accuracy"]
    before = {path: path.stat().st_mtime_ns for path in output.rglob("model.safetensors")}
    again = CliRunner().invoke(app, command, catch_exceptions=False).output
    assert {path: path.stat().st_mtime_ns for path in output.rglob("model.safetensors")} == before
    compared = CliRunner().invoke(app, ["compare", *(str(output / label) for label in labels)], catch_exceptions=False)
    assert compared.output == again
