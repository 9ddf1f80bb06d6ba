"""Steps of plans for tasks other than classification of images, against usual PyTorch.

Both sides take a step on the same batch in turn, on one thread. CPU time is compared, which other processes of the
machine change less than the time that passes.
"""

from __future__ import annotations

import copy
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812

from benchmarks.device import one_thread
from benchmarks.eager import SGD, scaled
from benchmarks.report import Figure, Tables, progress
from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import TargetSpec
from moonfed.export.criteria.criterion import build_criterion
from moonfed.export.methods import METHODS
from moonfed.export.model_zoo import build_network
from moonfed.export.network import Network, exchanged_tensors
from moonfed.export.plan_builder import compile_plan, save_plan
from moonfed.export.self_checks import check_targets, random_samples
from moonfed.plan.interface import Plan, load_plan
from moonfed.tasks import TASKS

BATCH, TURNS, STEPS, WARM_UP = 32, 11, 10, 3
SERIES, IMAGE = InputSpec(kind="series", shape=(96, 7)), InputSpec(kind="image", shape=(64, 64, 3))
LOADS = TargetSpec(kind="values", names=("load",), shape=(24, 1))
MASKS = TargetSpec(kind="mask", names=("background", "crop", "weed"), shape=(64, 64))
HYPERPARAMETERS = {
    "learning_rate": SGD.learning_rate,
    "momentum": SGD.momentum,
    "weight_decay": SGD.weight_decay,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    model: str
    title: str
    task: str
    sample: InputSpec
    target: TargetSpec
    loss: Callable[[Network, torch.Tensor, torch.Tensor], torch.Tensor]


def _forecast(network: Network, inputs: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    return F.mse_loss(network.outputs(network.features(inputs)).view(values.shape), values)


def _segment(network: Network, inputs: torch.Tensor, masks: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(network.outputs(network.features(scaled(inputs))), masks.long(), ignore_index=255)


GRU = Work(
    model="gru", title="GRU, forecast of 24 from 96x7", task="regression", sample=SERIES, target=LOADS, loss=_forecast
)
LSTM = Work(
    model="lstm", title="LSTM, forecast of 24 from 96x7", task="regression", sample=SERIES, target=LOADS, loss=_forecast
)
UNET = Work(
    model="unet", title="U-Net, 3 classes, 64x64x3", task="segmentation", sample=IMAGE, target=MASKS, loss=_segment
)


def measure_tasks(turns: int = TURNS, steps: int = STEPS) -> Tables:
    """Compare steps of GRU, LSTM and U-Net."""
    with one_thread():
        found = {work.model: _seconds(work, turns, steps) for work in (GRU, LSTM, UNET)}
    yield [
        figure
        for work in (GRU, LSTM, UNET)
        for figure in (
            Figure(name=f"{work.title}: eager step", value=1e3 * _median(found[work.model][0]), unit="ms"),
            Figure(name=f"{work.title}: plan step", value=1e3 * _median(found[work.model][1]), unit="ms"),
            Figure(name=f"{work.title}: eager / plan", value=_ratio(*found[work.model]), unit="times", at_least=1.0),
        )
    ] + [Figure(name="plan step: LSTM / GRU", value=_ratio(found["lstm"][1], found["gru"][1]), unit="times", at_most=2)]


def _median(seconds: list[float]) -> float:
    return statistics.median(seconds)


def _ratio(above: list[float], below: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(above, below, strict=True))


def _seconds(work: Work, turns: int, steps: int) -> tuple[list[float], list[float]]:
    """Return CPU seconds per step of the eager loop and of the plan, one per turn."""
    progress(f"{work.title}: {turns} turns of {steps} steps")
    task = TASKS[work.task]
    network = build_network(work.model, work.sample, work.target, dense=task.dense, projection=None)
    inputs = torch.from_numpy(random_samples(work.sample, BATCH))
    targets = check_targets(work.target, BATCH)
    sides = (_eager(work, network, inputs, targets), _planned(work, network, inputs, targets))
    found: tuple[list[float], list[float]] = ([], [])
    for turn in range(turns):
        for side, seconds in list(zip(sides, found, strict=True))[:: 1 if turn % 2 else -1]:
            for _ in range(WARM_UP):
                side()
            start = time.process_time()
            for _ in range(steps):
                side()
            seconds.append((time.process_time() - start) / steps)
    return found


def _eager(work: Work, network: Network, inputs: torch.Tensor, targets: torch.Tensor) -> Callable[[], object]:
    local = copy.deepcopy(network).train()
    optimiser = torch.optim.SGD(
        local.parameters(), lr=SGD.learning_rate, momentum=SGD.momentum, weight_decay=SGD.weight_decay
    )

    def step() -> None:
        optimiser.zero_grad()
        torch.autograd.backward(work.loss(local, inputs, targets))
        optimiser.step()

    return step


def _planned(work: Work, network: Network, inputs: torch.Tensor, targets: torch.Tensor) -> Callable[[], object]:
    criterion = build_criterion(TASKS[work.task](), work.target, work.sample)
    with tempfile.TemporaryDirectory(prefix="moonfed-") as directory:
        path = Path(directory) / "plan.pt"
        save_plan(
            path,
            compile_plan(network, METHODS["fedavg"](), HYPERPARAMETERS, criterion=criterion, model=work.model),
        )
        plan: Plan = load_plan(path, "cpu")
    plan.begin_round([tensor.detach() for tensor in exchanged_tensors(network).values()], [], {}, HYPERPARAMETERS)
    nothing = torch.empty(BATCH, 0)
    return lambda: plan.step(inputs, targets, nothing, nothing)
