"""The tables and figures that the papers have, and options to reproduce them with."""

from pathlib import Path

from moonfed.experiments.papers.catalogue import RECIPES
from moonfed.experiments.papers.recipe import Cell
from moonfed.experiments.papers.reproduce_options import Options

# Every table and figure of an experiment in the three papers; figures 1, 3 and 4 of MOON's, and 1 to 5 of Shi's, show
# the idea.
THREE = ("cifar10", "cifar100", "tiny-imagenet")


EVERY_TABLE_AND_FIGURE = {
    *(f"moon-table-{number}" for number in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)),
    *(f"moon-figure-{number}" for number in (2, 5, 6, 7, 8, 9, 10, 11)),
    *("fedssc-table-1", "fedssc-figure-1", "fedssc-figure-2"),
    *("shi-table-1", "shi-table-2", "shi-table-3", "shi-figure-6", "shi-figure-7"),
}


OF_OUR_OWN = {"tabular", "views"}


PAPER = Options(output=Path("unused"), data=Path("unused"))


QUICK = Options(output=Path("unused"), quick=True)


def cell(recipe: str, row: str, dataset: str = "cifar10", column: str = "") -> Cell:
    place = (row, dataset, column)
    return next(cell for cell in RECIPES[recipe].cells if (cell.row, cell.dataset, cell.column) == place)
