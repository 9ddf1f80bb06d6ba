"""Numbers of tables from hand-made curves, and the report that shows them."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from moonfed.experiments.papers import charts
from moonfed.experiments.papers.catalogue import RECIPES
from moonfed.experiments.papers.deviations import Condition, conditions, untuned
from moonfed.experiments.papers.recipe import Chart, Column, Panel, Recipe, Row, cross
from moonfed.experiments.papers.report import Circumstances, render
from moonfed.experiments.papers.reproduce_options import Options, choose
from moonfed.experiments.papers.results import (
    CellResult,
    PanelResult,
    Summary,
    Trial,
    best_trials,
    rounds_to,
    summarise,
    targets,
)
from moonfed.experiments.plots import picture

FEDAVG, MOON, SOLO = (Row(label=label, method=label.lower()) for label in ("FedAvg", "MOON", "SOLO"))
CIFAR10 = Column(dataset="cifar10")


def panel_result(panel: Panel, trials: Sequence[tuple[Trial, ...]]) -> PanelResult:
    cells = zip(panel.cells, trials, strict=True)
    return PanelResult(panel=panel, cells=tuple(CellResult(cell=cell, trials=found) for cell, found in cells))


def curve(*accuracy: float, seed: int = 0, tuned: float | None = None) -> Trial:
    return Trial(
        seed=seed, tuned=tuned, accuracy=accuracy, seconds=tuple(float(n) for n in range(1, len(accuracy) + 1))
    )


@pytest.mark.parametrize(
    ("accuracy", "target", "rounds"),
    [
        ((0.1, 0.5, 0.4, 0.6), 0.5, 2),  # reached exactly, and lost again
        ((0.1, 0.5, 0.4, 0.6), 0.55, 4),
        ((0.7,), 0.5, 1),
        ((0.1, 0.5), 0.6, None),
        ((), 0.5, None),
    ],
)
def test_rounds_to_an_accuracy(accuracy: tuple[float, ...], target: float, rounds: int | None) -> None:
    assert rounds_to(accuracy, target) == rounds


def test_accuracy_is_the_mean_over_the_trials_with_the_sample_deviation() -> None:
    panel = Panel(title="", cells=cross([CIFAR10], [(MOON, ""), (SOLO, "")]))
    solo = (Trial(seed=0, parties=(0.25, 0.5)), Trial(seed=1, parties=(0.75,)))
    result = panel_result(panel, [(curve(0.2, 0.5), curve(0.3, 0.7, seed=1)), solo])
    moon, alone = (summarise(result, cell) for cell in result.cells)
    assert moon.value == pytest.approx(60.0)
    assert moon.deviation == pytest.approx(200**0.5)  # of 50 and 70
    assert moon.text == "60.0 ± 14.1"
    assert (alone.text, alone.value) == ("50.0 ± 25.0", 50.0)  # over three parties
    one = panel_result(panel, [(curve(0.2, 0.5),), solo])
    assert summarise(one, one.cells[0]).text == "50.0"


def test_a_column_may_be_read_half_way() -> None:
    half_way = replace(CIFAR10, label="half-way", at=0.5)
    panel = Panel(title="", cells=cross([half_way, CIFAR10], [(MOON, "")]))
    result = panel_result(panel, [(curve(0.1, 0.2, 0.3, 0.4),), (curve(0.1, 0.2, 0.3, 0.4),)])
    assert [summarise(result, cell).text for cell in result.cells] == ["20.0", "40.0"]


def test_rounds_are_those_to_fedavgs_last_accuracy_seed_by_seed() -> None:
    panel = Panel(title="", measure="rounds", target="FedAvg", cells=cross([CIFAR10], [(FEDAVG, ""), (MOON, "")]))
    fedavg = (curve(0.1, 0.4, 0.5), curve(0.2, 0.6, 0.55, seed=1))
    moon = (curve(0.5, 0.6, 0.7), curve(0.2, 0.3, 0.6, seed=1))
    result = panel_result(panel, [fedavg, moon])
    assert targets(result, result.cells[1]) == [0.5, 0.55]
    assert [summarise(result, cell).text for cell in result.cells] == ["3.0", "2.0 ± 1.4"]
    faster = replace(result, panel=replace(panel, measure="speed-up"))
    assert [summarise(faster, cell).text for cell in faster.cells] == ["1.0x", "2.0x"]  # 3 by 1 and by 3
    never = panel_result(panel, [fedavg, (curve(0.1, 0.1, 0.1), curve(0.1, 0.1, 0.1, seed=1))])
    assert summarise(never, never.cells[1]) == Summary(text="")


def test_trials_that_never_reach_the_target_are_counted() -> None:
    panel = Panel(title="", measure="rounds", target=0.68, cells=cross([CIFAR10], [(MOON, "")]))
    some = panel_result(panel, [(curve(0.1, 0.7), curve(0.1, 0.6, seed=1))])
    none = panel_result(panel, [(curve(0.1, 0.6),)])
    assert summarise(some, some.cells[0]) == Summary(text="2 (1 of 2 trials)", value=2.0)
    assert summarise(none, none.cells[0]) == Summary(text=">2")


def test_seconds_are_the_median_and_spread_is_over_the_parties() -> None:
    seconds = Panel(title="", measure="seconds", cells=cross([CIFAR10], [(MOON, "")]))
    result = panel_result(seconds, [(replace(curve(0, 0, 0), seconds=(9.0, 1.25, 2.5)),)])
    assert summarise(result, result.cells[0]).text == "2.50"
    ratio = Panel(title="", measure="ratio", target="FedAvg", cells=cross([CIFAR10], [(FEDAVG, ""), (MOON, "")]))
    times = [(replace(curve(0, 0), seconds=(seconds, seconds)),) for seconds in (2.0, 2.5)]
    result = panel_result(ratio, times)
    assert [summarise(result, cell).text for cell in result.cells] == ["1.00", "1.25"]
    split = Panel(title="", measure="spread", cells=cross([CIFAR10], [(MOON, "")]))
    trials = (Trial(seed=0, counts=((6, 2), (3, 1))), Trial(seed=1, counts=((6, 0), (3, 3))))
    result = panel_result(split, [trials])
    summary = summarise(result, result.cells[0])
    assert summary.value == 6.0
    assert summary.deviation == pytest.approx(2 / 2)  # the population's of sizes 8 and 4, then 6 and 6


def test_the_best_tuned_value_has_the_highest_mean() -> None:
    (cell,) = cross([CIFAR10], [(MOON, "")])
    trials = [
        curve(0.6, tuned=1.0),
        curve(0.2, seed=1, tuned=1.0),
        curve(0.5, tuned=5.0),
        curve(0.4, seed=1, tuned=5.0),
    ]
    assert best_trials(cell, trials) == (trials[2], trials[3])


RECIPE = Recipe(
    name="a-table",
    title="A table",
    source="A paper, table 1",
    panels=(
        Panel(
            title="Top-1 accuracy, %",
            cells=cross([CIFAR10, Column(dataset="cifar100")], [(MOON, "69.1 ± 0.4 | -"), (FEDAVG, "66.3 | 64.5")]),
        ),
    ),
    notes=("Something to know.",),
)


def hand_made() -> list[PanelResult]:
    tuned = replace(RECIPE.panels[0].cells[0], grid=(1.0, 5.0))
    panel = replace(RECIPE.panels[0], cells=(tuned, *RECIPE.panels[0].cells[1:]))
    return [panel_result(panel, [(curve(0.5, 0.688, tuned=5.0),), (curve(0.66),), (curve(0.64),)])]


def test_a_report_puts_the_papers_number_beside_ours_and_says_what_differs() -> None:
    found = conditions(
        RECIPE, list(RECIPE.cells), Options(output=Path("unused"), rounds=7, seeds=1, augmentation=False)
    )
    text = render(RECIPE, hand_made(), Circumstances(conditions=found, hardware="a processor", seconds=200.0))
    lines = text.splitlines()
    assert lines[0] == "# a-table: A table"
    assert "|  | CIFAR-10 | CIFAR-100 |" in lines
    assert "| MOON | 68.8 (69.1 ± 0.4) |  |" in lines
    assert "| FedAvg | 66.0 (66.3) | 64.0 (64.5) |" in lines
    (warning,) = (line for line in lines if line.startswith("> "))
    assert "**This is not the paper's experiment:** rounds 7 instead of 100" in warning
    assert "augmentation none instead of crop-flip, crop-flip-rotate" in warning
    assert "trials (seeds) 1 instead of 3" in warning
    assert warning.count(" instead of ") == 3
    assert "| network | cnn, resnet50 | cnn, resnet50 |" in lines
    assert "| hardware | a processor | |" in lines
    assert "| time of all rounds | 3 min | |" in lines
    assert "- MOON, CIFAR-10: mu 5 of 1, 5" in lines
    assert "![A table](a-table.png)" in lines
    assert "- Something to know." in lines


def test_the_papers_own_experiment_needs_no_warning() -> None:
    found = conditions(RECIPE, list(RECIPE.cells), Options(output=Path("unused"), data=Path("unused")))
    assert not [condition for condition in found if condition.deviates]
    text = render(RECIPE, hand_made(), Circumstances(conditions=found, hardware="a processor", seconds=1.0))
    assert "This is not" not in text


def test_a_report_claims_no_more_than_the_paper_states() -> None:
    recipe = replace(RECIPE, unstated={"augmentation": "authors' code", "trials (seeds)": "our choice"})
    options = Options(output=Path("unused"), rounds=7, seeds=1, augmentation=False)
    found = conditions(recipe, list(recipe.cells), options)
    text = render(recipe, hand_made(), Circumstances(conditions=found))
    (warning,) = (line for line in text.splitlines() if line.startswith("> "))
    assert "augmentation none instead of crop-flip, crop-flip-rotate (authors' code)" in warning
    assert "trials" not in warning
    assert "| augmentation | none | not stated; authors' code: crop-flip, crop-flip-rotate |" in text
    assert "| trials (seeds) | 1 | not stated; our choice: 3 |" in text


def test_a_report_says_what_is_untuned() -> None:
    options = Options(output=Path("unused"), data=Path("unused"))
    assert untuned(list(RECIPES["moon-table-1"].cells), options) == []  # the paper prints the best values
    assert untuned(list(RECIPES["moon-table-5"].cells), options) == ["mu of L2"]
    assert untuned(list(RECIPES["moon-table-5"].cells), replace(options, tune=True)) == []
    found = untuned(list(RECIPES["moon-table-12"].cells), options)
    assert found == ["mu of k = 2", "mu of k = 5", "mu of k = 100"]
    text = render(RECIPE, hand_made(), Circumstances(conditions=[], untuned=found))
    assert "> **This is not the paper's experiment:** untuned: mu of k = 2, mu of k = 5, mu of k = 100." in text


def test_the_papers_numbers_of_another_data_set_stand_apart_from_ours(tmp_path: Path) -> None:
    recipe = replace(RECIPE, panels=(replace(RECIPE.panels[0], cells=RECIPE.panels[0].cells[:2]),))
    results = [panel_result(recipe.panels[0], [(curve(0.5, 0.6),), (curve(0.5, 0.7),)])]
    lines = render(recipe, results, Circumstances(conditions=[], data="digits")).splitlines()
    assert "| MOON | 60.0 |" in lines
    assert "The paper, on CIFAR-10: MOON 69.1 ± 0.4; FedAvg 66.3." in lines
    for _, draw in charts._parts(results[0], "digits", several=False):
        with picture(tmp_path / "x.png", 1, 1, width=2, height=2, title="") as (axes,):
            draw(axes)
            assert "paper" not in axes.get_legend_handles_labels()[1]


def test_a_quick_look_says_in_words_whether_it_shows_the_papers_ordering() -> None:
    panel = replace(RECIPE.panels[0], cells=cross([CIFAR10], [(MOON, "69.1"), (FEDAVG, "66.3"), (SOLO, "")]))
    recipe = replace(RECIPE, panels=(panel,))

    def report(moon: float, fedavg: float, data: str = "digits") -> str:
        results = [panel_result(panel, [(curve(moon),), (curve(fedavg),), (curve(0.99),)])]
        return render(recipe, results, Circumstances(conditions=[], data=data))

    assert "MOON leads here with 70.0 %, as in the paper. With one trial on a small data set" in report(0.7, 0.6)
    other = "FedAvg leads here with 70.0 %; in the paper it is MOON, which has 60.0 % here."
    assert f"{other} This look does not show the paper's ordering." in report(0.6, 0.7)
    assert "What this shows" not in report(0.6, 0.7, data="")


@pytest.mark.parametrize(("chart", "trial"), [("curves", curve(0.5)), ("lines", curve(0.5, 0.6))])
def test_a_single_point_is_drawn_as_no_line(tmp_path: Path, chart: Chart, trial: Trial) -> None:
    panel = Panel(title="", chart=chart, cells=cross([CIFAR10], [(MOON, ""), (FEDAVG, "")]))
    ((_, draw),) = charts._parts(panel_result(panel, [(trial,), (trial,)]), "", several=False)
    with picture(tmp_path / "x.png", 1, 1, width=2, height=2, title="") as (axes,):
        draw(axes)
        assert [label.get_text() for label in axes.get_yticklabels()] == ["MOON", "FedAvg"]


def test_a_quick_look_says_that_other_data_were_trained_on() -> None:
    recipe = RECIPES["moon-table-3"]
    options = Options(output=Path("unused"), quick=True)
    chosen = choose(recipe, options)
    found = {condition.name: condition for condition in conditions(recipe, list(chosen.cells), options)}
    assert found["data set"] == Condition(name="data set", ours="digits", full="CIFAR-100")
    assert found["network"] == Condition(name="network", ours="cnn", full="resnet50")
    results = [panel_result(panel, [(curve(0.5),)] * len(panel.cells)) for panel in chosen.panels]
    circumstances = Circumstances(conditions=list(found.values()), hardware="", seconds=1.0, data="digits")
    text = render(chosen, results, circumstances)
    assert "data set digits instead of CIFAR-100; network cnn instead of resnet50" in text
    assert "## Top-1 accuracy, % (digits for CIFAR-100)" in text
