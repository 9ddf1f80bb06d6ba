"""Reports state the runs, the paper's numbers and the deviations."""

from dataclasses import replace
from pathlib import Path

import pytest

from moonfed.experiments.papers import charts
from moonfed.experiments.papers.catalogue import RECIPES
from moonfed.experiments.papers.deviations import Condition, conditions
from moonfed.experiments.papers.recipe import Panel, QuickSize, cross
from moonfed.experiments.papers.report import Circumstances, render
from moonfed.experiments.papers.reproduce_options import Options, choose
from moonfed.experiments.plots import picture
from tests.support.paper_results import CIFAR10, FEDAVG, MOON, RECIPE, SOLO, curve, hand_made, panel_result


def test_a_report_compares_the_papers_number_with_ours_and_lists_deviations() -> None:
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


def test_a_quick_report_states_whether_it_shows_the_papers_ordering() -> None:
    panel = replace(RECIPE.panels[0], cells=cross([CIFAR10], [(MOON, "69.1"), (FEDAVG, "66.3")]))
    recipe = replace(RECIPE, panels=(panel,))

    def report(moon: float, fedavg: float, data: str = "digits") -> str:
        results = [panel_result(panel, [(curve(moon),), (curve(fedavg),)])]
        return render(recipe, results, Circumstances(conditions=[], data=data))

    leads = "Of the rows below, MOON leads with 70.0 %, as in the paper. With one trial on a small data set"
    assert leads in report(0.7, 0.6)
    other = "Of the rows below, FedAvg leads with 70.0 %; in the paper it is MOON, which has 60.0 % here."
    assert f"{other} So this run does not show the paper's ordering." in report(0.6, 0.7)
    assert "What this shows" not in report(0.6, 0.7, data="")


def test_a_row_without_a_number_of_the_papers_leads_nothing() -> None:
    panel = replace(RECIPE.panels[0], cells=cross([CIFAR10], [(MOON, "69.1"), (FEDAVG, "66.3"), (SOLO, "")]))
    results = [panel_result(panel, [(curve(0.7),), (curve(0.6),), (curve(0.99),)])]
    text = render(replace(RECIPE, panels=(panel,)), results, Circumstances(conditions=[], data="digits"))
    assert "Of the rows whose number the paper prints, MOON leads with 70.0 %, as in the paper." in text


def test_a_quick_look_compares_methods_column_by_column() -> None:
    columns = [replace(CIFAR10, label="beta 0.1"), replace(CIFAR10, label="beta 5")]
    panel = replace(RECIPE.panels[0], cells=cross(columns, [(MOON, "64.0 | 68.0"), (FEDAVG, "62.5 | 65.7")]))
    results = [panel_result(panel, [(curve(value),) for value in (0.4, 0.7, 0.3, 0.8)])]
    text = render(replace(RECIPE, panels=(panel,)), results, Circumstances(conditions=[], data="digits"))
    assert "beta 0.1: of the rows below, MOON leads with 40.0 %, as in the paper." in text
    assert "beta 5: of the rows below, FedAvg leads with 80.0 %; in the paper it is MOON, which has 70.0 %" in text


def test_the_note_on_digits_appears_only_with_digits() -> None:
    cells = tuple(replace(cell, size=QuickSize(note="Digits are easy.")) for cell in RECIPE.panels[0].cells[:2])
    panel = replace(RECIPE.panels[0], cells=cells)
    results = [panel_result(panel, [(curve(0.6),), (curve(0.7),)])]
    for data, said in (("digits", True), ("cifar10", False)):
        text = render(replace(RECIPE, panels=(panel,)), results, Circumstances(conditions=[], data=data))
        assert ("Digits are easy." in text) == said


def test_a_quick_report_states_that_other_data_were_used() -> None:
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


def ratio_report(*medians: float) -> str:
    rows = [(FEDAVG, ""), *((replace(MOON, label=f"method {number}"), "") for number in range(1, len(medians)))]
    panel = Panel(title="", measure="ratio", target="FedAvg", cells=cross([CIFAR10], rows))
    results = [panel_result(panel, [(replace(curve(0, 0), seconds=(value, value)),) for value in medians])]
    return render(replace(RECIPE, panels=(panel,)), results, Circumstances(conditions=[]))


@pytest.mark.parametrize(
    ("medians", "named"),
    [((10.0, 9.0), ["method 1, CIFAR-10, 0.90"]), ((10.0, 9.9, 12.0, 2.0), ["method 1, CIFAR-10, 0.99", "method 3"])],
)
def test_a_method_that_takes_less_time_than_the_work_in_it_is_impossible(
    medians: tuple[float, ...], named: list[str]
) -> None:
    (warning,) = (line for line in ratio_report(*medians).splitlines() if line.startswith("> **Impossible:**"))
    assert all(name in warning for name in named)
    assert "method 2" not in warning
    assert "FedAvg, CIFAR-10" not in warning


@pytest.mark.parametrize("medians", [(10.0, 10.0), (10.0, 9.96), (10.0, 31.0)])
def test_a_possible_ratio_gives_no_warning(medians: tuple[float, ...]) -> None:
    assert "Impossible" not in ratio_report(*medians)
