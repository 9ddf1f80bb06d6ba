"""Tables and figures of Shi, Performance Comparison and Analysis Between MOON and FedProx in Image Classification."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from moonfed.experiments.papers.moon_figures import by_epochs
from moonfed.experiments.papers.presets import (
    AUGMENTATION,
    AUTHORS_CODE,
    COHORT,
    EPOCHS,
    FEDAVG,
    FEDPROX,
    MOON,
    MU_GRID,
    NETWORK_AND_TRAINING,
    OUR_CHOICE,
    PARTIES,
    PROXIMAL_GRID,
    SPLIT,
    SPLIT_SEED,
    THREE,
    TRIALS,
    with_mu,
)
from moonfed.experiments.papers.recipe import Column, Panel, Recipe, cross
from moonfed.experiments.papers.speed_ups import QUOTED, speed_panels

PAPER = "Shi, Performance Comparison and Analysis Between MOON and FedProx in Image Classification"
TUNED_MOON, TUNED_FEDPROX = replace(MOON, grid=(0.01, *MU_GRID)), replace(FEDPROX, grid=PROXIMAL_GRID)
ROWS = (MOON, FEDAVG, FEDPROX)
DETAILS = (
    "Where the paper is silent, this follows the code of MOON's authors: the draw of the split,"
    f" {NETWORK_AND_TRAINING}."
)
CNN = "The paper's description of its CNN is garbled; we read it as MOON's."
OF_MOON = "MOON's paper"
KNOWN_BETA: Mapping[str, str] = {
    AUGMENTATION: f"MOON's {AUTHORS_CODE}",
    SPLIT_SEED: f"MOON's {AUTHORS_CODE}",
    TRIALS: OUR_CHOICE,
    EPOCHS: OF_MOON,
    PARTIES: OF_MOON,
    COHORT: OF_MOON,
}
UNSTATED: Mapping[str, str] = {**KNOWN_BETA, SPLIT: OF_MOON}

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
        notes=(
            CNN,
            "The paper prints averages and standard deviations, but not over how many trials.",
            DETAILS,
        ),
        unstated=UNSTATED,
    ),
    Recipe(
        name="shi-table-2",
        title="Rounds to FedAvg's accuracy",
        source=f"{PAPER}, table 2",
        panels=speed_panels(
            [
                (FEDAVG, "100 | 100 | 20", "1x | 1x | 1x"),
                (FEDPROX, "56 | 77 | 17", ""),
                (MOON, "28 | 46 | 10", " | | 1.8x"),
            ]
        ),
        notes=(
            "FedAvg takes all its rounds by definition.",
            QUOTED,
            "The paper contradicts itself on Tiny-ImageNet: it prints 1.8x for MOON's 10 rounds, and 20 rounds by 10"
            " are 2.0.",
            CNN,
            DETAILS,
        ),
        unstated=UNSTATED,
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
                        (MOON, "62.8 | 65.9 | 66.3"),
                        (FEDAVG, "61.9 | 63.9 | 64.9"),
                        (replace(FEDPROX, quick=False), "62.2 | 64.1 | 64.3"),
                    ],
                ),
            ),
        ),
        notes=(DETAILS,),
        unstated=KNOWN_BETA,
    ),
    Recipe(
        name="shi-figure-6",
        title="Accuracy by round",
        source=f"{PAPER}, figure 6",
        panels=tuple(
            Panel(
                title="", chart="curves", cells=cross([column], [(row, "") for row in (*ROWS, with_mu(FEDPROX, 1.0))])
            )
            for column in THREE
        ),
        notes=("FedProx with mu 1, beside its best mu, is in the paper's text.", CNN, DETAILS),
        unstated=UNSTATED,
    ),
    Recipe(
        name="shi-figure-7",
        title="Accuracy by local epochs",
        source=f"{PAPER}, figure 7",
        panels=tuple(by_epochs(column, ROWS, {}) for column in THREE),
        notes=(CNN, DETAILS),
        unstated={**UNSTATED, EPOCHS: OUR_CHOICE},
    ),
)
