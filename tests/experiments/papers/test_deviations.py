"""Deviations from a paper, untuned settings among them."""

from dataclasses import replace
from pathlib import Path

from moonfed.experiments.papers.catalogue import RECIPES
from moonfed.experiments.papers.deviations import untuned
from moonfed.experiments.papers.report import Circumstances, render
from moonfed.experiments.papers.reproduce_options import Options
from tests.support.paper_results import RECIPE, hand_made


def test_a_report_says_what_is_untuned() -> None:
    options = Options(output=Path("unused"), data=Path("unused"))
    assert untuned(list(RECIPES["moon-table-1"].cells), options) == []  # the paper prints the best values
    assert untuned(list(RECIPES["moon-table-5"].cells), options) == ["mu of L2"]
    assert untuned(list(RECIPES["moon-table-5"].cells), replace(options, tune=True)) == []
    found = untuned(list(RECIPES["moon-table-12"].cells), options)
    assert found == ["mu of k = 2", "mu of k = 5", "mu of k = 100"]
    text = render(RECIPE, hand_made(), Circumstances(conditions=[], untuned=found))
    assert "> **This is not the paper's experiment:** untuned: mu of k = 2, mu of k = 5, mu of k = 100." in text
