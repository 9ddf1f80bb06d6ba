"""Recipes with hand-made simulations: tuning, and the rows that they leave."""

from dataclasses import replace
from pathlib import Path

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
    assert "| SOLO | 50.0 ± 11.5 (46.3 ± 5.1) |" in files.report.read_text()  # √(4 · 0.1² / 3) of four parties
