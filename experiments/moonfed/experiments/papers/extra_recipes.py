"""Recipes of our own: tabular data, and the accuracy that augmentation by a few fixed views costs."""

from __future__ import annotations

from dataclasses import replace

from moonfed.experiments.papers.presets import CIFAR10, FEDAVG, FEDPROX, MOON, SOLO, with_mu
from moonfed.experiments.papers.recipe import Column, Panel, Recipe, cross

RECIPES = (
    Recipe(
        name="tabular",
        title="Accuracy on tabular data",
        source="ours",
        panels=(
            Panel(
                title="Accuracy, %",
                cells=cross(
                    [
                        Column(dataset=name, keys={"parties": 4}, settings={"batch_size": 16})
                        for name in ("breast-cancer", "wine")
                    ],
                    [(with_mu(MOON, 1.0), ""), (FEDAVG, ""), (with_mu(FEDPROX, 0.01), ""), (SOLO, "")],
                ),
            ),
        ),
        notes=("The sets come with scikit-learn; the network is moonfed's MLP, with 4 parties.",),
    ),
    Recipe(
        name="views",
        title="Accuracy of MOON by the number of augmented views",
        source="ours",
        panels=(
            Panel(
                title="Top-1 accuracy of MOON, %",
                cells=cross(
                    [CIFAR10],
                    [
                        (
                            replace(
                                MOON,
                                label=f"{views} view{'s' * (views > 1)}",
                                settings={"views": views},
                                quick=views in (1, 3),
                            ),
                            "",
                        )
                        for views in (1, 2, 3, 5)
                    ]
                    + [(replace(MOON, label="fresh in every epoch"), "")],
                ),
            ),
        ),
        notes=(
            "With V views a device computes the frozen encoders' representations V times in a round; fresh"
            " augmentation computes them in every step.",
        ),
    ),
)
