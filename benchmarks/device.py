"""One device's local training: the compiled plan against an eager loop written as the MOON paper describes it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch

from benchmarks.comparison import Comparison, compare, peaks, title
from benchmarks.cuda import measure_cuda
from benchmarks.footprint import measure_footprint
from benchmarks.report import Figure
from benchmarks.sides import EAGER_FEDAVG, EAGER_MOON, EPOCHS, PLAN_FEDAVG, PLAN_MOON, PLAN_MOON_EACH, Work

# For information: how much of a gain is the layout's, which an eager loop can have as well.
EAGER_FEDAVG_LAST = replace(EAGER_FEDAVG, name="eager FedAvg, channels-last", memory_format="channels-last")
EAGER_MOON_LAST = replace(EAGER_MOON, name="eager MOON, channels-last", memory_format="channels-last")
SIDES = (
    EAGER_FEDAVG,
    PLAN_FEDAVG,
    EAGER_MOON,
    PLAN_MOON_EACH,
    PLAN_MOON,
    EAGER_FEDAVG_LAST,
    EAGER_MOON_LAST,
)
FRESH = replace(PLAN_FEDAVG, name="plan FedAvg, a fresh augmentation in every step", augmentation="crop-flip")
VIEWS = (1, 3, 5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """How long a model is measured, and what the plan's MOON is to gain over the eager loop's on it."""

    model: str
    samples: int
    turns: int
    gain: float


CNN = Extent(model="cnn", samples=640, turns=15, gain=1.75)
RESNET18 = Extent(model="resnet18", samples=64, turns=5, gain=1.5)


def measure_device() -> list[Figure]:
    return [*measure_cpu(), *measure_cuda(), *measure_footprint()]


def measure_cpu(
    cnn: Extent = CNN, others: Sequence[Extent] = (RESNET18,), *, epochs: int = EPOCHS, views: Sequence[int] = VIEWS
) -> list[Figure]:
    figures = []
    for extent in (cnn, *others):
        figures += _measure_model(extent, epochs)
    figures += _measure_views(cnn, epochs, views)
    with _one_thread():
        figures += _measure_one_thread(cnn, epochs)
    return figures


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _work(extent: Extent, epochs: int) -> Work:
    return Work(model=extent.model, accelerator="cpu", samples=extent.samples, epochs=epochs)


def _measure_model(extent: Extent, epochs: int) -> list[Figure]:
    work = _work(extent, epochs)
    found = compare(SIDES, work, extent.turns)
    return [
        *found.times(),
        *peaks(SIDES, work),
        _moon_over_fedavg(found),
        Figure(
            name=f"{title(work)}: eager MOON / plan MOON",
            value=found.ratio(EAGER_MOON, PLAN_MOON),
            unit="times",
            at_least=extent.gain,
        ),
        Figure(
            name=f"{title(work)}: plan FedAvg / eager FedAvg",
            value=found.ratio(PLAN_FEDAVG, EAGER_FEDAVG),
            unit="times",
            at_most=1.03,
        ),
    ]


def _moon_over_fedavg(found: Comparison, where: str = "") -> Figure:
    """References once per round, whose pass is in the rounds that were timed."""
    name = f"{title(found.work)}{where}: plan MOON / plan FedAvg"
    return Figure(name=name, value=found.ratio(PLAN_MOON, PLAN_FEDAVG), unit="times", at_most=1.10)


def _measure_one_thread(extent: Extent, epochs: int) -> list[Figure]:
    found = compare((PLAN_FEDAVG, PLAN_MOON), _work(extent, epochs), extent.turns)
    times = [replace(figure, name=f"{figure.name}, one thread") for figure in found.times()]
    return [*times, _moon_over_fedavg(found, ", one thread")]


def _measure_views(extent: Extent, epochs: int, views: Sequence[int]) -> list[Figure]:
    """MOON with V augmented copies, against FedAvg, which needs none and augments anew in every step."""
    moon = {
        count: replace(PLAN_MOON, name=f"plan MOON, V = {count}", augmentation="crop-flip", views=count)
        for count in views
    }
    found = compare((FRESH, *moon.values()), _work(extent, epochs), extent.turns)
    ratios = [
        Figure(
            name=f"{title(found.work)}: plan MOON, V = {count} / plan FedAvg, fresh",
            value=found.ratio(side, FRESH),
            unit="times",
            at_most=1.05 * (3 + 2 * count / EPOCHS) / 3,
        )
        for count, side in moon.items()
    ]
    return [*found.times(), *ratios]
