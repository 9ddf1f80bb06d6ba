"""The catalogue against the papers, whose numbers are repeated here."""

import pytest
from typer.testing import CliRunner

from moonfed.errors import InvalidInput
from moonfed.experiments.cli import app
from moonfed.experiments.papers.catalogue import RECIPES, find_recipe
from moonfed.experiments.papers.recipe import Cell, PaperValue
from moonfed.experiments.papers.to_simulation import simulation_of
from tests.support.paper_recipes import EVERY_TABLE_AND_FIGURE, OF_OUR_OWN, PAPER, THREE, cell

# Read column by column, while the catalogue is written row by row: recipe; data set and column; numbers, deviations.
PRINTED = {
    "moon-table-1": {
        ("cifar10", ""): "MOON 69.1 0.4; FedAvg 66.3 0.5; FedProx 66.9 0.2; SCAFFOLD 66.6 0.2; SOLO 46.3 5.1",
        ("cifar100", ""): "MOON 67.5 0.4; FedAvg 64.5 0.4; FedProx 64.6 0.2; SCAFFOLD 52.5 0.3; SOLO 22.3 1",
        ("tiny-imagenet", ""): "MOON 25.1 0.1; FedAvg 23 0.1; FedProx 23.2 0.2; SCAFFOLD 16 0.2; SOLO 8.6 0.4",
    },
    "moon-table-2": {
        (
            "cifar10",
            "",
        ): "FedAvg 100; FedProx 52; SCAFFOLD 80; MOON 27; FedAvg 1; FedProx 1.9; SCAFFOLD 1.3; MOON 3.7",
        ("cifar100", ""): "FedAvg 100; FedProx 75; MOON 43; FedAvg 1; FedProx 1.3; MOON 2.3",
        ("tiny-imagenet", ""): "FedAvg 20; FedProx 17; MOON 11; FedAvg 1; FedProx 1.2; MOON 1.8",
    },
    "moon-table-3": {
        (
            "cifar100",
            "50 parties, half-way",
        ): "MOON, mu 1 54.7; MOON, mu 10 58.2; FedAvg 51.9; FedProx 52.7; SCAFFOLD 35.8",
        (
            "cifar100",
            "50 parties",
        ): "MOON, mu 1 58.8; MOON, mu 10 63.2; FedAvg 56.4; FedProx 56.6; SCAFFOLD 44.9; SOLO 10 0.9",
        (
            "cifar100",
            "100 parties, 20 %, half-way",
        ): "MOON, mu 1 54.5; MOON, mu 10 56.9; FedAvg 51; FedProx 51.3; SCAFFOLD 37.4",
        (
            "cifar100",
            "100 parties, 20 %",
        ): "MOON, mu 1 58.2; MOON, mu 10 61.8; FedAvg 55; FedProx 54.6; SCAFFOLD 44.5; SOLO 7.3 0.6",
    },
    "moon-table-4": {
        ("cifar100", "beta 0.1"): "MOON 64; FedAvg 62.5; FedProx 62.9; SCAFFOLD 47.3; SOLO 15.9 1.5",
        ("cifar100", "beta 0.5"): "MOON 67.5; FedAvg 64.5; FedProx 64.6; SCAFFOLD 52.5; SOLO 22.3 1",
        ("cifar100", "beta 5"): "MOON 68; FedAvg 65.7; FedProx 64.9; SCAFFOLD 55; SOLO 26.6 1.4",
    },
    "moon-table-5": {
        ("cifar10", ""): "no second term 66.3; L2 65.8; MOON 69.1",
        ("cifar100", ""): "no second term 64.5; L2 66.9; MOON 67.5",
        ("tiny-imagenet", ""): "no second term 23; L2 24; MOON 25.1",
    },
    "moon-table-6": {
        ("cifar10", ""): "samples per party 5000 1165",
        ("cifar100", ""): "samples per party 5000 181",
        ("tiny-imagenet", ""): "samples per party 10000 99",
    },
    "moon-table-7": {
        (
            "cifar10",
            "CIFAR-10, with",
        ): "MOON 69.1 0.4; FedAvg 66.3 0.5; FedProx 66.9 0.2; SCAFFOLD 66.6 0.2; SOLO 46.3 5.1",
        ("cifar10", "CIFAR-10, without"): "MOON 66.8; FedAvg 66.7; FedProx 67.5; SCAFFOLD 67.1; SOLO 39.8 3.9",
        (
            "cifar100",
            "CIFAR-100, with",
        ): "MOON 67.5 0.4; FedAvg 64.5 0.4; FedProx 64.6 0.2; SCAFFOLD 52.5 0.3; SOLO 22.3 1",
        ("cifar100", "CIFAR-100, without"): "MOON 66.1; FedAvg 65; FedProx 65.4; SCAFFOLD 49.5; SOLO 22.5 1.1",
    },
    "moon-table-8": {
        ("cifar10", "IID"): "MOON, mu 0.1 73.6; MOON, mu 1 73.6; MOON, mu 5 73; MOON, mu 10 72.8; FedAvg 73.4",
    },
    "moon-table-9": {
        ("cifar10", ""): "mu 0 66.3; MOON, mu 0.1 66.5; MOON, mu 1 68.4; MOON, mu 5 69.1; MOON, mu 10 68.3",
        ("cifar100", ""): "mu 0 64.5; MOON, mu 0.1 65.1; MOON, mu 1 67.5; MOON, mu 5 67.1; MOON, mu 10 67.3",
        ("tiny-imagenet", ""): "mu 0 23; MOON, mu 0.1 23.4; MOON, mu 1 25.1; MOON, mu 5 24.4; MOON, mu 10 25",
    },
    "moon-table-10": {
        ("cifar10", ""): "FedAvg 66.3; MOON 69.1; FedAvgM 67.1; MOON + FedAvgM 69.6",
        ("cifar100", ""): "FedAvg 64.5; MOON 67.5; FedAvgM 65.1; MOON + FedAvgM 67.8",
        ("tiny-imagenet", ""): "FedAvg 23; MOON 25.1; FedAvgM 23.4; MOON + FedAvgM 25.5",
    },
    "moon-table-11": {
        (
            "cifar10",
            "",
        ): "FedAvg 330; FedProx 340; SCAFFOLD 332; MOON 337; FedAvg 1; FedProx 1.03; SCAFFOLD 1.01; MOON 1.02",
        (
            "cifar100",
            "",
        ): "FedAvg 1200; FedProx 1440; SCAFFOLD 1200; MOON 1860; FedAvg 1; FedProx 1.2; SCAFFOLD 1; MOON 1.55",
        (
            "tiny-imagenet",
            "",
        ): "FedAvg 6180; FedProx 8100; SCAFFOLD 6720; MOON 11820; FedAvg 1; FedProx 1.31; SCAFFOLD 1.09; MOON 1.91",
    },
    "moon-table-12": {
        ("cifar10", ""): "k = 1 69.1; k = 2 67.2; k = 5 67.7; k = 100 63.5",
    },
    "moon-figure-7": {
        ("cifar10", "1"): "SCAFFOLD 45.3",
        ("cifar100", "1"): "SCAFFOLD 20.4",
        ("tiny-imagenet", "1"): "SCAFFOLD 2.6; FedProx 1.2",
    },
    "fedssc-table-1": {
        ("cifar10", ""): "FedAvg 65.8; MOON 68.6; FedSSC 69.3; MOON 61; FedSSC 41",
    },
    "shi-table-1": {
        ("cifar10", ""): "MOON 67.8 0.3; FedAvg 65.6 0.4; FedProx 66.1 0.2",
        ("cifar100", ""): "MOON 65.9 0.3; FedAvg 63.9 0.4; FedProx 64.1 0.2",
        ("tiny-imagenet", ""): "MOON 24.5 0.1; FedAvg 22.3 0.1; FedProx 22.4 0.1",
    },
    "shi-table-2": {
        ("cifar10", ""): "FedAvg 100; FedProx 56; MOON 28; FedAvg 1; FedProx 1.8; MOON 3.6",
        ("cifar100", ""): "FedAvg 100; FedProx 77; MOON 46; FedAvg 1; FedProx 1.3; MOON 2.2",
        ("tiny-imagenet", ""): "FedAvg 20; FedProx 17; MOON 10; FedAvg 1; FedProx 1.2; MOON 2",
    },
    "shi-table-3": {
        ("cifar100", "beta 0.1"): "MOON 62.8; FedAvg 61.9; FedProx 62.2",
        ("cifar100", "beta 0.5"): "MOON 65.9; FedAvg 63.9; FedProx 64.1",
        ("cifar100", "beta 5"): "MOON 66.3; FedAvg 64.9; FedProx 64.3",
    },
}


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
    "shi-figure-6": [(dataset, "MOON; FedAvg; FedProx") for dataset in THREE],
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


