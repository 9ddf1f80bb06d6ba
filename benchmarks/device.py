"""Local training on one device: the compiled plan against an eager loop written as the MOON paper describes it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch

from benchmarks.comparison import Comparison, compare, peaks, title
from benchmarks.contenders import EAGER_FEDAVG, EAGER_MOON, EPOCHS, PLAN_FEDAVG, PLAN_MOON, PLAN_MOON_EACH, Workload
from benchmarks.cuda import measure_cuda
from benchmarks.footprint import measure_footprint
from benchmarks.report import Figure, Tables

# For information: how much of the gain is due to the memory format, which an eager loop can use, too.
EAGER_FEDAVG_LAST = replace(EAGER_FEDAVG, name="eager FedAvg, channels-last", memory_format="channels-last")
EAGER_MOON_LAST = replace(EAGER_MOON, name="eager MOON, channels-last", memory_format="channels-last")
CONTENDERS = (
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
class CpuScale:
    """Size of one model's measurement, and the target speed-up of the plan over the eager loop for MOON."""

    model: str
    samples: int
    turns: int
    gain: float


CNN = CpuScale(model="cnn", samples=640, turns=15, gain=1.75)
RESNET18 = CpuScale(model="resnet18", samples=64, turns=5, gain=1.5)


def measure_device() -> Tables:
    yield from measure_cpu()
    yield from measure_cuda()
    yield from measure_footprint()


def measure_cpu(
    cnn: CpuScale = CNN, others: Sequence[CpuScale] = (RESNET18,), *, epochs: int = EPOCHS, views: Sequence[int] = VIEWS
) -> Tables:
    for scale in (cnn, *others):
        yield from _measure_model(scale, epochs)
    yield _measure_views(cnn, epochs, views)
    with one_thread():
        figures = _measure_one_thread(cnn, epochs)
    yield figures


@contextmanager
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _work(scale: CpuScale, epochs: int) -> Workload:
    return Workload(model=scale.model, accelerator="cpu", samples=scale.samples, epochs=epochs)


def _measure_model(scale: CpuScale, epochs: int) -> Tables:
    work = _work(scale, epochs)
    found = compare(CONTENDERS, work, scale.turns)
    yield found.times()
    yield peaks(CONTENDERS, work)
    yield [
        _moon_over_fedavg(found),
        Figure(
            name=f"{title(work)}: eager MOON / plan MOON",
            value=found.ratio(EAGER_MOON, PLAN_MOON),
            unit="times",
            at_least=scale.gain,
        ),
        Figure(
            name=f"{title(work)}: plan FedAvg / eager FedAvg",
            value=found.ratio(PLAN_FEDAVG, EAGER_FEDAVG),
            unit="times",
            at_most=1.03,
        ),
    ]


def _moon_over_fedavg(found: Comparison, where: str = "") -> Figure:
    """Compare MOON with FedAvg; the pass that computes references is part of the timed rounds."""
    name = f"{title(found.work)}{where}: plan MOON / plan FedAvg"
    return Figure(name=name, value=found.ratio(PLAN_MOON, PLAN_FEDAVG), unit="times", at_most=1.10)


def _measure_one_thread(scale: CpuScale, epochs: int) -> list[Figure]:
    found = compare((PLAN_FEDAVG, PLAN_MOON), _work(scale, epochs), scale.turns)
    times = [replace(figure, name=f"{figure.name}, one thread") for figure in found.times()]
    return [*times, _moon_over_fedavg(found, ", one thread")]


def _measure_views(scale: CpuScale, epochs: int, views: Sequence[int]) -> list[Figure]:
    """Compare MOON with V augmented copies with FedAvg, which needs no copies and augments in every step."""
    moon = {
        count: replace(PLAN_MOON, name=f"plan MOON, V = {count}", augmentation="crop-flip", views=count)
        for count in views
    }
    found = compare((FRESH, *moon.values()), _work(scale, epochs), scale.turns)
    ratios = [
        Figure(
            name=f"{title(found.work)}: plan MOON, V = {count} / plan FedAvg, fresh",
            value=found.ratio(contender, FRESH),
            unit="times",
            at_most=1.05 * (3 + 2 * count / EPOCHS) / 3,
        )
        for count, contender in moon.items()
    ]
    return [*found.times(), *ratios]
