"""Panels whose paper values are derived from others: speed-ups from rounds, ratios from seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from moonfed.experiments.papers.presets import FEDAVG, THREE, paper_rounds
from moonfed.experiments.papers.recipe import Cell, Panel, PaperValue, Row, cross
from moonfed.experiments.papers.results import speed_up


def speed_panels(rows: Sequence[tuple[Row, str]]) -> tuple[Panel, Panel]:
    """Return the rounds to FedAvg's last accuracy on the three data sets, and the speed-ups that follow."""
    rounds = cross(THREE, rows)
    return (
        Panel(
            title="Rounds to FedAvg's last accuracy",
            measure="rounds",
            target=FEDAVG.label,
            chart="bars",
            cells=rounds,
        ),
        Panel(
            title="Speed-up over FedAvg",
            measure="speed-up",
            target=FEDAVG.label,
            chart="bars",
            cells=tuple(replace(cell, paper=_speed_up(cell)) for cell in rounds),
        ),
    )


def _speed_up(cell: Cell) -> PaperValue | None:
    """Divide FedAvg's number of rounds by the method's."""
    if not (cell.paper and cell.paper.value):
        return None  # a blank: never reached
    return PaperValue.read(speed_up(paper_rounds(cell) / cell.paper.value))


def ratios_to_first(cells: Sequence[Cell]) -> tuple[Cell, ...]:
    """Divide each cell's paper value by that of the first row with the same data set."""
    first: dict[str, float] = {}
    found = []
    for cell in cells:
        assert cell.paper is not None  # noqa: S101 - the table has no empty cell
        assert cell.paper.value is not None  # noqa: S101
        base = first.setdefault(cell.dataset, cell.paper.value)
        found.append(replace(cell, paper=PaperValue.read(f"{cell.paper.value / base:.2f}")))
    return tuple(found)
