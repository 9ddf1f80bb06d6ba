"""The tables of Li, He, Song, Model-Contrastive Federated Learning (CVPR 2021)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from moonfed.experiments.papers.presets import (
    CIFAR10,
    CIFAR100,
    DATA,
    DETAILS,
    DRIFT,
    FEDAVG,
    FEDPROX,
    L2_GRID,
    MOON,
    MU_GRID,
    NETWORK_AND_TRAINING,
    ONE_TRIAL,
    OUR_CHOICE,
    PROXIMAL_GRID,
    SCAFFOLD,
    SERVER_MOMENTUM_GRID,
    SOLO,
    SPLIT_SEED,
    THREE,
    UNSTATED,
    with_mu,
)
from moonfed.experiments.papers.recipe import Column, Panel, Recipe, Row, Value, cross
from moonfed.experiments.papers.speed_ups import QUOTED, speed_panels

PAPER = "Li, He, Song, Model-Contrastive Federated Learning (CVPR 2021)"
NO_TRAINING = "Nothing is trained; the labels are those of balanced classes, so no data set is read."
FEDERATED = (MOON, FEDAVG, FEDPROX, SCAFFOLD)
TUNED_MOON, TUNED_FEDPROX = replace(MOON, grid=MU_GRID), replace(FEDPROX, grid=PROXIMAL_GRID)
L2 = Row(
    label="L2",
    method="l2",
    best={"cifar10": 0.1, "cifar100": 0.1, "tiny-imagenet": 0.1},
    grid=L2_GRID,
    printed=False,
)
FEDAVGM = Row(
    label="FedAvgM",
    method="fedavg",
    keys={"server_rule": "fedavgm"},
    server={"server_momentum": 0.7, "damped": True},
    tuned="server_momentum",
    grid=SERVER_MOMENTUM_GRID,
    printed=False,
)
MOON_FEDAVGM = replace(FEDAVGM, label="MOON + FedAvgM", method="moon", best=MOON.best)  # mu is that of MOON alone
NO_SCAFFOLD_CODE = (
    "None of the commits of the authors' code contains SCAFFOLD; its form here is NIID-Bench's, whose correction is"
    " outside momentum."
)
HIGHER_SCAFFOLD = (
    "Expect moonfed's SCAFFOLD to be far above the paper's with the ResNet-50 and with 100 parties. NIID-Bench, which"
    " the paper's first author names as the code for it, also corrects BatchNorm's statistics, and starts c from the"
    " weights of a random network, which cancel only if all parties take part; moonfed does neither."
)
OF_SCAFFOLD = (NO_SCAFFOLD_CODE, HIGHER_SCAFFOLD)
FIRST_CONTRAST = (
    "In the authors' code a party that is drawn for the first time after round 1 contrasts with its own randomly"
    " initialised network; here it has no contrastive term until it has a previous model."
)
SAME_MU = "mu is that of table 1 in every column; the paper does not state another."
SAME_PROXIMAL_MU = "FedProx's mu is that of table 1; the paper does not state another."
PARTIES_50: Mapping[str, Value] = {"parties": 50, "rounds": 200}
PARTIES_100: Mapping[str, Value] = {"parties": 100, "rounds": 500, "cohort": "20%"}

TABLE_1 = Panel(
    title="Top-1 accuracy, %",
    cells=cross(
        THREE,
        [
            (TUNED_MOON, "69.1 ± 0.4 | 67.5 ± 0.4 | 25.1 ± 0.1"),
            (FEDAVG, "66.3 ± 0.5 | 64.5 ± 0.4 | 23.0 ± 0.1"),
            (TUNED_FEDPROX, "66.9 ± 0.2 | 64.6 ± 0.2 | 23.2 ± 0.2"),
            (SCAFFOLD, "66.6 ± 0.2 | 52.5 ± 0.3 | 16.0 ± 0.2"),
            (SOLO, "46.3 ± 5.1 | 22.3 ± 1.0 | 8.6 ± 0.4"),
        ],
    ),
)
NEVER = "\N{EN DASH}"  # as the paper prints it
TABLE_2 = speed_panels(
    [
        (FEDAVG, "100 | 100 | 20", "1x | 1x | 1x"),
        (FEDPROX, "52 | 75 | 17", ""),
        (SCAFFOLD, f"80 | {NEVER} | {NEVER}", " | <1x | <1x"),
        (MOON, "27 | 43 | 11", ""),
    ]
)
TABLE_3 = Panel(
    title="Top-1 accuracy, %",
    cells=cross(
        [
            Column(dataset="cifar100", label="50 parties, half-way", keys=PARTIES_50, at=0.5, quick=False),
            Column(dataset="cifar100", label="50 parties", keys=PARTIES_50, quick=False),
            Column(dataset="cifar100", label="100 parties, 20 %, half-way", keys=PARTIES_100, at=0.5),
            Column(dataset="cifar100", label="100 parties, 20 %", keys=PARTIES_100),
        ],
        [
            (with_mu(MOON, 1.0), "54.7 | 58.8 | 54.5 | 58.2"),
            (with_mu(MOON, 10.0), "58.2 | 63.2 | 56.9 | 61.8"),
            (FEDAVG, "51.9 | 56.4 | 51.0 | 55.0"),
            (FEDPROX, "52.7 | 56.6 | 51.3 | 54.6"),
            (replace(SCAFFOLD, quick=False), "35.8 | 44.9 | 37.4 | 44.5"),
            (replace(SOLO, quick=False), "- | 10 ± 0.9 | - | 7.3 ± 0.6"),
        ],
    ),
)
TABLE_4 = Panel(
    title="Top-1 accuracy, %",
    cells=cross(
        [
            Column(dataset="cifar100", label="beta 0.1", keys={"beta": 0.1}),
            Column(dataset="cifar100", label="beta 0.5", keys={"beta": 0.5}),
            Column(dataset="cifar100", label="beta 5", keys={"beta": 5.0}, quick=False),
        ],
        [
            (MOON, "64.0 | 67.5 | 68.0"),
            (FEDAVG, "62.5 | 64.5 | 65.7"),
            (replace(FEDPROX, quick=False), "62.9 | 64.6 | 64.9"),
            (replace(SCAFFOLD, quick=False), "47.3 | 52.5 | 55.0"),
            (replace(SOLO, quick=False), "15.9 ± 1.5 | 22.3 ± 1 | 26.6 ± 1.4"),
        ],
    ),
)
TABLE_5 = Panel(
    title="Top-1 accuracy, %",
    cells=cross(
        THREE,
        [
            (replace(FEDAVG, label="no second term"), "66.3 | 64.5 | 23.0"),
            (L2, "65.8 | 66.9 | 24.0"),
            (MOON, "69.1 | 67.5 | 25.1"),
        ],
    ),
)
TABLE_6 = (
    Panel(
        title="Samples per party, mean ± standard deviation",
        measure="spread",
        cells=cross(THREE, [(replace(FEDAVG, label="samples per party"), "5,000 ± 1,165 | 5,000 ± 181 | 10,000 ± 99")]),
    ),
    Panel(
        title="Test samples",
        measure="test samples",
        cells=cross(THREE, [(replace(FEDAVG, label="test samples"), "")]),
    ),
)
TABLE_7 = Panel(
    title="Top-1 accuracy with and without a projection head, %",
    cells=cross(
        [
            replace(column, label=f"{DATA[column.dataset].title}, {label}", keys=keys)
            for column in (CIFAR10, CIFAR100)
            for label, keys in (("with", {}), ("without", {"projection": 0}))
        ],
        [
            (MOON, "69.1 ± 0.4 | 66.8 | 67.5 ± 0.4 | 66.1"),
            (FEDAVG, "66.3 ± 0.5 | 66.7 | 64.5 ± 0.4 | 65.0"),
            (replace(FEDPROX, quick=False), "66.9 ± 0.2 | 67.5 | 64.6 ± 0.2 | 65.4"),
            (replace(SCAFFOLD, quick=False), "66.6 ± 0.2 | 67.1 | 52.5 ± 0.3 | 49.5"),
            (replace(SOLO, quick=False), "46.3 ± 5.1 | 39.8 ± 3.9 | 22.3 ± 1.0 | 22.5 ± 1.1"),
        ],
    ),
)
TABLE_8 = Panel(
    title="Top-1 accuracy on IID parts, %",
    cells=cross(
        [replace(CIFAR10, label="IID", keys={"partition": "iid"})],
        [
            (with_mu(MOON, 0.1, quick=False), "73.6"),
            (with_mu(MOON, 1.0, quick=False), "73.6"),
            (with_mu(MOON, 5.0), "73.0"),
            (with_mu(MOON, 10.0, quick=False), "72.8"),
            (FEDAVG, "73.4"),
        ],
    ),
)
TABLE_9 = Panel(
    title="Top-1 accuracy of MOON, %",
    cells=cross(
        THREE,
        [
            (replace(FEDAVG, label="mu 0"), "66.3 | 64.5 | 23.0"),
            (with_mu(MOON, 0.1), "66.5 | 65.1 | 23.4"),
            (with_mu(MOON, 1.0), "68.4 | 67.5 | 25.1"),
            (with_mu(MOON, 5.0), "69.1 | 67.1 | 24.4"),
            (with_mu(MOON, 10.0, quick=False), "68.3 | 67.3 | 25.0"),
        ],
    ),
)
TABLE_10 = Panel(
    title="Top-1 accuracy, %",
    cells=cross(
        THREE,
        [
            (FEDAVG, "66.3 | 64.5 | 23.0"),
            (MOON, "69.1 | 67.5 | 25.1"),
            (FEDAVGM, "67.1 | 65.1 | 23.4"),
            (MOON_FEDAVGM, "69.6 | 67.8 | 25.5"),
        ],
    ),
)
SECONDS = [
    (FEDAVG, "330 | 20 min | 103 min"),
    (FEDPROX, "340 | 24 min | 135 min"),
    (SCAFFOLD, "332 | 20 min | 112 min"),
    (MOON, "337 | 31 min | 197 min"),
]
TABLE_11 = (
    Panel(
        title="Ratio to FedAvg's time",
        measure="ratio",
        target=FEDAVG.label,
        chart="bars",
        cells=cross(THREE, [(row, "") for row, _ in SECONDS]),
    ),
    Panel(
        title="Seconds per round, the parties in turn: our median, the paper's average",
        measure="seconds",
        cells=cross(THREE, SECONDS),
    ),
)
TABLE_12 = Panel(
    title="Top-1 accuracy of MOON with k previous models, %",
    cells=cross(
        [CIFAR10],
        [
            (
                replace(TUNED_MOON, label=f"k = {k}", settings={"previous_models": k}, printed=k == 1, quick=k <= 2),
                text,
            )
            for k, text in ((1, "69.1"), (2, "67.2"), (5, "67.7"), (100, "63.5"))
        ],
    ),
)

RECIPES = (
    Recipe(
        name="moon-table-1",
        title="Accuracy of the methods",
        source=f"{PAPER}, table 1",
        panels=(TABLE_1,),
        notes=(*OF_SCAFFOLD, DETAILS),
        unstated=UNSTATED,
        size=DRIFT,
    ),
    Recipe(
        name="moon-table-2",
        title="Rounds to FedAvg's accuracy",
        source=f"{PAPER}, table 2",
        panels=TABLE_2,
        notes=(
            "FedAvg takes all its rounds by definition. A dash: the paper's runs did not reach FedAvg's accuracy, for"
            " which it prints <1x.",
            QUOTED,
            *OF_SCAFFOLD,
            DETAILS,
        ),
        unstated=ONE_TRIAL,
    ),
    Recipe(
        name="moon-table-3",
        title="Accuracy with 50 and 100 parties",
        source=f"{PAPER}, table 3",
        panels=(TABLE_3,),
        notes=(
            "Of the 100 parties, 20 % take part in each round.",
            SAME_PROXIMAL_MU,
            FIRST_CONTRAST,
            *OF_SCAFFOLD,
            DETAILS,
        ),
        unstated=ONE_TRIAL,
    ),
    Recipe(
        name="moon-table-4",
        title="Accuracy by unevenness of the split",
        source=f"{PAPER}, table 4",
        panels=(TABLE_4,),
        notes=(SAME_MU, *OF_SCAFFOLD, DETAILS),
        unstated=ONE_TRIAL,
    ),
    Recipe(
        name="moon-table-5",
        title="Accuracy by the type of the second loss term",
        source=f"{PAPER}, table 5",
        panels=(TABLE_5,),
        notes=("None of the commits of the authors' code contains L2.", DETAILS),
        unstated=ONE_TRIAL,
    ),
    Recipe(
        name="moon-table-6",
        title="Samples per party",
        source=f"{PAPER}, table 6",
        panels=TABLE_6,
        notes=(NO_TRAINING, "The split is drawn as the authors' code draws it, with their seed."),
    ),
    Recipe(
        name="moon-table-7",
        title="Accuracy with and without a projection head",
        source=f"{PAPER}, table 7",
        panels=(TABLE_7,),
        notes=(
            "Without a head the output layer reads the encoder's output. With one, the paper's numbers are table 1's.",
            SAME_MU,
            *OF_SCAFFOLD,
            DETAILS,
        ),
        unstated=ONE_TRIAL,
    ),
    Recipe(
        name="moon-table-8",
        title="Accuracy on IID parts",
        source=f"{PAPER}, table 8",
        panels=(TABLE_8,),
        notes=(f"Where the paper is silent, this follows its authors' code: {NETWORK_AND_TRAINING}.",),
        unstated={**ONE_TRIAL, SPLIT_SEED: OUR_CHOICE},
    ),
    Recipe(
        name="moon-table-9",
        title="Accuracy by mu",
        source=f"{PAPER}, table 9",
        panels=(TABLE_9,),
        notes=("MOON with mu 0 is FedAvg, and is run as such.", DETAILS),
        unstated=ONE_TRIAL,
    ),
    Recipe(
        name="moon-table-10",
        title="MOON with server momentum",
        source=f"{PAPER}, table 10",
        panels=(TABLE_10,),
        notes=(
            "FedAvgM in the form of the authors' code, v = beta v + (1 - beta) delta, not v = beta v + delta. Their"
            " server momentum also moves BatchNorm's statistics; ours are the weighted mean. That affects only the"
            " ResNet-50.",
            "With MOON, too, only the server momentum is tuned; mu is that of table 1.",
            DETAILS,
        ),
        unstated=ONE_TRIAL,
    ),
    Recipe(
        name="moon-table-11",
        title="Duration of a round",
        source=f"{PAPER}, table 11",
        panels=TABLE_11,
        notes=(
            "The paper's times were measured on one V100. Seconds are the sum over a round's parties, as if they had"
            " trained in turn; workers on the same machine slow each other down. Compare ratios, not seconds.",
            "The paper prints the average time of a round; ours is the median, which a few disturbed rounds hardly"
            " change.",
            "The paper prints times only, so the ratios are moonfed's alone.",
            NO_SCAFFOLD_CODE,
            DETAILS,
        ),
        unstated=ONE_TRIAL,
    ),
    Recipe(
        name="moon-table-12",
        title="Accuracy by the number of previous models",
        source=f"{PAPER}, table 12",
        panels=(TABLE_12,),
        notes=(
            "The paper tuned mu for each k. With k = 5 the authors' code fills its list with four copies of one model"
            " and the newest, so the paper's 67.7 probably refers to that list; ours uses five different models.",
            DETAILS,
        ),
        unstated=ONE_TRIAL,
    ),
)
