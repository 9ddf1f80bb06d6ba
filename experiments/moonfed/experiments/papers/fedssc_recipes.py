"""Tables and figures of Hu, Feng, Yang, Chen, FedSSC: Shared Supervised-Contrastive Federated Learning."""

from __future__ import annotations

from dataclasses import replace

from moonfed.experiments.papers.presets import FEDAVG, FEDSSC, MOON
from moonfed.experiments.papers.recipe import Column, Panel, Recipe, Row, cross

PAPER = "Hu, Feng, Yang, Chen, FedSSC: Shared Supervised-Contrastive Federated Learning"
PARTITION = {"partition": "dirichlet-equal"}
CIFAR10 = Column(dataset="cifar10", keys=PARTITION)
METHODS = [(FEDAVG, ""), (MOON, ""), (FEDSSC, "")]
EQUAL = "All parties hold the same number of samples; their mixes of classes are drawn from Dirichlet distributions."
ALTERNATIVES = (
    FEDSSC,
    Row(label="two-stage", method="fedssc-two-stage"),
    Row(label="local contrast", method="fedssc-local-contrast"),
    Row(label="FedProc", method="fedproc"),
)

BY_BETA = Panel(
    title="By beta",
    chart="lines",
    x="beta",
    cells=cross(
        [
            Column(dataset="cifar10", label=f"{beta:g}", keys={**PARTITION, "beta": beta}, quick=beta == 0.5)
            for beta in (0.2, 0.5, 1.0, 5.0)
        ],
        METHODS,
    ),
)
BY_LOSS = Panel(title="By loss", chart="curves", cells=cross([CIFAR10], [(row, "") for row in ALTERNATIVES]))
BY_SHARED = Panel(
    title="By shared representations, mu_moon = 0",
    chart="lines",
    x="k, parties whose class means make a prototype",
    cells=cross(
        [replace(CIFAR10, label=str(k), settings={"prototype_devices": k}, quick=k <= 2) for k in (1, 2, 5, 10)],
        [(replace(FEDSSC, settings={"mu_moon": 0.0}), "")],
    ),
)

RECIPES = (
    Recipe(
        name="fedssc-table-1",
        title="Accuracy of the methods, and rounds to 68 %",
        source=f"{PAPER}, table I",
        panels=(
            Panel(
                title="Top-1 accuracy, %",
                cells=cross([CIFAR10], [(FEDAVG, "65.8"), (MOON, "68.6"), (FEDSSC, "69.3")]),
            ),
            Panel(
                title="Rounds to 68 %",
                measure="rounds",
                target=0.68,
                chart="bars",
                cells=cross([CIFAR10], [(FEDAVG, ">100"), (MOON, "61"), (FEDSSC, "41")]),
            ),
        ),
        notes=(EQUAL,),
    ),
    Recipe(
        name="fedssc-figure-1",
        title="Accuracy by round",
        source=f"{PAPER}, figure 1",
        panels=(Panel(title="", chart="curves", cells=cross([CIFAR10], METHODS)),),
        notes=(EQUAL,),
    ),
    Recipe(
        name="fedssc-figure-2",
        title="Accuracy by unevenness, by loss, and by the number of shared representations",
        source=f"{PAPER}, figure 2",
        panels=(BY_BETA, BY_LOSS, BY_SHARED),
        notes=(EQUAL, "Which k figure 2c has is our choice."),
    ),
)
