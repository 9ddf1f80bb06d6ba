"""One round of local training on one device: pure, on the plan interface, without files or network.

Legend: N samples, B a batch's samples.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from moonfed.bundle.manifest import PERSONAL
from moonfed.edge_client.training.batches import BatchFeed
from moonfed.edge_client.training.budget import Budget
from moonfed.edge_client.training.cuda_graph import CUDA_GRAPHS, StepCapture, launcher, own_stream
from moonfed.edge_client.training.data_placement import Samples as Samples
from moonfed.edge_client.training.data_placement import free_memory
from moonfed.edge_client.training.rng import RoundSettings as RoundSettings
from moonfed.edge_client.training.rng import derived_seed, epoch_batches, steps_in_round
from moonfed.errors import InvalidInput
from moonfed.plan.interface import Plan

Model = Sequence[torch.Tensor]  # tensors in the manifest's order


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A heartbeat after every batch of work."""

    fraction: float  # of the round's steps, or of the time it has, 0 to 1
    epoch: int = 0  # from 1; 0 for work other than steps: references, the holdout, surveys
    loss: float | None = None  # mean over an epoch's steps, when one has just ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """A model's loss and metric on some samples."""

    loss: float  # mean, as the task reports it
    score: float  # the manifest's metric
    samples: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """The results of local training in one round."""

    results: Mapping[str, list[torch.Tensor]]  # by role; `model` is among them
    samples: int
    steps: int  # that were taken
    loss: float  # mean over the round's steps
    metrics: Mapping[str, float]  # the method's metrics
    holdout: Evaluation | None  # of the incoming global model


def train_round(
    plan: Plan,
    data: Samples,
    *,
    model: Model,
    previous_models: Sequence[Model],
    received: Mapping[str, Sequence[torch.Tensor]],
    settings: RoundSettings,
    holdout: Samples | None = None,
    progress: Callable[[Progress], None] = lambda _: None,
    accelerator: torch.device | None = None,
    clock: Callable[[], float] = time.monotonic,
    started: float | None = None,
    graphs: StepCapture | None = CUDA_GRAPHS,
) -> Trained:
    """Train the global model on this device's data; raises what `progress` raises, such as `Stopped`.

    `previous_models`: this device's own, newest first. `received`: global state and the device's own, by role.
    `holdout` scores the incoming global model before it is trained. `accelerator`: where the plan runs; by default
    where the data are. `started`: the clock's time at which the budget of seconds began; by default now. `graphs`
    captures steps on CUDA; None launches them kernel by kernel.
    """
    if len(data) == 0:
        raise InvalidInput("the data have no samples; at least one is needed")
    accelerator = accelerator or data.device
    budget = Budget(steps_in_round(len(data), settings), settings.max_seconds, clock, started)
    spec, total = settings.training, 0.0

    def heartbeat() -> None:
        progress(Progress(fraction=budget.fraction()))

    with own_stream(accelerator):
        # Before the first step: score and survey the global model.
        plan.begin_round(model, previous_models, _present(received), spec.hyperparameters, budget.steps)
        score = evaluate(plan, holdout, spec.batch_size, heartbeat) if holdout else None
        if plan.wants_survey(False):
            survey(plan, data, spec.batch_size, budget.taken, heartbeat)
        # Steps: whole epochs, until the device's budget is spent.
        memory = free_memory(accelerator, data.bytes_on(accelerator))
        feed = BatchFeed(plan, data, settings, accelerator, memory, heartbeat, budget.in_time)
        losses = torch.zeros((), device=accelerator)
        timed = settings.max_seconds is not None
        launch = launcher(lambda: losses.add_(plan.step(*feed.batch)), budget.steps, accelerator, graphs, timed)
        for epoch in range(1, spec.epochs + 1):
            if not budget.allows_step():
                break
            before = budget.taken
            batches = epoch_batches(len(data), settings, epoch)[: budget.steps - before]
            feed.begin(epoch, batches)
            # Other randomness inside the plan, such as dropout, repeats with the order of the samples.
            torch.manual_seed(derived_seed(settings, epoch))
            losses.zero_()
            for _ in range(len(batches)):
                if not budget.allows_step():
                    break
                feed.fill()
                launch()
                budget.taken += 1
                progress(Progress(fraction=budget.fraction(), epoch=epoch))
            loss = float(losses)  # the epoch's only synchronisation with the accelerator
            total += loss
            if budget.taken > before:
                progress(Progress(fraction=budget.fraction(), epoch=epoch, loss=loss / (budget.taken - before)))
        # After the last step: survey the trained model if the method asks for it.
        if plan.wants_survey(True):
            survey(plan, data, spec.batch_size, budget.taken, heartbeat)
        return Trained(
            results=plan.end_round(budget.taken),
            samples=len(data),
            steps=budget.taken,
            loss=total / budget.taken,
            metrics=plan.metrics(),
            holdout=score,
        )


def _present(received: Mapping[str, Sequence[torch.Tensor]]) -> dict[str, Sequence[torch.Tensor]]:
    """Leave out roles of zeros, which count as absent: what they stand for need not be computed."""
    return {
        role: tensors
        for role, tensors in received.items()
        if role == PERSONAL or any(bool(tensor.any()) for tensor in tensors)
    }


def survey(
    plan: Plan, data: Samples, batch_size: int, steps: int, heartbeat: Callable[[], None] = lambda: None
) -> None:
    """Show all samples to the plan once, in order, after `steps` steps of the round."""
    for inputs, targets in data.batches(batch_size):
        plan.survey(inputs, targets, steps)
        heartbeat()


def evaluate(plan: Plan, data: Samples, batch_size: int, heartbeat: Callable[[], None] = lambda: None) -> Evaluation:
    """Score the plan's present model; `data` must not be empty."""
    sums = []
    for inputs, targets in data.batches(batch_size):
        sums.append(plan.evaluate(inputs, targets))
        heartbeat()
    total = torch.stack(sums).sum(0, dtype=torch.float64)
    return Evaluation(loss=float(total[0]) / len(data), score=plan.metric(total, len(data)), samples=len(data))
