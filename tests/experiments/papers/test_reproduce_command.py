"""Recipes run to completion on real data; finished work is not repeated."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from moonfed.errors import InvalidInput
from moonfed.experiments.cli import app
from moonfed.experiments.papers.catalogue import RECIPES
from tests.support.reproduce import PNG, reproduce, rows_of


@pytest.mark.slow
def test_a_quick_recipe_runs_to_its_end_and_another_takes_its_simulations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "out"
    asked = ("--quick", "--methods", "fedavg", "--rounds", "2", "--workers", "1", "--output", str(output))
    printed = json.loads(reproduce("shi-table-1", *asked, "--json"))
    assert printed["report"] == str(output / "shi-table-1.md")
    rows = rows_of(output / "shi-table-1.jsonl")
    assert [row["round"] for row in rows] == [1, 2]
    for row in rows:
        assert row["recipe"] == "shi-table-1"
        assert (row["row"], row["column"], row["dataset"], row["method"]) == ("FedAvg", "CIFAR-10", "digits", "fedavg")
        assert row["seed"] == 0
        accuracy, seconds = row["accuracy"], row["seconds"]
        assert isinstance(accuracy, float)
        assert isinstance(seconds, float)
        assert 0 <= accuracy <= 1
        assert seconds > 0
        assert float(360 * accuracy) == pytest.approx(round(360 * accuracy))  # of the 360 digits of the test set
    report = (output / "shi-table-1.md").read_text()
    assert "data set digits instead of CIFAR-10; rounds 2 instead of 100" in report
    assert f"| FedAvg | {100 * float(str(rows[-1]['accuracy'])):.1f} |" in report
    assert "The paper, on CIFAR-10: FedAvg 65.6 ± 0.4." in report
    assert (output / "shi-table-1.png").read_bytes().startswith(PNG)

    def no_engine(*_: object) -> None:
        raise AssertionError("something is trained again")

    monkeypatch.setattr("moonfed.experiments.fleet.run.open_engine", no_engine)
    reproduce("shi-table-1", *asked)
    assert rows_of(output / "shi-table-1.jsonl") == rows
    reproduce("moon-table-9", *asked)  # its "mu 0" is FedAvg
    again = rows_of(output / "moon-table-9.jsonl")
    assert [row["accuracy"] for row in again] == [row["accuracy"] for row in rows]
    assert {row["simulation"] for row in again} == {row["simulation"] for row in rows}


def test_splits_are_drawn_without_any_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moonfed.experiments.fleet.run.run_simulation", None)
    reproduce("moon-table-6", "--seeds", "2", "--output", str(tmp_path))
    rows = rows_of(tmp_path / "moon-table-6.jsonl")
    assert len(rows) == 3 * 10 + 3  # data sets, parties: the split of the first trial alone; test sets
    for dataset, samples in (("cifar10", 50_000), ("cifar100", 50_000), ("tiny-imagenet", 100_000)):
        held = [row["samples_by_class"] for row in rows if (row["dataset"], row.get("seed")) == (dataset, 0)]
        assert sum(sum(counts) for counts in held if isinstance(counts, list)) == samples
    assert (
        "| 5,000 ± 1,165 (5,000 ± 1,165) | 5,000 ± 181 (5,000 ± 181) | 10,000 ± 99 (10,000 ± 99) |"
        in (tmp_path / "moon-table-6.md").read_text()
    )
    assert "| test samples | 10,000 | 10,000 | 10,000 |" in (tmp_path / "moon-table-6.md").read_text()
    reproduce("moon-figure-5", "--seeds", "1", "--output", str(tmp_path))
    assert (tmp_path / "moon-figure-5.png").read_bytes().startswith(PNG)


def test_all_recipes_are_listed() -> None:
    assert [recipe["name"] for recipe in json.loads(reproduce("--list", "--json"))] == list(RECIPES)
    assert [line.split()[0] for line in reproduce("--list").splitlines()] == list(RECIPES)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["moon-table-20"], "recipe is 'moon-table-20'"),
        ([], "recipe is not given; name one that --list shows, or use --all for every recipe"),
        (["moon-table-1", "--all"], "recipe is 'moon-table-1'"),
        (["moon-table-1", "--rounds", "0"], "rounds is 0"),
        (["moon-table-1", "--seeds", "-1"], "seeds is -1"),
        (["moon-table-1", "--dataset", "mnist"], "dataset is 'mnist'"),
        (["moon-table-1", "--methods", "fedavg,x"], "methods has 'x'; moon-table-1 has moon, "),
        (["moon-table-1"], "data is not given; moon-table-1 needs the folder"),
        (["moon-table-1", "--quick", "--engine", "threads"], "engine is 'threads'"),
        (["moon-table-1", "--quick", "--workers", "0"], "workers is 0"),
        (["moon-table-1", "--quick", "--device", "tpu"], "device is 'tpu'"),
    ],
)
def test_wrong_use_is_rejected_before_any_work(arguments: list[str], message: str, tmp_path: Path) -> None:
    output = tmp_path / "out"
    with pytest.raises(InvalidInput, match=message):
        CliRunner().invoke(app, ["reproduce", *arguments, "--output", str(output)], catch_exceptions=False)
    assert not output.exists()