def text_of(cell: Cell) -> str:
    assert cell.paper is not None
    deviation = "" if cell.paper.deviation is None else f" {cell.paper.deviation:g}"
    return f"{cell.row} {cell.paper.value:g}{deviation}"


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
    trained = [entry for panel in recipe.panels if panel.measure != "spread" for entry in panel.cells]
    moons = name.startswith("moon")

    def says(text: str) -> bool:
        return any(text in note for note in recipe.notes)

    assert says("contains SCAFFOLD") == ("scaffold" in {entry.method for entry in trained})
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
    assert [(found.parties, found.rounds, found.cohort) for found in sizes] == [(50, 200, "all"), (100, 500, "20%")]
    assert [entry.keys.get("beta") for entry in RECIPES["moon-figure-9"].cells] == [0.1] * 3
    assert [entry.keys.get("beta") for entry in RECIPES["moon-figure-10"].cells] == [5.0] * 3


@pytest.mark.parametrize("name", sorted(EVERY_TABLE_AND_FIGURE | OF_OUR_OWN))
def test_the_papers_numbers_stand_at_the_right_row_column_and_data_set(name: str) -> None:
    found: dict[tuple[str, str], list[str]] = {}
    for entry in RECIPES[name].cells:
        if entry.paper and entry.paper.value is not None:
            found.setdefault((entry.dataset, entry.column), []).append(text_of(entry))
    printed = PRINTED.get(name, {})
    assert set(found) == set(printed)
    for place, texts in printed.items():
        assert sorted(found[place]) == sorted(texts.split("; "))


def test_a_target_that_the_paper_did_not_reach_has_no_number() -> None:
    for dataset in ("cifar100", "tiny-imagenet"):
        assert cell("moon-table-2", "SCAFFOLD", dataset).paper == PaperValue(text="\N{EN DASH}")
    speed_ups = RECIPES["moon-table-2"].panels[1].cells
    assert [(blank.row, blank.dataset) for blank in speed_ups if blank.paper is None] == [
        ("SCAFFOLD", "cifar100"),
        ("SCAFFOLD", "tiny-imagenet"),
    ]
    rounds = RECIPES["fedssc-table-1"].panels[1]
    assert (rounds.measure, rounds.target, rounds.cells[0].paper) == ("rounds", 0.68, PaperValue(text=">100"))


def test_an_unknown_recipe_lists_the_known_ones() -> None:
    with pytest.raises(InvalidInput, match="recipe is 'moon-table-13'; it must be one of moon-table-1, moon-table-2"):
        find_recipe("moon-table-13")
