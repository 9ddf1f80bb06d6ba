"""Tables of Shi, Performance Comparison and Analysis Between MOON and FedProx in Image Classification."""

from __future__ import annotations

from dataclasses import replace

from moonfed.experiments.papers.presets import FEDAVG, FEDPROX, MOON, MU_GRID, THREE
from moonfed.experiments.papers.recipe import Column, Panel, Recipe, cross

PAPER = "Shi, Performance Comparison and Analysis Between MOON and FedProx in Image Classification"
SHI_MOON = replace(MOON, grid=(0.01, *MU_GRID))
NOTE = "Untuned, mu is the best one of Li, He, Song's table 1."

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
                        (SHI_MOON, "67.8 ± 0.3 | 65.9 ± 0.3 | 24.5 ± 0.1"),
                        (FEDAVG, "65.6 ± 0.4 | 63.9 ± 0.4 | 22.3 ± 0.1"),
                        (FEDPROX, "66.1 ± 0.2 | 64.1 ± 0.2 | 22.4 ± 0.1"),
                    ],
                ),
            ),
        ),
        notes=(NOTE,),
    ),
    Recipe(
        name="shi-table-2",
        title="Rounds to FedAvg's accuracy",
        source=f"{PAPER}, table 2",
        panels=(
            Panel(
                title="Rounds to FedAvg's last accuracy",
                measure="rounds",
                target=FEDAVG.label,
                chart="bars",
                cells=cross(THREE, [(FEDAVG, "100 | 100 | 20"), (FEDPROX, "56 | 77 | 17"), (SHI_MOON, "28 | 46 | 10")]),
            ),
        ),
        notes=(NOTE,),
    ),
    Recipe(
        name="shi-table-3",
        title="Accuracy by how uneven the split is",
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
                        (SHI_MOON, "62.8 | 65.9 | 66.3"),
                        (FEDAVG, "61.9 | 63.9 | 64.9"),
                        (replace(FEDPROX, quick=False), "62.2 | 64.1 | 64.3"),
                    ],
                ),
            ),
        ),
        notes=(NOTE,),
    ),
)
