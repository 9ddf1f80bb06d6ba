"""The figures of Li, He, Song, Model-Contrastive Federated Learning (CVPR 2021)."""

from __future__ import annotations

from dataclasses import replace

from moonfed.experiments.papers.moon_tables import FEDERATED, NO_TRAINING, PAPER, PARTIES_50, PARTIES_100
from moonfed.experiments.papers.presets import CIFAR10, FEDAVG, FEDPROX, MOON, SCAFFOLD, THREE, with_mu
from moonfed.experiments.papers.recipe import Column, Panel, Recipe, cross


def _heat_map(column: Column) -> Panel:
    cells = cross([replace(column, label="")], [(replace(FEDAVG, label="samples per party"), "")])
    return Panel(title=column.label, measure="spread", chart="heat-map", cells=cells)


def _curves(title: str, column: Column, *, quick: bool = True) -> Panel:
    """`quick`: whether a quick look has the last two methods as well."""
    rows = [
        (row, "") for row in (MOON, FEDAVG, FEDPROX, with_mu(FEDPROX, 1.0, quick=quick), replace(SCAFFOLD, quick=quick))
    ]
    return Panel(title=title, chart="curves", cells=cross([column], rows))


def _by_epochs(column: Column) -> Panel:
    columns = [
        replace(column, label=str(epochs), settings={"epochs": epochs}, quick=epochs in (1, 5))
        for epochs in (1, 5, 10, 20, 40)
    ]
    printed = {  # the text says what the figure's points at one epoch are
        ("SCAFFOLD", "cifar10"): "45.3",
        ("SCAFFOLD", "cifar100"): "20.4",
        ("SCAFFOLD", "tiny-imagenet"): "2.6",
        ("FedProx", "tiny-imagenet"): "1.2",
    }
    rows = [(row, f"{printed.get((row.label, column.dataset), '')}||||") for row in FEDERATED]
    return Panel(title="", chart="lines", x="local epochs", cells=cross(columns, rows))


def _by_temperature(column: Column) -> Panel:
    columns = [replace(column, label=f"{tau:g}", settings={"tau": tau}, quick=tau < 1) for tau in (0.1, 0.5, 1.0)]
    return Panel(title="", chart="lines", x="tau", cells=cross(columns, [(MOON, "")]))


def _by_width(column: Column) -> Panel:
    columns = [
        replace(column, label=str(width), keys={"projection": width}, quick=width != 128) for width in (64, 128, 256)
    ]
    return Panel(title="", chart="lines", x="width of the head's output", cells=cross(columns, [(MOON, "")]))


RECIPES = (
    Recipe(
        name="moon-figure-2",
        title="Hidden vectors of global and local models",
        source=f"{PAPER}, figure 2",
        panels=(Panel(title="", chart="t-sne", cells=cross([CIFAR10], [(FEDAVG, ""), (MOON, "")])),),
    ),
    Recipe(
        name="moon-figure-5",
        title="Samples by class and party, beta 0.5",
        source=f"{PAPER}, figure 5",
        panels=tuple(_heat_map(column) for column in THREE),
        notes=(NO_TRAINING,),
    ),
    Recipe(
        name="moon-figure-6",
        title="Accuracy by round",
        source=f"{PAPER}, figure 6",
        panels=tuple(_curves("", column) for column in THREE),
    ),
    Recipe(
        name="moon-figure-7",
        title="Accuracy by local epochs",
        source=f"{PAPER}, figure 7",
        panels=tuple(_by_epochs(column) for column in THREE),
        notes=("The paper prints four of the figure's numbers in its text.",),
    ),
    Recipe(
        name="moon-figure-8",
        title="Accuracy by round with 50 and 100 parties",
        source=f"{PAPER}, figure 8",
        panels=(
            _curves("50 parties", Column(dataset="cifar100", keys=PARTIES_50, quick=False)),
            _curves("100 parties, 20 % in a round", Column(dataset="cifar100", keys=PARTIES_100), quick=False),
        ),
    ),
    Recipe(
        name="moon-figure-9",
        title="Samples by class and party, beta 0.1",
        source=f"{PAPER}, figure 9",
        panels=(_heat_map(Column(dataset="cifar100", keys={"beta": 0.1})),),
        notes=(NO_TRAINING,),
    ),
    Recipe(
        name="moon-figure-10",
        title="Samples by class and party, beta 5",
        source=f"{PAPER}, figure 10",
        panels=(_heat_map(Column(dataset="cifar100", keys={"beta": 5.0})),),
        notes=(NO_TRAINING,),
    ),
    Recipe(
        name="moon-figure-11",
        title="Accuracy by temperature and by the head's output",
        source=f"{PAPER}, figure 11",
        panels=tuple(_by_temperature(column) for column in THREE) + tuple(_by_width(column) for column in THREE),
        notes=(
            "The paper's best: tau 0.5, 1.0, 0.5 and an output of 128, 256, 128 numbers, in the order of the data"
            " sets.",
        ),
    ),
)
