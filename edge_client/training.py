"""One round of local training on one device: pure, on the plan interface, without files, network or clock.

Legend: N samples, B a batch's samples, R random draws per sample, j previous models at hand, D width of a
representation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from edge_client.draws import RoundSettings as RoundSettings
from edge_client.draws import derived_seed, epoch_batches, sample_draws, steps_in_round
from moonfed.errors import InvalidInput
from moonfed.plan import Plan

Model = Sequence[torch.Tensor]  # tensors in the manifest's order


class Stopped(Exception):
    """A progress callback raises it to end local training early; nothing of the round is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Raw inputs [N, …] and labels [N] int64, on the training device."""

    inputs: torch.Tensor
    labels: torch.Tensor

    def __len__(self) -> int:
        return int(self.labels.shape[0])

    def to(self, device: str) -> Samples:
        """The same samples on `cpu` or `cuda`."""
        return Samples(inputs=self.inputs.to(device), labels=self.labels.to(device))


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A sign of life, given after every batch of work."""

    fraction: float  # of the round's steps, 0 to 1
    epoch: int = 0  # from 1; 0 for work that is no step: references, the holdout, surveys
    loss: float | None = None  # mean over an epoch's steps, when one has just ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """How good a model is on some samples."""

    loss: float  # mean cross-entropy
    accuracy: float  # 0 to 1
    samples: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """What a round of local training leaves."""

    results: Mapping[str, list[torch.Tensor]]  # by role; `model` is among them
    samples: int
    steps: int  # that were taken
    loss: float  # mean over the round's steps
    metrics: Mapping[str, float]  # what the method measured
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
) -> Trained:
    """Trains the global model on this device's data; raises what `progress` raises, such as Stopped.

    `previous_models`: this device's own, newest first. `received`: global state and the device's own, by role.
    `holdout` scores the incoming global model before it is trained.
    """
    if len(data) == 0:
        raise InvalidInput("the data have no samples; at least one is needed")
    taken, planned, total = 0, steps_in_round(len(data), settings), 0.0

    def sign() -> None:
        progress(Progress(fraction=taken / planned))

    # What the round begins with: the global model, scored and looked at before its first step.
    plan.begin_round(model, previous_models, received, settings.hyperparameters)
    score = evaluate(plan, holdout, settings.batch_size, sign) if holdout else None
    if plan.wants_survey(False):
        survey(plan, data, settings.batch_size, taken, sign)
    # Steps: whole epochs, until the device's budget of steps is spent.
    copies = _Copies(plan, data, settings, sign)
    for epoch in range(1, settings.epochs + 1):
        batches = list(epoch_batches(len(data), settings, epoch))[: planned - taken]
        if not batches:
            break
        draws, references = copies.of(epoch)
        # What else is random inside the plan, such as dropout, repeats with the order of the samples.
        torch.manual_seed(derived_seed(settings, epoch))
        losses = torch.zeros((), device=data.labels.device)
        for batch in batches:
            index = batch.to(data.labels.device)
            losses += plan.step(data.inputs[index], data.labels[index], _rows(references, index), draws[index])
            taken += 1
            progress(Progress(fraction=taken / planned, epoch=epoch))
        loss = float(losses)  # the only wait for the accelerator in an epoch
        total += loss
        progress(Progress(fraction=taken / planned, epoch=epoch, loss=loss / len(batches)))
    # What the round leaves: the trained model, looked at once more if the method asks for it.
    if plan.wants_survey(True):
        survey(plan, data, settings.batch_size, taken, sign)
    return Trained(
        results=plan.end_round(taken),
        samples=len(data),
        steps=taken,
        loss=total / taken,
        metrics=plan.metrics(),
        holdout=score,
    )


class _Copies:
    """The round's augmented copies of the data, each as its draws [N, R] and references [N, 1 + j, D].

    A copy that comes back in a later epoch is kept with its references, which are frozen: all data without
    augmentation, else a view, from its first use on. The references of a fresh copy are left to the step, which
    augments anyway.
    """

    def __init__(self, plan: Plan, data: Samples, settings: RoundSettings, sign: Callable[[], None]) -> None:
        self._plan, self._data, self._settings, self._sign = plan, data, settings, sign
        self._per_sample = plan.draws_per_sample()
        self._kept: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def of(self, epoch: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Draws and references for an epoch, counted from 1; references are empty if the step is to compute them."""
        if self._per_sample and not self._settings.views:
            return self._draws(epoch), torch.empty(0, device=self._data.labels.device)
        view = (epoch - 1) % self._settings.views if self._per_sample else 0
        if view not in self._kept:
            draws = self._draws(view)
            references = compute_references(self._plan, self._data, draws, self._settings.batch_size, self._sign)
            self._kept[view] = draws, references
        return self._kept[view]

    def _draws(self, number: int) -> torch.Tensor:
        draws = sample_draws(len(self._data), self._per_sample, self._settings, number)
        return draws.to(self._data.labels.device)


def compute_references(
    plan: Plan, data: Samples, draws: torch.Tensor, batch_size: int, sign: Callable[[], None] = lambda: None
) -> torch.Tensor:
    """The references of all samples [N, 1 + j, D], or an empty tensor if this round's objective needs none."""
    if plan.reference_count() == 0:
        return torch.empty(0, device=data.labels.device)
    pieces = []
    with torch.no_grad():
        for inputs, batch_draws in zip(
            torch.split(data.inputs, batch_size), torch.split(draws, batch_size), strict=True
        ):
            pieces.append(plan.references(inputs, batch_draws))
            sign()
    return torch.cat(pieces)


def survey(plan: Plan, data: Samples, batch_size: int, steps: int, sign: Callable[[], None] = lambda: None) -> None:
    """Shows all samples to the plan once, in their own order, after so many steps of the round."""
    for inputs, labels in zip(torch.split(data.inputs, batch_size), torch.split(data.labels, batch_size), strict=True):
        plan.survey(inputs, labels, steps)
        sign()


def evaluate(plan: Plan, data: Samples, batch_size: int, sign: Callable[[], None] = lambda: None) -> Evaluation:
    """Scores the plan's present model; `data` must not be empty."""
    total = torch.zeros(2, device=data.labels.device, dtype=torch.float64)
    for inputs, labels in zip(torch.split(data.inputs, batch_size), torch.split(data.labels, batch_size), strict=True):
        total += plan.evaluate(inputs, labels)
        sign()
    loss, correct = total.tolist()
    return Evaluation(loss=loss / len(data), accuracy=correct / len(data), samples=len(data))


def _rows(references: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    return references[index] if references.numel() else references
