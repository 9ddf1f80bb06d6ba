"""Cells become simulations with the papers' settings."""

from pathlib import Path

import pytest

from moonfed.errors import InvalidInput
from moonfed.experiments.papers.catalogue import RECIPES
from moonfed.experiments.papers.reproduce_options import Options, choose
from moonfed.experiments.papers.to_simulation import simulation_of
from tests.support.paper_recipes import EVERY_TABLE_AND_FIGURE, PAPER, QUICK, cell
from tests.support.refusals import refused


def test_every_trial_draws_its_parties_with_its_own_seed_as_the_authors_do() -> None:
    splits = [simulation_of(cell("moon-table-1", "MOON"), PAPER, seed=seed).partition_settings for seed in (0, 1, 2)]
    assert [(split.kind, split.seed) for split in splits] == [("dirichlet-moon", seed) for seed in (0, 1, 2)]
    assert simulation_of(cell("moon-table-8", "FedAvg", column="IID"), PAPER, seed=0).partition == "iid"


@pytest.mark.parametrize("options", [PAPER, QUICK], ids=["paper", "quick"])
@pytest.mark.parametrize("name", sorted(EVERY_TABLE_AND_FIGURE | {"tabular"}))
def test_every_cell_can_be_simulated(name: str, options: Options) -> None:
    chosen = choose(RECIPES[name], options)
    assert chosen.panels
    for entry in chosen.cells:
        for tuned in (None, *entry.grid):
            simulation = simulation_of(entry, options, seed=2, tuned=tuned)
            assert (simulation.method, simulation.run.seed) == (entry.method, 2)


def test_views_can_be_simulated_with_augmentation() -> None:
    simulations = [simulation_of(entry, PAPER, seed=0) for entry in RECIPES["views"].cells]
    assert [simulation.method_settings.training.views for simulation in simulations] == [1, 2, 3, 5, 0]
    assert {simulation.augmentation_name for simulation in simulations} == {"crop-flip"}
    with refused(InvalidInput, "data"):
        choose(RECIPES["views"], QUICK)
    with pytest.raises(InvalidInput, match="augmentation is off"):
        choose(RECIPES["views"], Options(output=Path("unused"), data=Path("unused"), augmentation=False))


@pytest.mark.parametrize(
    ("dataset", "mu", "proximal", "rounds", "model"),
    [
        ("cifar10", 5.0, 0.01, 100, "cnn"),
        ("cifar100", 1.0, 0.001, 100, "resnet50"),
        ("tiny-imagenet", 1.0, 0.001, 20, "resnet50"),
    ],
)
def test_the_first_table_has_the_papers_settings(
    dataset: str, mu: float, proximal: float, rounds: int, model: str
) -> None:
    moon, prox = (simulation_of(cell("moon-table-1", row, dataset), PAPER, seed=0) for row in ("MOON", "FedProx"))
    assert (moon.settings["mu"], prox.settings["mu"]) == (mu, proximal)
    for simulation in (moon, prox):
        training = simulation.method_settings.training
        assert (simulation.run.rounds, simulation.model, simulation.parties, simulation.beta) == (
            rounds,
            model,
            10,
            0.5,
        )
        assert (training.epochs, training.batch_size, simulation.projection) == (10, 64, 256)
    solo = simulation_of(cell("moon-table-1", "SOLO", dataset), PAPER, seed=0)
    assert solo.method_settings.training.epochs == 300


def test_tables_share_the_simulations_that_they_have_in_common() -> None:
    def digest(recipe: str, row: str, dataset: str = "cifar10", column: str = "") -> str:
        return simulation_of(cell(recipe, row, dataset, column), PAPER, seed=1).digest

    first = digest("moon-table-1", "MOON")
    assert first == digest("moon-table-2", "MOON") == digest("moon-table-9", "MOON, mu 5")
    assert first == digest("moon-table-12", "k = 1") == digest("moon-figure-7", "MOON", column="10")
    assert first == digest("moon-figure-11", "MOON", column="0.5") == digest("moon-figure-11", "MOON", column="256")
    assert digest("moon-table-1", "SOLO", "cifar100") == digest("moon-table-4", "SOLO", "cifar100", "beta 0.5")
    assert digest("moon-table-1", "FedAvg", "cifar100") == digest("moon-table-9", "mu 0", "cifar100")
    assert digest("moon-table-1", "SCAFFOLD") == digest("moon-table-7", "SCAFFOLD", column="CIFAR-10, with")
    assert first != digest("fedssc-table-1", "MOON") != digest("moon-table-8", "MOON, mu 5", column="IID")


def test_schedules_follow_the_number_of_rounds() -> None:
    two_stage = cell("fedssc-figure-2", "two-stage")
    few = Options(output=Path("unused"), data=Path("unused"), rounds=20)
    settings = simulation_of(two_stage, few, seed=0).settings
    assert (settings["decay_end"], settings["first_stage_rounds"]) == (20, 18)
    assert not simulation_of(two_stage, PAPER, seed=0).settings  # a hundred rounds are the method's own defaults
    solo = simulation_of(cell("moon-table-1", "SOLO"), few, seed=0)
    assert solo.method_settings.training.epochs == 200
    for rounds in (1, 2, 3):
        assert simulation_of(two_stage, Options(output=Path("unused"), rounds=rounds), seed=0).run.rounds == rounds


def test_a_quick_look_at_the_first_tables_is_at_drifting_models() -> None:
    for name in ("moon-table-1", "fedssc-table-1"):
        for entry in choose(RECIPES[name], QUICK).cells:
            found = simulation_of(entry, QUICK, seed=0)
            assert (found.dataset, found.parties, found.beta) == ("digits", 4, 0.1)
            if entry.method != "solo":
                assert (found.run.rounds, found.method_settings.training.epochs) == (10, 20)
    other = simulation_of(next(choose(RECIPES["moon-table-9"], QUICK).cells), QUICK, seed=0)
    assert (other.run.rounds, other.beta, other.method_settings.training.epochs) == (5, 0.5, 5)
