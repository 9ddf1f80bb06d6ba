"""The catalogue against the papers, whose numbers are in `printed.toml`."""

from pathlib import Path

import pytest
import tomllib
from typer.testing import CliRunner

from moonfed.errors import InvalidInput
from moonfed.experiments.cli import app
from moonfed.experiments.papers.catalogue import RECIPES, find_recipe
from moonfed.experiments.papers.recipe import PaperValue
from moonfed.experiments.papers.to_simulation import simulation_of
from tests.support.paper_recipes import EVERY_TABLE_AND_FIGURE, OF_OUR_OWN, PAPER, THREE
from tests.support.refusals import refused

PRINTED = tomllib.loads((Path(__file__).parent / "printed.toml").read_text())  # typed by hand from the papers
Place = tuple[str, str, str]  # measure, column and row


ROWS = {  # of figures, panel by panel, for each panel's data set
    "moon-figure-2": [("cifar10", "pooled data; SOLO; FedAvg")],
    "moon-figure-6": [(dataset, "MOON; FedAvg; FedProx; FedProx, mu 1; SCAFFOLD") for dataset in THREE],
    "moon-figure-8": [("cifar100", "FedAvg; FedProx; SCAFFOLD; MOON, mu 1; MOON, mu 10")] * 2,
    "fedssc-figure-1": [("cifar10", "FedAvg; MOON; FedSSC")] * 4,
    "fedssc-figure-2": [
        ("cifar10", "FedSSC; two-stage; local contrast"),
        ("cifar10", "FedSSC; mu_moon = 0; FedProc"),
        ("cifar10", "FedSSC; k = 1; k = 2; k = 5; k = 10; none"),
    ],
    "shi-figure-6": [(dataset, "MOON; FedAvg; FedProx; FedProx, mu 1") for dataset in THREE],
    "shi-figure-7": [(dataset, "MOON; FedAvg; FedProx") for dataset in THREE],
    **{f"moon-figure-{number}": [(dataset, "samples per party") for dataset in THREE] for number in (5, 9, 10)},
}


TUNED = {  # what a paper tuned for the very cells of a table or figure: method and grid
    "moon-table-1": {("MOON", "mu", (0.1, 1, 5, 10)), ("FedProx", "mu", (0.001, 0.01, 0.1, 1))},
    "moon-table-5": {("L2", "mu", (0.001, 0.01, 0.1, 1, 5, 10))},
    "moon-table-10": {
        ("FedAvgM", "server_momentum", (0.1, 0.7, 0.9)),
        ("MOON + FedAvgM", "server_momentum", (0.1, 0.7, 0.9)),
    },
    "moon-table-12": {(f"k = {k}", "mu", (0.1, 1, 5, 10)) for k in (1, 2, 5, 100)},
    "shi-table-1": {("MOON", "mu", (0.01, 0.1, 1, 5, 10)), ("FedProx", "mu", (0.001, 0.01, 0.1, 1))},
}


def printed_texts(name: str) -> dict[Place, str]:
    return {
        (measure, column, row): text
        for measure, table in PRINTED.get(name, {}).items()
        for row, texts in table.items()
        if row != "columns"
        for column, text in zip(table["columns"], texts, strict=True)
        if text
    }


def recipe_texts(name: str) -> dict[Place, str]:
    found: dict[Place, str] = {}
    for panel in RECIPES[name].panels:
        for entry in panel.cells:
            if entry.paper:
                column = f"{entry.dataset}: {entry.column}" if entry.column else entry.dataset
                found[panel.measure, column, entry.row] = entry.paper.text
    return found


def test_every_table_and_figure_of_the_papers_is_listed() -> None:
    printed = CliRunner().invoke(app, ["reproduce", "--list"], catch_exceptions=False).stdout
    assert {line.split()[0] for line in printed.splitlines()} == EVERY_TABLE_AND_FIGURE | OF_OUR_OWN


@pytest.mark.parametrize("name", sorted(ROWS))
def test_every_figure_has_the_papers_panels_and_methods(name: str) -> None:
    found = []
    for panel in RECIPES[name].panels:
        (dataset,) = {entry.dataset for entry in panel.cells}
        found.append((dataset, "; ".join(dict.fromkeys(entry.row for entry in panel.cells))))
    assert found == ROWS[name]


