"""Tables and figures of Shi, Performance Comparison and Analysis Between MOON and FedProx in Image Classification."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from moonfed.experiments.papers.derived_cells import speed_panels
from moonfed.experiments.papers.moon_figures import by_epochs
from moonfed.experiments.papers.presets import (
    AUGMENTATION,
    AUTHORS_CODE,
    EPOCHS,
    FEDAVG,
    FEDPROX,
    MOON,
    MU_GRID,
    NETWORK_AND_TRAINING,
    OUR_CHOICE,
    PROXIMAL_GRID,
    SPLIT_SEED,
    THREE,
    TRIALS,
)
from moonfed.experiments.papers.recipe import Column, Panel, Recipe, cross

PAPER = "Shi, Performance Comparison and Analysis Between MOON and FedProx in Image Classification"
BEST_MOON, BEST_FEDPROX = replace(MOON, printed=False), replace(FEDPROX, printed=False)
TUNED_MOON, TUNED_FEDPROX = replace(BEST_MOON, grid=(0.01, *MU_GRID)), replace(BEST_FEDPROX, grid=PROXIMAL_GRID)
ROWS = (BEST_MOON, FEDAVG, BEST_FEDPROX)
NOTE = "Shi does not print the best mu; untuned, it is the one of Li, He, Song's table 1."
DETAILS = (
    "Where the paper is silent, this follows the code of MOON's authors: the draw of the split,"
    f" {NETWORK_AND_TRAINING}."
)
UNSTATED: Mapping[str, str] = {AUGMENTATION: f"MOON's {AUTHORS_CODE}", SPLIT_SEED: f"MOON's {AUTHORS_CODE}"}
ONE_TRIAL: Mapping[str, str] = {**UNSTATED, TRIALS: OUR_CHOICE}

RECIPES = (
    Recipe(
        name="shi-table-1",
        title="Accuracy of the methods",
        source=f"{PAPER}, table 1",
        panels=(
            Panel(
                title="Top-1 accuracy, %",
                cells=cross(
                    THREE,
                    [
                        (TUNED_MOON, "67.8 ± 0.3 | 65.9 ± 0.3 | 24.5 ± 0.1"),
                        (FEDAVG, "65.6 ± 0.4 | 63.9 ± 0.4 | 22.3 ± 0.1"),
                        (TUNED_FEDPROX, "66.1 ± 0.2 | 64.1 ± 0.2 | 22.4 ± 0.1"),
                    ],
                ),
            ),
        ),
        notes=(NOTE, DETAILS),
        unstated=UNSTATED,
    ),
    Recipe(
        name="shi-table-2",
        title="Rounds to FedAvg's accuracy",
        source=f"{PAPER}, table 2",
        panels=speed_panels([(FEDAVG, "100 | 100 | 20"), (BEST_FEDPROX, "56 | 77 | 17"), (BEST_MOON, "28 | 46 | 10")]),
        notes=("FedAvg takes all its rounds by definition.", NOTE, DETAILS),
        unstated=ONE_TRIAL,
    ),
    Recipe(
        name="shi-table-3",
        title="Accuracy by unevenness of the split",
        source=f"{PAPER}, table 3",
        panels=(
            Panel(
                title="Top-1 accuracy, %",
                cells=cross(
                    [
                        Column(dataset="cifar100", label="beta 0.1", keys={"beta": 0.1}),
                        Column(dataset="cifar100", label="beta 0.5", keys={"beta": 0.5}),
                        Column(dataset="cifar100", label="beta 5", keys={"beta": 5.0}, quick=False),
                    ],
                    [
                        (BEST_MOON, "62.8 | 65.9 | 66.3"),
                        (FEDAVG, "61.9 | 63.9 | 64.9"),
                        (replace(BEST_FEDPROX, quick=False), "62.2 | 64.1 | 64.3"),
                    ],
                ),
            ),
        ),
        notes=(NOTE, DETAILS),
        unstated=ONE_TRIAL,
    ),
    Recipe(
        name="shi-figure-6",
        title="Accuracy by round",
        source=f"{PAPER}, figure 6",
        panels=tuple(
            Panel(title="", chart="curves", cells=cross([column], [(row, "") for row in ROWS])) for column in THREE
        ),
        notes=(NOTE, DETAILS),
        unstated=ONE_TRIAL,
    ),
    Recipe(
        name="shi-figure-7",
        title="Accuracy by local epochs",
        source=f"{PAPER}, figure 7",
        panels=tuple(by_epochs(column, ROWS, {}) for column in THREE),
        notes=(NOTE, DETAILS),
        unstated={**ONE_TRIAL, EPOCHS: OUR_CHOICE},
    ),
)
