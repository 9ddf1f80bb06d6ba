"""One round of local training on one device: pure, on the plan interface, without files, network or clock.

Legend: N samples, B a batch's samples, j previous models at hand, D width of a representation.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

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
class RoundSettings:
    """What a device is told for one round, and who it is."""

    epochs: int
    batch_size: int
    hyperparameters: Mapping[str, float]
    seed: int  # the run's
    round: int
    device: str  # the device's name, not its accelerator

    def __post_init__(self) -> None:
        for field in ("epochs", "batch_size", "round"):
            if getattr(self, field) < 1:
                raise InvalidInput(f"{field} is {getattr(self, field)}; it must be a whole number from 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A sign of life, given after every batch of work."""

    fraction: float  # of the round's steps, 0 to 1
    epoch: int = 0  # from 1; 0 while references are computed
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

    model: list[torch.Tensor]
    samples: int
    steps: int
    loss: float  # mean over the round's steps
    holdout: Evaluation | None  # of the incoming global model


def train_round(
    plan: Plan,
    data: Samples,
    *,
    model: Model,
    previous_models: Sequence[Model],
    settings: RoundSettings,
    holdout: Samples | None = None,
    progress: Callable[[Progress], None] = lambda _: None,
) -> Trained:
    """Trains the global model on this device's data; raises what `progress` raises, such as Stopped.

    `previous_models`: this device's own, newest first. `holdout` scores the incoming global model before it is trained.
    """
    if len(data) == 0:
        raise InvalidInput("the data have no samples; at least one is needed")
    plan.begin_round(model, previous_models, settings.hyperparameters)
    score = evaluate(plan, holdout, settings.batch_size, progress) if holdout else None
    # Frozen encoders, inputs without augmentation: a sample's references are the same in every epoch.
    references = compute_references(plan, data, settings.batch_size, progress)
    losses = []
    for epoch in range(1, settings.epochs + 1):
        # Whatever is random inside the plan repeats with the order of the samples.
        torch.manual_seed(derived_seed(settings, epoch))
        total = torch.zeros((), device=data.labels.device)
        batches = list(epoch_batches(len(data), settings, epoch))
        for done, batch in enumerate(batches, start=1):
            index = batch.to(data.labels.device)
            total += plan.step(data.inputs[index], data.labels[index], _rows(references, index))
            progress(Progress(fraction=(epoch - 1 + done / len(batches)) / settings.epochs, epoch=epoch))
        losses.append(float(total) / len(batches))  # the only wait for the accelerator in an epoch
        progress(Progress(fraction=epoch / settings.epochs, epoch=epoch, loss=losses[-1]))
    return Trained(
        model=plan.end_round(),
        samples=len(data),
        steps=settings.epochs * steps_per_epoch(len(data), settings.batch_size),
        loss=sum(losses) / len(losses),
        holdout=score,
    )


def steps_per_epoch(samples: int, batch_size: int) -> int:
    """The last partial batch is dropped, unless it is the only one."""
    return max(1, samples // batch_size)


def epoch_batches(samples: int, settings: RoundSettings, epoch: int) -> Iterator[torch.Tensor]:
    """The epoch's batches as indices [B]: the same for the same (seed, round, device, epoch), else others."""
    generator = torch.Generator().manual_seed(derived_seed(settings, epoch))
    order = torch.randperm(samples, generator=generator)
    for step in range(steps_per_epoch(samples, settings.batch_size)):
        yield order[step * settings.batch_size : (step + 1) * settings.batch_size]


def derived_seed(settings: RoundSettings, epoch: int) -> int:
    """A 63-bit seed from (seed, round, device, epoch); Python's own hash() differs between processes."""
    text = f"{settings.seed}/{settings.round}/{epoch}/{settings.device}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1


def compute_references(
    plan: Plan, data: Samples, batch_size: int, progress: Callable[[Progress], None] = lambda _: None
) -> torch.Tensor:
    """The references of all samples [N, 1 + j, D], or an empty tensor if this round's objective needs none."""
    if plan.reference_count() == 0:
        return torch.empty(0, device=data.labels.device)
    pieces = []
    with torch.no_grad():
        for inputs in torch.split(data.inputs, batch_size):
            pieces.append(plan.references(inputs))
            progress(Progress(fraction=0.0))
    return torch.cat(pieces)


def evaluate(
    plan: Plan, data: Samples, batch_size: int, progress: Callable[[Progress], None] = lambda _: None
) -> Evaluation:
    """Scores the plan's present model; `data` must not be empty."""
    total = torch.zeros(2, device=data.labels.device, dtype=torch.float64)
    for inputs, labels in zip(torch.split(data.inputs, batch_size), torch.split(data.labels, batch_size), strict=True):
        total += plan.evaluate(inputs, labels)
        progress(Progress(fraction=0.0))
    loss, correct = total.tolist()
    return Evaluation(loss=loss / len(data), accuracy=correct / len(data), samples=len(data))


def _rows(references: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    return references[index] if references.numel() else references
