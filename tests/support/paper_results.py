"""Hand-made trials and results of a small table."""

from collections.abc import Sequence
from dataclasses import replace

from moonfed.experiments.papers.recipe import Column, Panel, Recipe, Row, cross
from moonfed.experiments.papers.results import (
    CellResult,
    PanelResult,
    Trial,
)

FEDAVG, MOON, SOLO = (Row(label=label, method=label.lower()) for label in ("FedAvg", "MOON", "SOLO"))


CIFAR10 = Column(dataset="cifar10")


def panel_result(panel: Panel, trials: Sequence[tuple[Trial, ...]]) -> PanelResult:
    cells = zip(panel.cells, trials, strict=True)
    return PanelResult(panel=panel, cells=tuple(CellResult(cell=cell, trials=found) for cell, found in cells))


def curve(*accuracy: float, seed: int = 0, tuned: float | None = None) -> Trial:
    return Trial(
        seed=seed, tuned=tuned, accuracy=accuracy, seconds=tuple(float(n) for n in range(1, len(accuracy) + 1))
    )


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
