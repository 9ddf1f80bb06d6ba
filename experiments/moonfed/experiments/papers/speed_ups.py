"""Panels of the rounds to FedAvg's accuracy, and of the speed-ups over FedAvg."""

from __future__ import annotations

from collections.abc import Sequence

from moonfed.experiments.papers.presets import FEDAVG, THREE
from moonfed.experiments.papers.recipe import Panel, Row, cross

QUOTED = "The paper's speed-ups are quoted where we know the printed number; none is calculated from its rounds."


def speed_panels(rows: Sequence[tuple[Row, str, str]]) -> tuple[Panel, Panel]:
    """Return two panels on the three data sets, from each row's printed rounds and printed speed-ups."""
    return (
        Panel(
            title="Rounds to FedAvg's last accuracy",
            measure="rounds",
            target=FEDAVG.label,
            chart="bars",
            cells=cross(THREE, [(row, rounds) for row, rounds, _ in rows]),
        ),
        Panel(
            title="Speed-up over FedAvg",
            measure="speed-up",
            target=FEDAVG.label,
            chart="bars",
            cells=cross(THREE, [(row, speed_ups) for row, _, speed_ups in rows]),
        ),
    )
