"""In what a reproduction departs from the paper's experiment: never a matter of small print."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from moonfed.experiments.papers.options import PAPER_SEEDS, Options
from moonfed.experiments.papers.presets import DATA
from moonfed.experiments.papers.recipe import Cell
from moonfed.experiments.papers.to_simulation import simulation_of
from moonfed.experiments.simulation import SOLO, Simulation


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """What was run, and what the paper ran; several values where cells differ."""

    name: str
    ours: str
    paper: str

    @property
    def departs(self) -> bool:
        """Whether the two differ, where the paper has the like."""
        return bool(self.paper) and self.ours != self.paper


def conditions(cells: Sequence[Cell], options: Options) -> list[Condition]:
    """The conditions of trained cells, ours beside the paper's; splits alone have none."""
    if not cells:
        return []
    paper = Options(output=options.output, seeds=PAPER_SEEDS)
    ours_and_theirs = [[simulation_of(cell, asked, seed=0) for cell in cells] for asked in (options, paper)]
    found = []
    for name, describe in DESCRIPTIONS.items():
        ours, theirs = (
            ", ".join(dict.fromkeys(text for simulation in simulations if (text := describe(simulation))))
            for simulations in ours_and_theirs
        )
        if ours or theirs:
            found.append(Condition(name=name, ours=ours or "none", paper=theirs or "none"))
    trials = [str(len(asked.seed_numbers)) for asked in (options, paper)]
    return [*found, Condition(name="trials (seeds)", ours=trials[0], paper=trials[1])]


def _federated(simulation: Simulation, text: str) -> str:
    return "" if simulation.method == SOLO else text


def _samples(simulation: Simulation) -> str:
    """Training and test samples; the data sets' own numbers count as all."""
    train, test = simulation.train_samples, simulation.test_samples
    return f"{train or 'all'} for training, {test or 'all'} for testing"


DESCRIPTIONS: Mapping[str, Callable[[Simulation], str]] = {
    "data set": lambda simulation: DATA[simulation.dataset].title,
    "samples": _samples,
    "network": lambda simulation: simulation.model,
    "rounds": lambda simulation: _federated(simulation, str(simulation.rounds)),
    "local epochs": lambda simulation: _federated(simulation, str(simulation.method_settings.training.epochs)),
    "epochs of SOLO": lambda simulation: (
        str(simulation.method_settings.training.epochs) if simulation.method == SOLO else ""
    ),
    "batch size": lambda simulation: str(simulation.method_settings.training.batch_size),
    "parties": lambda simulation: str(simulation.parties),
    "parties in a round": lambda simulation: _federated(simulation, simulation.cohort),
    "augmentation": lambda simulation: simulation.augmentation_name,
}