@pytest.mark.parametrize("name", sorted(EVERY_TABLE_AND_FIGURE))
def test_the_tuned_settings_are_the_papers(name: str) -> None:
    tuned = {(entry.row, entry.tuned, entry.grid) for entry in RECIPES[name].cells if entry.grid}
    assert tuned == TUNED.get(name, set())


@pytest.mark.parametrize("name", sorted(EVERY_TABLE_AND_FIGURE))
def test_a_recipe_says_where_the_authors_code_deviates_from_the_paper(name: str) -> None:
    recipe = RECIPES[name]
    trained = recipe.trained
    moons = name.startswith("moon")

    def says(text: str) -> bool:
        return any(text in note for note in recipe.notes)

    assert says("contains SCAFFOLD") == ("scaffold" in {entry.method for entry in trained})
    simulated = [simulation_of(entry, PAPER, seed=0) for entry in trained if entry.method == "scaffold"]
    higher = (
        any(one.model == "resnet50" or str(one.run.cohort) != "all" for one in simulated) and name != "moon-table-11"
    )
    assert says("to be far above the paper's with the ResNet-50 and with 100 parties") == higher
    assert says("contains L2") == ("l2" in {entry.method for entry in trained})
    assert says("its own randomly initialised network") == any("cohort" in entry.keys for entry in trained)
    assert says("(1 - beta) delta") == any("damped" in entry.server for entry in trained)
    assert says("four copies of one model") == any("previous_models" in entry.settings for entry in trained)
    assert says(f"follows {'its authors' if moons else 'the code of MOON'}") == bool(trained)


def test_the_values_of_fedssc_and_of_many_parties_are_the_papers() -> None:
    by_beta = [panel.cells[0].keys["beta"] for panel in RECIPES["fedssc-figure-1"].panels]
    assert by_beta == [0.2, 0.5, 1.0, 5.0]
    assert {entry.keys["partition"] for entry in RECIPES["fedssc-figure-2"].cells} == {"dirichlet-equal"}
    shared = {entry.row: entry for entry in RECIPES["fedssc-figure-2"].panels[2].cells}
    assert shared["k = 5"].settings == {"mu_moon": 0.0, "prototype_devices": 5}
    assert shared["none"].method == "fedavg"
    sizes = [simulation_of(panel.cells[0], PAPER, seed=0) for panel in RECIPES["moon-figure-8"].panels]
    assert [(found.parties, found.run.rounds, str(found.run.cohort)) for found in sizes] == [
        (50, 200, "all"),
        (100, 500, "20%"),
    ]
    assert [entry.keys.get("beta") for entry in RECIPES["moon-figure-9"].cells] == [0.1] * 3
    assert [entry.keys.get("beta") for entry in RECIPES["moon-figure-10"].cells] == [5.0] * 3


@pytest.mark.parametrize("name", sorted(EVERY_TABLE_AND_FIGURE | OF_OUR_OWN))
def test_a_recipe_has_every_number_that_the_paper_prints_for_it_and_no_other(name: str) -> None:
    assert recipe_texts(name) == printed_texts(name)


def test_every_printed_number_has_a_recipe() -> None:
    assert set(PRINTED) == {name for name in RECIPES if recipe_texts(name)}


def test_a_target_that_the_paper_did_not_reach_has_no_number() -> None:
    rounds, speed_ups = RECIPES["moon-table-2"].panels
    for panel, text in ((rounds, "\N{EN DASH}"), (speed_ups, "<1x")):
        found = [entry for entry in panel.cells if entry.row == "SCAFFOLD" and entry.dataset != "cifar10"]
        assert [entry.paper for entry in found] == [PaperValue(text=text)] * 2
    rounds = RECIPES["fedssc-table-1"].panels[1]
    assert (rounds.measure, rounds.target, rounds.cells[0].paper) == ("rounds", 0.68, PaperValue(text=">100"))


def test_an_unknown_recipe_lists_the_known_ones() -> None:
    with refused(InvalidInput, "recipe", "moon-table-13"):
        find_recipe("moon-table-13")
