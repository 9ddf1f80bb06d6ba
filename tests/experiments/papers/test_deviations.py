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

UNTUNED: dict[str, tuple[list[str], list[str]]] = {  # without and with tuning
    "moon-table-5": (["mu of L2"], []),
    "moon-table-10": (["server_momentum of FedAvgM", "server_momentum of MOON + FedAvgM"], []),
    "moon-table-12": (["mu of k = 100", "mu of k = 2", "mu of k = 5"], []),
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


def stated(name: str, options: Options = PAPER) -> dict[str, str]:
    found = conditions(RECIPES[name], list(RECIPES[name].cells), options)
    return {condition.name: condition.paper for condition in found}


def test_a_value_that_no_paper_prints_is_not_called_the_papers() -> None:
    assert stated("moon-table-5")["mu"] == "5 (moon), 1 (moon)"
    assert stated("moon-table-5")["mu, untuned"] == "not stated; our choice: 0.1 (L2)"
    assert "mu, untuned" not in stated("moon-table-5", replace(PAPER, tune=True))
    momentum = stated("moon-table-10")["server_momentum, untuned"]
    assert momentum == "not stated; our choice: 0.7 (FedAvgM), 0.7 (MOON + FedAvgM)"
    assert stated("shi-table-3")["mu"] == "1 (moon), 0.001 (fedprox)"  # printed, and adopted in all its experiments
    assert "mu, untuned" not in stated("shi-table-3")
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

    assert seed("moon-table-1") == "not stated; authors' code: the trial's"
    assert seed("shi-table-1") == "not stated; MOON's authors' code: the trial's"
    assert seed("moon-table-8") == seed("fedssc-table-1") == "not stated; our choice: the trial's"


ONE_TRIAL = frozenset({"trials (seeds)"})
OF_FEDSSC = ONE_TRIAL | {"network", "output of the projection head", "local epochs", "split", "tau"}
OF_SHI = ONE_TRIAL | {"local epochs", "parties", "parties in a round"}
UNSTATED: dict[
    str, frozenset[str]
] = {  # conditions that a paper does not state, beside the augmentation and the seed of the split
    "moon-table-1": frozenset(),
    "moon-figure-2": ONE_TRIAL | {"epochs of SOLO"},
    "moon-figure-7": ONE_TRIAL | {"local epochs"},
    "fedssc-table-1": OF_FEDSSC | {"mu"},
    "fedssc-figure-1": OF_FEDSSC | {"mu"},
    "fedssc-figure-2": OF_FEDSSC,
    "shi-table-3": OF_SHI,
    **{f"shi-{name}": OF_SHI | {"split"} for name in ("table-1", "table-2", "figure-6", "figure-7")},
}


@pytest.mark.parametrize("name", sorted(EVERY_TABLE_AND_FIGURE))
def test_conditions_that_a_paper_does_not_state_are_said_to_be_unstated(name: str) -> None:
    if not RECIPES[name].trained:
        return
    found = {key for key, value in stated(name).items() if value.startswith("not stated") and "untuned" not in key}
    assert found == {"augmentation", "seed of the split"} | UNSTATED.get(name, ONE_TRIAL)


def test_an_unstated_condition_names_the_source_of_ours() -> None:
    fedssc, shi = stated("fedssc-table-1"), stated("shi-table-1")
    assert [fedssc[name] for name in ("local epochs", "tau", "output of the projection head")] == [
        "not stated; MOON's paper: 10",
        "not stated; MOON's paper: 0.5 (moon), 0.5 (fedssc)",
        "not stated; MOON's paper: 256",
    ]
    assert fedssc["network"] == "not stated; kernels and channels as in MOON's paper: cnn"
    assert shi["split"] == "not stated; MOON's paper: dirichlet-moon, beta 0.5"
    assert stated("moon-table-1")["tau"] == "0.5 (moon)"
    assert stated("moon-table-7")["output of the projection head"] == "256, no head"
