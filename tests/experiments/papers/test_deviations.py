"""Deviations from a paper, untuned settings among them."""

from dataclasses import replace
from pathlib import Path

import pytest

from moonfed.experiments.papers.catalogue import RECIPES
from moonfed.experiments.papers.deviations import conditions, untuned
from moonfed.experiments.papers.report import Circumstances, render
from moonfed.experiments.papers.reproduce_options import Options
from tests.support.paper_recipes import EVERY_TABLE_AND_FIGURE, PAPER
from tests.support.paper_results import RECIPE, hand_made

OF_SHI = ["mu of FedProx", "mu of MOON"]
UNTUNED = {  # without and with tuning
    "moon-table-5": (["mu of L2"], []),
    "moon-table-10": (["server_momentum of FedAvgM", "server_momentum of MOON + FedAvgM"], []),
    "moon-table-12": (["mu of k = 100", "mu of k = 2", "mu of k = 5"], []),
    "shi-table-1": (OF_SHI, []),
    **{f"shi-{name}": (OF_SHI, OF_SHI) for name in ("table-2", "table-3", "figure-6", "figure-7")},
}


@pytest.mark.parametrize("name", sorted(EVERY_TABLE_AND_FIGURE))
def test_settings_whose_best_value_no_table_prints_are_untuned(name: str) -> None:
    cells = list(RECIPES[name].cells)
    found = tuple(sorted(untuned(cells, options)) for options in (PAPER, replace(PAPER, tune=True)))
    assert found == UNTUNED.get(name, ([], []))


def test_a_report_names_untuned_settings() -> None:
    options = Options(output=Path("unused"), data=Path("unused"))
    found = untuned(list(RECIPES["moon-table-12"].cells), options)
    text = render(RECIPE, hand_made(), Circumstances(conditions=[], untuned=found))
    assert "> **This is not the paper's experiment:** untuned: mu of k = 2, mu of k = 5, mu of k = 100." in text


def test_a_value_that_no_paper_prints_is_not_called_the_papers() -> None:
    def stated(name: str, options: Options = PAPER) -> dict[str, str]:
        found = conditions(RECIPES[name], list(RECIPES[name].cells), options)
        return {condition.name: condition.paper for condition in found}

    assert stated("moon-table-5")["mu"] == "5 (moon), 1 (moon)"
    assert stated("moon-table-5")["mu, untuned"] == "not stated; our choice: 0.1 (L2)"
    assert "mu, untuned" not in stated("moon-table-5", replace(PAPER, tune=True))
    momentum = stated("moon-table-10")["server_momentum, untuned"]
    assert momentum == "not stated; our choice: 0.7 (FedAvgM), 0.7 (MOON + FedAvgM)"
    assert "mu" not in stated("shi-table-3")
    assert stated("shi-table-3")["mu, untuned"] == "not stated; our choice: 1 (MOON), 0.001 (FedProx)"
    assert stated("fedssc-table-1")["mu"] == "not stated; MOON's table 1: 5 (moon)"
    split = stated("fedssc-table-1")["split"]
    assert split == "not stated; our reading of Dirichlet shares for parties of equal size: dirichlet-equal, beta 0.5"
    assert "parties" not in {
        key for key, value in stated("moon-figure-2").items() if "," in value
    }  # pooled data has none
    assert stated("fedssc-table-1")["mu_moon"] == "5 (fedssc)"
    assert stated("moon-figure-2")["epochs of SOLO"] == "not stated; our choice: 300"
    assert stated("moon-table-1")["epochs of SOLO"] == "300"


def test_the_draw_of_the_split_is_the_authors() -> None:
    def seed(name: str) -> str:
        found = conditions(RECIPES[name], list(RECIPES[name].cells), PAPER)
        return next(condition.paper for condition in found if condition.name == "seed of the split")

    assert seed("moon-table-1") == "not stated; authors' code: 0"
    assert seed("shi-table-1") == "not stated; MOON's authors' code: 0"
    assert seed("moon-table-8") == seed("fedssc-table-1") == "not stated; our choice: the trial's"
