"""Conversion of a cell to the simulation that measures it.

Equal work gives equal simulations, whatever the recipe: default settings are omitted, so recipes
share what has been simulated.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from moonfed.experiments.papers.presets import AUTHORS_SPLIT, DATA, paper_rounds
from moonfed.experiments.papers.recipe import Cell
from moonfed.experiments.papers.reproduce_options import Options
from moonfed.experiments.simulation import POOLED, SOLO, Simulation, from_document
from moonfed.export.model_zoo import PROJECTION
from moonfed.registry import Value

DEFAULTS: Mapping[str, Value] = {
    "beta": 0.5,
    "epochs": 10,
    "tau": 0.5,
    "previous_models": 1,
    "prototype_devices": 1,
    "decay_start": 5,
    "decay_end": 100,
    "first_stage_rounds": 90,
}
SOLO_EPOCHS = 300
OF_PARTIES = ("parties", "cohort", "partition", "beta")  # nothing to pooled data
DECAYING = ("fedssc", "fedssc-two-stage", "fedssc-local-contrast", "fedproc")  # mu_glob falls until the last round
DECAY_START = 5
TWO_STAGE, FIRST_STAGE = "fedssc-two-stage", 0.9  # of the rounds
QUICK_COHORT = "50%"  # of twice as many parties, where the paper samples them
QUICK_TRAIN, QUICK_TEST = 2000, 1000  # of CIFAR-10; the digits are few enough


def simulation_of(cell: Cell, options: Options, *, seed: int, tuned: float | None = None) -> Simulation:
    """Return the simulation of one trial of a cell; `tuned` replaces the value of the setting that the paper tuned."""
    settings: dict[str, Value] = dict(cell.settings)
    server: dict[str, Value] = dict(cell.server)
    rounds = rounds_of(cell, options)
    network = {"model": DATA[cell.dataset].model, "projection": PROJECTION}
    keys: dict[str, Any] = {"dataset": cell.dataset, **network, **cell.keys, "rounds": rounds}
    if not DATA[cell.dataset].bundled and "partition" not in keys:
        keys |= AUTHORS_SPLIT
    if options.quick:
        _make_quick(keys, settings, cell, options)
    if tuned is not None:
        (server if cell.tuned in server else settings)[cell.tuned] = tuned
    if cell.method == POOLED:
        keys = {key: value for key, value in keys.items() if key not in OF_PARTIES}
    if cell.method == SOLO:
        keys = {key: value for key, value in keys.items() if key not in ("rounds", "cohort")}
        settings["epochs"] = _solo_epochs(rounds, settings) if options.rounds or options.quick else SOLO_EPOCHS
    else:
        settings |= _by_rounds(cell.method, rounds)
    keys = {key: value for key, value in keys.items() if DEFAULTS.get(key) != value}
    settings = {key: value for key, value in settings.items() if DEFAULTS.get(key) != value}
    if not options.augmentation:
        keys["augmentation"] = False
    name = f"{keys['dataset']}-{cell.method}"
    document = {**keys, "name": name, "method": cell.method, "seed": seed, "settings": settings, "server": server}
    return from_document(document)


def rounds_of(cell: Cell, options: Options) -> int:
    """Return the number of rounds of a cell's simulation."""
    return options.rounds or (cell.size.rounds if options.quick else paper_rounds(cell))


def _make_quick(keys: dict[str, Any], settings: dict[str, Value], cell: Cell, options: Options) -> None:
    """Shrink every time-consuming setting; tabular data are small as they are."""
    if cell.dataset not in ("breast-cancer", "wine"):
        sampled = "cohort" in keys
        keys |= {"dataset": options.quick_dataset, "model": "cnn"}
        keys["parties"] = 2 * cell.size.parties if sampled else cell.size.parties
        if sampled:
            keys["cohort"] = QUICK_COHORT
        if cell.size.beta:
            keys["beta"] = cell.size.beta
        if options.quick_dataset == "cifar10":
            keys |= {"train_samples": QUICK_TRAIN, "test_samples": QUICK_TEST}
        settings["batch_size"] = 32
        settings |= cell.size.settings.get(cell.method, {})
    settings["epochs"] = min(int(settings.get("epochs", cell.size.epochs)), cell.size.epochs)


def _solo_epochs(rounds: int, settings: Mapping[str, Value]) -> int:
    """Return the epochs of the federated methods' devices in all rounds, at most the paper's."""
    return min(SOLO_EPOCHS, rounds * int(settings.get("epochs", 10)))


def _by_rounds(method: str, rounds: int) -> dict[str, Value]:
    """Derive the settings that follow from the number of rounds."""
    changed: dict[str, Value] = {}
    if method in DECAYING:
        start = min(DECAY_START, max(1, rounds - 1))
        changed |= {"decay_start": start, "decay_end": max(rounds, start + 1)}
    if method == TWO_STAGE:
        changed["first_stage_rounds"] = max(1, min(rounds - 1, round(FIRST_STAGE * rounds)))
    return changed
