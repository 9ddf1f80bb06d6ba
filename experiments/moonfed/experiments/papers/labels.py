"""Labels of columns and panels, also when another data set replaces the paper's."""

from __future__ import annotations

from moonfed.experiments.papers.presets import DATA
from moonfed.experiments.papers.recipe import Cell, Panel


def stands_in(dataset: str, data: str) -> bool:
    """Return True if `data` is another data set than the paper's."""
    return bool(data) and data != dataset


def dataset_label(dataset: str, data: str = "") -> str:
    """Return a data set's title; `data`: the one that replaces it."""
    title = DATA[dataset].title
    return f"{DATA[data].title} for {title}" if stands_in(dataset, data) else title


def column_label(cell: Cell, data: str = "") -> str:
    """Return a column's label, or its data set's title."""
    return cell.column or dataset_label(cell.dataset, data)


def panel_label(panel: Panel, data: str = "") -> str:
    """Return a panel's title, or its data sets'."""
    datasets = dict.fromkeys(cell.dataset for cell in panel.cells)
    return panel.title or ", ".join(dataset_label(dataset, data) for dataset in datasets)
