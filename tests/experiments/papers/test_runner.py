"""Recipes with hand-made simulations: tuning, and the rows that they leave."""

from dataclasses import replace
from pathlib import Path

import pytest

from moonfed.experiments.fleet.results import PartyResult, SimulatedRound, SimulationResult
from moonfed.experiments.papers.catalogue import RECIPES
from moonfed.experiments.papers.reproduce_options import Options
from moonfed.experiments.papers.runner import ReproductionContext, count_trials
from moonfed.experiments.papers.runner import reproduce as run_recipe
from moonfed.experiments.simulation import Simulation
from tests.support.reproduce import rows_of


def hand_made(accuracy: dict[tuple[float, int], float], seen: list[Simulation]) -> ReproductionContext:
    """Fake simulations whose accuracy encodes their mu and seed; SOLO's two parties are around it."""

    def run(simulation: Simulation, output: Path) -> SimulationResult:
        seen.append(simulation)
        value = accuracy[float(simulation.settings.get("mu", 0)), simulation.run.seed]
        if simulation.method == "solo":
            parties = tuple(
                PartyResult(party=f"party-{number}", score=value + 0.1 * sign, loss=1.0, seconds=1.0)
                for number, sign in ((1, -1), (2, 1))
            )
            return SimulationResult(simulation=simulation, output=output, parties=parties)
        rounds = tuple(SimulatedRound(round=t, score=value * t / 2, loss=1.0, seconds=2.0, metrics={}) for t in (1, 2))
        return SimulationResult(simulation=simulation, output=output, rounds=rounds)

    options = Options(output=Path(), data=Path("unused"), dataset="cifar10", rounds=2, seeds=2, tune=True)
    return ReproductionContext(options=options, run=run, hardware="a processor", say=lambda _: None)


def test_tuning_tries_the_papers_grid_and_reports_the_best_value(tmp_path: Path) -> None:
    seen: list[Simulation] = []
    accuracy = {(mu, seed): 0.3 for mu in (0.1, 1.0, 5.0, 10.0) for seed in (0, 1)}
    accuracy |= {(1.0, 0): 0.7, (1.0, 1): 0.5, (10.0, 0): 0.65, (10.0, 1): 0.45}
    context = hand_made(accuracy, seen)
    context = replace(context, options=replace(context.options, output=tmp_path, methods=("moon",)))
    recipe = RECIPES["moon-table-1"]
    assert count_trials(recipe, context.options) == 8
    files = run_recipe(recipe, context)
    assert [(simulation.settings["mu"], simulation.run.seed) for simulation in seen] == [
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


def test_a_tuned_value_is_stated_once(tmp_path: Path) -> None:
    accuracy = {(mu, seed): mu / 10 for mu in (0.1, 1.0, 5.0, 10.0) for seed in (0, 1)}
    context = hand_made(accuracy, [])
    context = replace(context, options=replace(context.options, output=tmp_path, methods=("moon",)))
    report = run_recipe(RECIPES["moon-table-1"], context).report.read_text()
    assert "- MOON, CIFAR-10: mu 10 of 0.1, 1, 5, 10" in report
    assert "| mu |" not in report


def test_a_quick_run_tunes_too_and_names_its_data(tmp_path: Path) -> None:
    seen: list[Simulation] = []
    context = hand_made({(mu, 0): 0.5 for mu in (0.1, 1.0, 5.0, 10.0)}, seen)
    options = Options(output=tmp_path, quick=True, tune=True, methods=("moon",))
    report = run_recipe(RECIPES["moon-table-1"], replace(context, options=options)).report.read_text()
    assert [simulation.settings["mu"] for simulation in seen] == [0.1, 1.0, 5.0, 10.0]
    assert "- MOON, digits for CIFAR-10: mu 0.1 of 0.1, 1, 5, 10" in report


@pytest.mark.parametrize("name", ["moon-table-6", "moon-figure-5", "moon-figure-9", "moon-figure-10"])
def test_splits_have_nothing_to_tune(name: str, tmp_path: Path) -> None:
    context = hand_made({}, [])
    run_recipe(RECIPES[name], replace(context, options=Options(output=tmp_path, quick=True, tune=True)))


def test_the_time_of_a_simulation_that_cells_share_counts_once(tmp_path: Path) -> None:
    context = hand_made({(0.0, 0): 0.5}, [])
    options = replace(context.options, output=tmp_path, seeds=1, tune=False, methods=("fedavg",))
    files = run_recipe(RECIPES["moon-table-2"], replace(context, options=options))
    assert len(rows_of(files.rows)) == 4  # two rounds, for their number and for the speed-up
    assert "| time of all rounds | 4 s | |" in files.report.read_text()


def test_parties_that_train_alone_have_a_line_each(tmp_path: Path) -> None:
    context = hand_made({(0.0, 0): 0.5, (0.0, 1): 0.5}, [])
    context = replace(context, options=replace(context.options, output=tmp_path, methods=("solo",)))
    files = run_recipe(RECIPES["moon-table-1"], context)
    rows = rows_of(files.rows)
    assert [(row["party"], row["seed"], row["accuracy"]) for row in rows] == [
        ("party-1", 0, 0.4),
        ("party-2", 0, 0.6),
        ("party-1", 1, 0.4),
        ("party-2", 1, 0.6),
    ]
    assert "| SOLO | 50.0 ± 10.0 (46.3 ± 5.1) |" in files.report.read_text()  # √(4 · 0.1² / 4) of four parties
