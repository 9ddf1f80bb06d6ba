"""Recipes run to their ends on real data: what they leave behind, and that finished work is not done again."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from moonfed.errors import InvalidInput
from moonfed.experiments.cli import app
from moonfed.experiments.fleet.results import PartyResult, SimulatedRound, SimulationResult
from moonfed.experiments.papers.catalogue import RECIPES
from moonfed.experiments.papers.reproduce_options import Options
from moonfed.experiments.papers.runner import Workshop, count_trials
from moonfed.experiments.papers.runner import reproduce as run_recipe
from moonfed.experiments.simulation import Simulation

PNG = b"\x89PNG\r\n\x1a\n"


def reproduce(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["reproduce", *arguments], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def rows_of(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


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


def test_hidden_vectors_are_drawn_of_the_global_and_the_local_models(tmp_path: Path) -> None:
    reproduce(
        "moon-figure-2", "--quick", "--methods", "fedavg", "--rounds", "1", "--workers", "1", "--output", str(tmp_path)
    )
    assert (tmp_path / "moon-figure-2.png").read_bytes().startswith(PNG)
    (row,) = rows_of(tmp_path / "moon-figure-2.jsonl")
    assert f"| FedAvg | {100 * float(str(row['accuracy'])):.1f} |" in (tmp_path / "moon-figure-2.md").read_text()


def test_splits_are_drawn_without_any_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moonfed.experiments.fleet.run.run_simulation", None)
    reproduce("moon-table-6", "--seeds", "2", "--output", str(tmp_path))
    rows = rows_of(tmp_path / "moon-table-6.jsonl")
    assert len(rows) == 3 * 10  # data sets, parties: the paper's split is the same in every trial
    for dataset, samples in (("cifar10", 50_000), ("cifar100", 50_000), ("tiny-imagenet", 100_000)):
        held = [row["samples_by_class"] for row in rows if (row["dataset"], row["seed"]) == (dataset, 0)]
        assert sum(sum(counts) for counts in held if isinstance(counts, list)) == samples
    assert (
        "| 5,000 ± 1,165 (5,000 ± 1,165) | 5,000 ± 181 (5,000 ± 181) | 10,000 ± 99 (10,000 ± 99) |"
        in (tmp_path / "moon-table-6.md").read_text()
    )
    reproduce("moon-figure-5", "--seeds", "1", "--output", str(tmp_path))
    assert (tmp_path / "moon-figure-5.png").read_bytes().startswith(PNG)


def test_all_recipes_are_listed() -> None:
    assert [recipe["name"] for recipe in json.loads(reproduce("--list", "--json"))] == list(RECIPES)
    assert [line.split()[0] for line in reproduce("--list").splitlines()] == list(RECIPES)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["moon-table-20"], "recipe is 'moon-table-20'; it must be one of moon-table-1, "),
        ([], "recipe is not given; it must be one that --list shows, or --all instead"),
        (["moon-table-1", "--all"], "recipe is 'moon-table-1', and --all is given too; it must be"),
        (["moon-table-1", "--rounds", "0"], "rounds is 0; it must be a whole number from 1"),
        (["moon-table-1", "--seeds", "-1"], "seeds is -1; it must be a whole number from 1"),
        (["moon-table-1", "--dataset", "mnist"], "dataset is 'mnist'; moon-table-1 has cifar10, "),
        (["moon-table-1", "--methods", "fedavg,x"], "methods has 'x'; moon-table-1 has moon, "),
        (["moon-table-1"], "data is not given; moon-table-1 needs the folder"),
        (["moon-table-1", "--quick", "--engine", "threads"], "engine is 'threads'; it must be 'processes' or 'ray'"),
        (["moon-table-1", "--quick", "--workers", "0"], "workers is 0; it must be a whole number from 1"),
        (["moon-table-1", "--quick", "--device", "tpu"], "device is 'tpu'; it must be 'cpu' or 'cuda'"),
    ],
)
def test_wrong_use_is_refused_before_any_work(arguments: list[str], message: str, tmp_path: Path) -> None:
    output = tmp_path / "out"
    with pytest.raises(InvalidInput, match=message):
        CliRunner().invoke(app, ["reproduce", *arguments, "--output", str(output)], catch_exceptions=False)
    assert not output.exists()


def hand_made(accuracy: dict[tuple[float, int], float], seen: list[Simulation]) -> Workshop:
    """Simulations that end with the accuracy that stands for their mu and seed; SOLO's two parties around it."""

    def run(simulation: Simulation, output: Path) -> SimulationResult:
        seen.append(simulation)
        value = accuracy[float(simulation.settings.get("mu", 0)), simulation.seed]
        if simulation.method == "solo":
            parties = tuple(
                PartyResult(party=f"party-{number}", accuracy=value + 0.1 * sign, loss=1.0, seconds=1.0)
                for number, sign in ((1, -1), (2, 1))
            )
            return SimulationResult(simulation=simulation, output=output, parties=parties)
        rounds = tuple(
            SimulatedRound(round=t, accuracy=value * t / 2, loss=1.0, seconds=2.0, metrics={}) for t in (1, 2)
        )
        return SimulationResult(simulation=simulation, output=output, rounds=rounds)

    options = Options(output=Path(), data=Path("unused"), dataset="cifar10", rounds=2, seeds=2, tune=True)
    return Workshop(options=options, run=run, hardware="a processor", say=lambda _: None)


def test_tuning_tries_the_papers_grid_and_reports_the_best_value(tmp_path: Path) -> None:
    seen: list[Simulation] = []
    accuracy = {(mu, seed): 0.3 for mu in (0.1, 1.0, 5.0, 10.0) for seed in (0, 1)}
    accuracy |= {(1.0, 0): 0.7, (1.0, 1): 0.5, (10.0, 0): 0.65, (10.0, 1): 0.45}
    workshop = hand_made(accuracy, seen)
    workshop = replace(workshop, options=replace(workshop.options, output=tmp_path, methods=("moon",)))
    recipe = RECIPES["moon-table-1"]
    assert count_trials(recipe, workshop.options) == 8
    files = run_recipe(recipe, workshop)
    assert [(simulation.settings["mu"], simulation.seed) for simulation in seen] == [
        (mu, seed) for mu in (0.1, 1.0, 5.0, 10.0) for seed in (0, 1)
    ]
    report = files.report.read_text()
    assert "| MOON | 60.0 ± 14.1 (69.1 ± 0.4) |" in report
    assert "- MOON, CIFAR-10: mu 1 of 0.1, 1, 5, 10" in report
    rows = rows_of(files.rows)
    assert len(rows) == 16
    assert [(row["mu"], row["seed"], row["round"], row["accuracy"]) for row in rows[4:6]] == [
        (1.0, 0, 1, 0.35),
        (1.0, 0, 2, 0.7),
    ]


def test_parties_that_train_alone_have_a_line_each(tmp_path: Path) -> None:
    workshop = hand_made({(0.0, 0): 0.5, (0.0, 1): 0.5}, [])
    workshop = replace(workshop, options=replace(workshop.options, output=tmp_path, methods=("solo",)))
    files = run_recipe(RECIPES["moon-table-1"], workshop)
    rows = rows_of(files.rows)
    assert [(row["party"], row["seed"], row["accuracy"]) for row in rows] == [
        ("party-1", 0, 0.4),
        ("party-2", 0, 0.6),
        ("party-1", 1, 0.4),
        ("party-2", 1, 0.6),
    ]
    assert "| SOLO | 50.0 ± 11.5 (46.3 ± 5.1) |" in files.report.read_text()  # √(4 · 0.1² / 3) of four parties
