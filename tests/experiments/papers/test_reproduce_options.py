"""Options choose among a recipe's cells; unknown ones are rejected."""

from pathlib import Path

import pytest

from moonfed.errors import InvalidInput
from moonfed.experiments.datasets import load_dataset
from moonfed.experiments.papers.catalogue import find_recipe
from moonfed.experiments.papers.presets import DATA
from moonfed.experiments.papers.reproduce_options import Options, choose
from tests.support.paper_recipes import QUICK


def test_options_choose_among_a_recipes_cells() -> None:
    recipe = find_recipe("moon-table-1")
    chosen = choose(
        recipe, Options(output=Path("unused"), data=Path("d"), dataset="cifar100", methods=("moon", "solo"))
    )
    assert [(entry.row, entry.dataset) for entry in chosen.cells] == [("MOON", "cifar100"), ("SOLO", "cifar100")]
    rounds = choose(find_recipe("moon-table-2"), Options(output=Path("unused"), data=Path("d"), methods=("moon",)))
    assert {entry.row for entry in rounds.cells} == {"MOON", "FedAvg"}  # whose accuracy is to be reached
    quick = choose(recipe, QUICK)
    assert {entry.dataset for entry in quick.cells} == {"cifar10"}


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        (
            "moon-table-1",
            {"dataset": "digits"},
            "dataset is 'digits'",
        ),
        ("moon-table-8", {"methods": ("fedsgd",)}, "methods has 'fedsgd'; moon-table-8 has moon, fedavg"),
        ("moon-table-8", {}, "data is not given; moon-table-8 needs the folder with cifar10"),
    ],
)
def test_options_that_a_recipe_does_not_have_are_rejected(name: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        choose(find_recipe(name), Options(output=Path("unused"), **options))  # type: ignore[arg-type]


def test_splits_and_tables_of_numbers_need_no_folder() -> None:
    for name in ("moon-table-6", "moon-figure-5", "moon-figure-9", "moon-figure-10", "tabular"):
        assert choose(find_recipe(name), Options(output=Path("unused"))).panels
    assert DATA["cifar10"].classes * DATA["cifar10"].samples_by_class == 50_000
    assert DATA["tiny-imagenet"].classes * DATA["tiny-imagenet"].samples_by_class == 100_000


@pytest.mark.parametrize("name", ["digits", "breast-cancer", "wine"])
def test_the_numbers_of_test_samples_are_the_data_sets(name: str) -> None:
    assert len(load_dataset(name, None).test.labels) == DATA[name].test_samples
