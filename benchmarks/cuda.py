"""The same comparison on CUDA, where plans have more to gain: steps in a CUDA graph, mixed precision.

Without a CUDA device the rows that have targets are there all the same, unmeasured.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from benchmarks.comparison import Comparison, compare, peaks
from benchmarks.report import Figure, say
from benchmarks.sides import (
    EAGER_FEDAVG,
    EAGER_MOON,
    EPOCHS,
    PLAN_FEDAVG,
    PLAN_MOON,
    PLAN_MOON_EACH,
    Side,
    Work,
    new_round,
    timed,
)

ACCELERATOR, MIXED = "cuda", "bfloat16"
PLAN_FEDAVG_MIXED = replace(PLAN_FEDAVG, name=f"plan FedAvg, {MIXED}", precision=MIXED)
PLAN_MOON_MIXED = replace(PLAN_MOON, name=f"plan MOON, references cached, {MIXED}", precision=MIXED)
# For information: what of the gain an eager loop can have as well.
EAGER_MOON_MIXED = replace(
    EAGER_MOON, name=f"eager MOON, {MIXED}, channels-last", precision=MIXED, memory_format="channels-last"
)
SIDES = (
    EAGER_FEDAVG,
    PLAN_FEDAVG,
    EAGER_MOON,
    PLAN_MOON_EACH,
    PLAN_MOON,
    PLAN_FEDAVG_MIXED,
    PLAN_MOON_MIXED,
    EAGER_MOON_MIXED,
)
PRECISIONS = ("float32", MIXED)
PARTIES, PARTY_SAMPLES = 10, 5000  # of one of the paper's rounds on CIFAR-10, 500,000 sample steps

LAUNCHES = Figure(name="CNN on CUDA: eager MOON / plan MOON, float32", unit="times", at_least=8)
PRECISION = Figure(
    name=f"ResNet-50 on CUDA: eager MOON, float32 / plan MOON, {MIXED}, no augmentation", unit="times", at_least=2.5
)
AUGMENTED = {
    precision: Figure(
        name=f"ResNet-50 on CUDA: plan MOON / plan FedAvg, a fresh augmentation in every step, {precision}",
        unit="times",
        at_most=1.55,
    )
    for precision in PRECISIONS
}
PAPER_ROUND = Figure(name="CNN on CUDA: a CIFAR-10 round of the paper, 500,000 sample steps", unit="s", at_most=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaExtent:
    """How long each model is measured: samples that a round's ten epochs train, and turns."""

    model: str
    samples: int
    turns: int


CNN = CudaExtent(model="cnn", samples=PARTY_SAMPLES, turns=5)
RESNET18 = CudaExtent(model="resnet18", samples=1280, turns=5)
RESNET50 = CudaExtent(model="resnet50", samples=1280, turns=5)


def measure_cuda() -> list[Figure]:
    if not torch.cuda.is_available():
        return [
            replace(figure, reason="no CUDA device")
            for figure in (LAUNCHES, PRECISION, *AUGMENTED.values(), PAPER_ROUND)
        ]
    figures, found = [], {}
    for extent in (CNN, RESNET18, RESNET50):
        found[extent.model] = _compare(SIDES, extent)
        figures += [*found[extent.model].times(), *peaks(SIDES, found[extent.model].work)]
    return [
        *figures,
        replace(LAUNCHES, value=found["cnn"].ratio(EAGER_MOON, PLAN_MOON)),
        replace(PRECISION, value=found["resnet50"].ratio(EAGER_MOON, PLAN_MOON_MIXED)),
        *_measure_augmented(RESNET50),
        replace(PAPER_ROUND, value=_paper_round_seconds(CNN.turns)),
    ]


def _compare(sides: Sequence[Side], extent: CudaExtent) -> Comparison:
    return compare(sides, Work(model=extent.model, accelerator=ACCELERATOR, samples=extent.samples), extent.turns)


def _measure_augmented(extent: CudaExtent) -> list[Figure]:
    fedavg, moon = (
        [
            replace(side, name=f"{name}, a fresh augmentation in every step, {precision}", precision=precision,
                    augmentation="crop-flip")
            for precision in PRECISIONS
        ]
        for side, name in ((PLAN_FEDAVG, "plan FedAvg"), (PLAN_MOON, "plan MOON"))
    )  # fmt: skip
    found = _compare((*fedavg, *moon), extent)
    ratios = [
        replace(AUGMENTED[precision], value=found.ratio(above, below))
        for precision, above, below in zip(PRECISIONS, moon, fedavg, strict=True)
    ]
    return [*found.times(), *ratios]


def _paper_round_seconds(turns: int) -> float:
    """Ten parties of 5,000 samples train MOON one after the other, each with data and a plan of its own."""
    say(PAPER_ROUND.name)
    work = Work(model="cnn", accelerator=ACCELERATOR, samples=PARTY_SAMPLES, epochs=EPOCHS)
    parties = [new_round(PLAN_MOON, work, seed=party) for party in range(PARTIES)]
    for train in parties:
        train(1)
    return statistics.median(sum(timed(train, work) for train in parties) for _ in range(turns))
