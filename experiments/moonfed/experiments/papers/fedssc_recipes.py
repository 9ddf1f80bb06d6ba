"""Tables and figures of Hu, Feng, Yang, Chen, FedSSC: Shared Supervised-Contrastive Federated Learning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from moonfed.experiments.papers.presets import (
    AUGMENTATION,
    AUTHORS_CODE,
    DRIFT,
    EPOCHS,
    FEDAVG,
    FEDSSC,
    HEAD,
    MOON,
    MU,
    NETWORK,
    NETWORK_AND_TRAINING,
    OUR_CHOICE,
    SPLIT,
    SPLIT_SEED,
    TEMPERATURE,
    TRIALS,
)
from moonfed.experiments.papers.recipe import Column, Panel, Recipe, Row, cross

PAPER = "Hu, Feng, Yang, Chen, FedSSC: Shared Supervised-Contrastive Federated Learning"
CIFAR10 = Column(dataset="cifar10", keys={"partition": "dirichlet-equal"})
EQUAL = (
    "The paper draws each class from Dir(beta), following MOON, and gives all parties the same number of samples; how"
    " both can hold is not stated. Our reading: a party that is full takes no more, and the others share the rest of"
    " the class."
)
SCHEDULE = "The printed formula of mu_glob has no round in it; we read it as falling linearly after round 5."
SHARED = 'The paper shares classes of "at least 10" samples, and elsewhere of "more than 10"; here it is at least 10.'
READINGS = (
    "Eight readings of the paper are ours and can change its results; docs/methods.md lists them. The paper states"
    " neither the number of local epochs nor tau, the size of the head, kernels or channels; they are MOON's here."
)
DETAILS = f"Where the paper is silent, this follows the code of MOON's authors: {NETWORK_AND_TRAINING}."
UNSTATED: Mapping[str, str] = {
    AUGMENTATION: f"MOON's {AUTHORS_CODE}",
    EPOCHS: "MOON's paper",
    HEAD: "MOON's paper",
    MU: "MOON's table 1",
    NETWORK: "kernels and channels as in MOON's paper",
    SPLIT: "our reading of Dirichlet shares for parties of equal size",
    SPLIT_SEED: OUR_CHOICE,
    TEMPERATURE: "MOON's paper",
    TRIALS: OUR_CHOICE,
}
NO_MOON = {"mu_moon": 0.0}


def _curves(title: str, rows: tuple[Row, ...], column: Column = CIFAR10) -> Panel:
    return Panel(title=title, chart="curves", cells=cross([column], [(row, "") for row in rows]))


BY_BETA = tuple(
    _curves(
        f"beta {beta:g}",
        (FEDAVG, MOON, FEDSSC),
        replace(CIFAR10, keys={**CIFAR10.keys, "beta": beta}, quick=beta == 0.5),
    )
    for beta in (0.2, 0.5, 1.0, 5.0)
)
BY_STAGES = _curves(
    "Two stages, and local contrast",
    (
        FEDSSC,
        Row(label="two-stage", method="fedssc-two-stage"),
        Row(label="local contrast", method="fedssc-local-contrast"),
    ),
)
BY_LOSS = _curves(
    "mu_moon = 0, and FedProc",
    (FEDSSC, replace(FEDSSC, label="mu_moon = 0", settings=NO_MOON), Row(label="FedProc", method="fedproc")),
)
BY_SHARED = _curves(
    "k shared representations, mu_moon = 0",
    (
        FEDSSC,
        *(
            replace(FEDSSC, label=f"k = {k}", settings={**NO_MOON, "prototype_devices": k}, quick=k <= 2)
            for k in (1, 2, 5, 10)
        ),
        replace(FEDAVG, label="none"),
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
        notes=(READINGS, EQUAL, SCHEDULE, SHARED, DETAILS),
        unstated=UNSTATED,
        size=DRIFT,
    ),
    Recipe(
        name="fedssc-figure-1",
        title="Accuracy by round, for four values of beta",
        source=f"{PAPER}, figure 1",
        panels=BY_BETA,
        notes=(READINGS, EQUAL, SCHEDULE, SHARED, DETAILS),
        unstated=UNSTATED,
    ),
    Recipe(
        name="fedssc-figure-2",
        title="Accuracy by round, by stages, by loss, and by the number of shared representations",
        source=f"{PAPER}, figure 2",
        panels=(BY_STAGES, BY_LOSS, BY_SHARED),
        notes=(
            READINGS,
            EQUAL,
            SCHEDULE,
            SHARED,
            "The printed captions of 2a and 2b do not fit the text; the panels follow the text.",
            "The values of k in figure 2c are our choice. Without mu_moon and shared representations nothing but"
            " cross-entropy is left, which is FedAvg.",
            "FedProc is as in the paper: mu_moon = 0, and prototypes averaged over all parties.",
            "The local contrast is a separate term of weight 1, and the first of the two stages keeps MOON's term with"
            ' weight 5, where the paper says "only supervised contrastive loss": our readings.',
            DETAILS,
        ),
        unstated=UNSTATED,
    ),
)
