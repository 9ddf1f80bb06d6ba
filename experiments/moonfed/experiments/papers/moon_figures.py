"""The figures of Li, He, Song, Model-Contrastive Federated Learning (CVPR 2021)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from moonfed.experiments.papers.moon_tables import (
    FEDERATED,
    FIRST_CONTRAST,
    NO_TRAINING,
    OF_SCAFFOLD,
    PAPER,
    PARTIES_50,
    PARTIES_100,
    SAME_MU,
    SAME_PROXIMAL_MU,
)
from moonfed.experiments.papers.presets import (
    CIFAR10,
    DETAILS,
    EPOCHS,
    EPOCHS_OF_SOLO,
    FEDAVG,
    FEDPROX,
    MOON,
    ONE_TRIAL,
    OUR_CHOICE,
    POOLED,
    SCAFFOLD,
    SOLO,
    THREE,
    with_mu,
)
from moonfed.experiments.papers.recipe import Column, Panel, Recipe, Row, cross


def _heat_map(column: Column) -> Panel:
    cells = cross([replace(column, label="")], [(replace(FEDAVG, label="samples per party"), "")])
    return Panel(title=column.label, measure="spread", chart="heat-map", cells=cells)


def _curves(column: Column) -> Panel:
    rows = [(row, "") for row in (MOON, FEDAVG, FEDPROX, with_mu(FEDPROX, 1.0), SCAFFOLD)]
    return Panel(title="", chart="curves", cells=cross([column], rows))


def _many_parties(title: str, column: Column) -> Panel:
    moons = (with_mu(MOON, 1.0), with_mu(MOON, 10.0))
    rows = [(row, "") for row in (FEDAVG, FEDPROX, replace(SCAFFOLD, quick=False), *moons)]
    return Panel(title=title, chart="curves", cells=cross([column], rows))


PRINTED_AT_ONE_EPOCH = {  # the text gives the figure's values at one epoch
    ("SCAFFOLD", "cifar10"): "45.3",
    ("SCAFFOLD", "cifar100"): "20.4",
    ("SCAFFOLD", "tiny-imagenet"): "2.6",
    ("FedProx", "tiny-imagenet"): "1.2",
}


def by_epochs(column: Column, rows: Sequence[Row], printed: Mapping[tuple[str, str], str]) -> Panel:
    """Accuracy by local epochs; the figures do not state the numbers of epochs, so these are our choice."""
    columns = [
        replace(column, label=str(epochs), settings={"epochs": epochs}, quick=epochs in (1, 5))
        for epochs in (1, 5, 10, 20, 40)
    ]
    texts = [(row, f"{printed.get((row.label, column.dataset), '')}||||") for row in rows]
    return Panel(title="", chart="lines", x="local epochs", cells=cross(columns, texts))


def _by_temperature(column: Column) -> Panel:
    columns = [replace(column, label=f"{tau:g}", settings={"tau": tau}, quick=tau < 1) for tau in (0.1, 0.5, 1.0)]
    return Panel(title="", chart="lines", x="tau", cells=cross(columns, [(MOON, "")]))


def _by_width(column: Column) -> Panel:
    columns = [
        replace(column, label=str(width), keys={"projection": width}, quick=width != 128) for width in (64, 128, 256)
    ]
    return Panel(title="", chart="lines", x="width of the head's output", cells=cross(columns, [(MOON, "")]))


def _heat_maps(number: int, beta: float) -> Recipe:
    columns = [replace(column, keys={"beta": beta}) for column in THREE]
    return Recipe(
        name=f"moon-figure-{number}",
        title=f"Samples by class and party, beta {beta:g}",
        source=f"{PAPER}, figure {number}",
        panels=tuple(_heat_map(column) for column in columns),
        notes=(NO_TRAINING, "The split is drawn as the authors' code draws it, with their seed."),
    )


RECIPES = (
    Recipe(
        name="moon-figure-2",
        title="Representations of the test images",
        source=f"{PAPER}, figure 2",
        panels=(Panel(title="", chart="t-sne", cells=cross([CIFAR10], [(POOLED, ""), (SOLO, ""), (FEDAVG, "")])),),
        notes=(
            "In the paper's order: a model trained on all data in one place, one trained on a party's part alone,"
            " FedAvg's global model, and a local model trained from it. Ours is the first party's of the last round,"
            " trained from the global model of the round before.",
            "The vectors are z, the projection head's output, of 1,000 test pictures (--quick: 200): our choice.",
            "How long the first two were trained is not stated. Pooled data are trained for as many epochs as FedAvg"
            " has in all rounds, the party alone for SOLO's 300: our choice.",
            DETAILS,
        ),
        unstated={**ONE_TRIAL, EPOCHS_OF_SOLO: OUR_CHOICE},
    ),
    _heat_maps(5, 0.5),
    Recipe(
        name="moon-figure-6",
        title="Accuracy by round",
        source=f"{PAPER}, figure 6",
        panels=tuple(_curves(column) for column in THREE),
        notes=(*OF_SCAFFOLD, DETAILS),
        unstated=ONE_TRIAL,
    ),
    Recipe(
        name="moon-figure-7",
        title="Accuracy by local epochs",
        source=f"{PAPER}, figure 7",
        panels=tuple(by_epochs(column, FEDERATED, PRINTED_AT_ONE_EPOCH) for column in THREE),
        notes=("The paper prints four of the figure's numbers in its text.", SAME_MU, *OF_SCAFFOLD, DETAILS),
        unstated={**ONE_TRIAL, EPOCHS: OUR_CHOICE},
    ),
    Recipe(
        name="moon-figure-8",
        title="Accuracy by round with 50 and 100 parties",
        source=f"{PAPER}, figure 8",
        panels=(
            _many_parties("50 parties", Column(dataset="cifar100", keys=PARTIES_50, quick=False)),
            _many_parties("100 parties, 20 % in a round", Column(dataset="cifar100", keys=PARTIES_100)),
        ),
        notes=(
            "The paper's text: the larger mu is slower at first, and better later.",
            SAME_PROXIMAL_MU,
            FIRST_CONTRAST,
            *OF_SCAFFOLD,
            DETAILS,
        ),
        unstated=ONE_TRIAL,
    ),
    _heat_maps(9, 0.1),
    _heat_maps(10, 5.0),
    Recipe(
        name="moon-figure-11",
        title="Accuracy by temperature and by the head's output",
        source=f"{PAPER}, figure 11",
        panels=tuple(_by_temperature(column) for column in THREE) + tuple(_by_width(column) for column in THREE),
        notes=(
            "The paper's best: tau 0.5, 1.0, 0.5 and an output of 128, 256, 128 numbers, in the order of the data"
            " sets.",
            SAME_MU,
            DETAILS,
        ),
        unstated=ONE_TRIAL,
    ),
)
