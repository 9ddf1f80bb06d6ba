"""Deviations of a reproduction from the paper's experiment, stated prominently."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from moonfed.experiments.papers.presets import (
    AUGMENTATION,
    COHORT,
    DATA,
    EPOCHS,
    EPOCHS_OF_SOLO,
    HEAD,
    MU,
    NETWORK,
    OUR_CHOICE,
    PARTIES,
    SPLIT,
    SPLIT_SEED,
    TEMPERATURE,
    TRIALS,
)
from moonfed.experiments.papers.recipe import Cell, Recipe
from moonfed.experiments.papers.reproduce_options import PAPER_SEEDS, Options
from moonfed.experiments.papers.to_simulation import simulation_of
from moonfed.experiments.simulation import POOLED, SOLO, Simulation


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A condition of the runs, next to a full run's; several values where cells differ.

    `source`: the source of the full run's value, if the paper does not state it.
    """

    name: str
    ours: str
    full: str
    source: str = ""

    @property
    def deviates(self) -> bool:
        """True if the runs differ from the paper or from its authors' code."""
        return self.ours != self.full and self.source != OUR_CHOICE

    @property
    def paper(self) -> str:
        """The paper's value, or the note that it states none."""
        return f"not stated; {self.source}: {self.full}" if self.source else self.full


def conditions(recipe: Recipe, cells: Sequence[Cell], options: Options) -> list[Condition]:
    """Return the conditions of a recipe's trained cells; splits alone have none."""
    if not cells:
        return []
    full = Options(output=options.output, seeds=PAPER_SEEDS)
    values = {
        name: [_joined(describe, _with_value_of(name, cells, options), asked) for asked in (options, full)]
        for name, describe in DESCRIPTIONS.items()
    }
    values[TRIALS] = [str(len(asked.seed_numbers)) for asked in (options, full)]
    found = [
        Condition(name=name, ours=ours or "none", full=theirs or "none", source=recipe.unstated.get(name, ""))
        for name, (ours, theirs) in values.items()
        if ours or theirs
    ]
    return found + _untuned_values(cells, options)


def _with_value_of(name: str, cells: Sequence[Cell], options: Options) -> list[Cell]:
    """Leave out cells for which the setting is tuned here, or was tuned by the paper, which does not print it."""
    return [cell for cell in cells if cell.tuned != name or (cell.printed and not (options.tune and cell.grid))]


def _joined(describe: Callable[[Simulation], str], cells: Sequence[Cell], options: Options) -> str:
    """Describe the cells' simulations."""
    described = [simulation_of(cell, options, seed=0) for cell in cells]
    return ", ".join(dict.fromkeys(text for simulation in described if (text := describe(simulation))))


def _untuned(cells: Sequence[Cell], options: Options) -> list[Cell]:
    return [cell for cell in cells if not cell.printed and not (options.tune and cell.grid)]


def untuned(cells: Sequence[Cell], options: Options) -> list[str]:
    """List the settings that the paper tuned without printing the best value, and that have a value of our choice."""
    return list(dict.fromkeys(f"{cell.tuned} of {cell.row}" for cell in _untuned(cells, options)))


def _untuned_values(cells: Sequence[Cell], options: Options) -> list[Condition]:
    """Return the values of our choice, one condition for each such setting."""
    texts: dict[str, list[str]] = {}
    for cell in _untuned(cells, options):
        simulation = simulation_of(cell, options, seed=0)
        value = (simulation.server if cell.tuned in simulation.server else simulation.settings)[cell.tuned]
        texts.setdefault(cell.tuned, []).append(f"{float(value):g} ({cell.row})")
    joined = {name: ", ".join(dict.fromkeys(found)) for name, found in texts.items()}
    return [
        Condition(name=f"{name}, untuned", ours=text, full=text, source=OUR_CHOICE) for name, text in joined.items()
    ]


def _federated(simulation: Simulation, text: str) -> str:
    return "" if simulation.method == SOLO else text


def _samples(simulation: Simulation) -> str:
    """Describe training and test samples; the data sets' own numbers count as all."""
    train, test = simulation.train_samples, simulation.test_samples
    return f"{train or 'all'} for training, {test or 'all'} for testing"


def _split(simulation: Simulation) -> str:
    if simulation.method == POOLED:
        return ""
    return (
        simulation.partition if simulation.partition == "iid" else f"{simulation.partition}, beta {simulation.beta:g}"
    )


def _split_seed(simulation: Simulation) -> str:
    return "" if simulation.method == POOLED else "the trial's"


def _hyperparameter(simulation: Simulation, name: str) -> str:
    """Name the method and its value; nothing for a method without it."""
    value = simulation.method_settings.hyperparameters.get(name)
    return "" if value is None else f"{value:g} ({simulation.method})"


DESCRIPTIONS: Mapping[str, Callable[[Simulation], str]] = {
    "data set": lambda simulation: DATA[simulation.dataset].title,
    "samples": _samples,
    NETWORK: lambda simulation: simulation.model,
    HEAD: lambda simulation: str(simulation.head) if simulation.head else "no head",
    "rounds": lambda simulation: _federated(simulation, str(simulation.run.rounds)),
    EPOCHS: lambda simulation: _federated(simulation, str(simulation.method_settings.training.epochs)),
    EPOCHS_OF_SOLO: lambda simulation: (
        str(simulation.method_settings.training.epochs) if simulation.method == SOLO else ""
    ),
    "batch size": lambda simulation: str(simulation.method_settings.training.batch_size),
    SPLIT: _split,
    SPLIT_SEED: _split_seed,
    MU: lambda simulation: _hyperparameter(simulation, "mu"),
    "mu_moon": lambda simulation: _hyperparameter(simulation, "mu_moon"),
    TEMPERATURE: lambda simulation: _hyperparameter(simulation, "tau"),
    PARTIES: lambda simulation: "" if simulation.method == POOLED else str(simulation.parties),
    COHORT: lambda simulation: _federated(simulation, str(simulation.run.cohort)),
    AUGMENTATION: lambda simulation: simulation.augmentation_name,
}
