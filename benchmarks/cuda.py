"""Training throughput on CUDA, where a plan also uses CUDA graphs and mixed precision.

Without a CUDA device, figures with a target are reported as unmeasured.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from benchmarks.comparison import Comparison, compare, peaks
from benchmarks.contenders import (
    EAGER_FEDAVG,
    EAGER_MOON,
    EPOCHS,
    PLAN_FEDAVG,
    PLAN_MOON,
    PLAN_MOON_EACH,
    Contender,
    Workload,
    new_round,
    timed,
)
from benchmarks.report import Figure, Tables, progress

ACCELERATOR, MIXED = "cuda", "bfloat16"
PLAN_FEDAVG_MIXED = replace(PLAN_FEDAVG, name=f"plan FedAvg, {MIXED}", precision=MIXED)
PLAN_MOON_MIXED = replace(PLAN_MOON, name=f"plan MOON, references cached, {MIXED}", precision=MIXED)
# For information: how much of the gain an eager loop can reach, too.
EAGER_MOON_MIXED = replace(
    EAGER_MOON, name=f"eager MOON, {MIXED}, channels-last", precision=MIXED, memory_format="channels-last"
)
CONTENDERS = (
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
PARTIES, PARTY_SAMPLES = 10, 5000  # of a round on CIFAR-10 in the paper, 500,000 sample steps

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
class CudaScale:
    """Size of one model's measurement: samples per round of ten epochs, and turns."""

    model: str
    samples: int
    turns: int


CNN = CudaScale(model="cnn", samples=PARTY_SAMPLES, turns=5)
RESNET18 = CudaScale(model="resnet18", samples=1280, turns=5)
RESNET50 = CudaScale(model="resnet50", samples=1280, turns=5)


def measure_cuda() -> Tables:
    if not torch.cuda.is_available():
        targets = (LAUNCHES, PRECISION, *AUGMENTED.values(), PAPER_ROUND)
        yield [replace(figure, reason="no CUDA device") for figure in targets]
        return
    found = {}
    for scale in (CNN, RESNET18, RESNET50):
        found[scale.model] = _compare(CONTENDERS, scale)
        yield found[scale.model].times()
        yield peaks(CONTENDERS, found[scale.model].work)
    yield [
        replace(LAUNCHES, value=found["cnn"].ratio(EAGER_MOON, PLAN_MOON)),
        replace(PRECISION, value=found["resnet50"].ratio(EAGER_MOON, PLAN_MOON_MIXED)),
    ]
    yield _measure_augmented(RESNET50)
    yield [replace(PAPER_ROUND, value=_paper_round_seconds(CNN.turns))]


def _compare(contenders: Sequence[Contender], scale: CudaScale) -> Comparison:
    return compare(contenders, Workload(model=scale.model, accelerator=ACCELERATOR, samples=scale.samples), scale.turns)


def _measure_augmented(scale: CudaScale) -> list[Figure]:
    fedavg, moon = (
        [
            replace(contender, name=f"{name}, a fresh augmentation in every step, {precision}", precision=precision,
                    augmentation="crop-flip")
            for precision in PRECISIONS
        ]
        for contender, name in ((PLAN_FEDAVG, "plan FedAvg"), (PLAN_MOON, "plan MOON"))
    )  # fmt: skip
    found = _compare((*fedavg, *moon), scale)
    ratios = [
        replace(AUGMENTED[precision], value=found.ratio(above, below))
        for precision, above, below in zip(PRECISIONS, moon, fedavg, strict=True)
    ]
    return [*found.times(), *ratios]


def _paper_round_seconds(turns: int) -> float:
    """Time ten parties of 5,000 samples that train MOON in turn, each with its own data and plan."""
    progress(PAPER_ROUND.name)
    work = Workload(model="cnn", accelerator=ACCELERATOR, samples=PARTY_SAMPLES, epochs=EPOCHS)
    parties = [new_round(PLAN_MOON, work, seed=party) for party in range(PARTIES)]
    for train in parties:
        train(1)
    return statistics.median(sum(timed(train, work) for train in parties) for _ in range(turns))
