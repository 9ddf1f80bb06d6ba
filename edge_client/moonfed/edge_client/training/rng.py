"""A round's randomness: the order of the samples, and the draws that augment them.

All of it derives from (seed, round, device, epoch or view), so that a round is reproducible on any machine.
Legend: N samples, B a batch's samples, R random draws per sample.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch

from moonfed.plan.training_spec import TrainingSpec
from moonfed.validate import require_positive, require_whole


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundSettings:
    """One device's local training in one round, with the device's own budget."""

    training: TrainingSpec
    seed: int  # the run's
    round: int
    device: str  # the device's name, not its accelerator
    max_steps: int | None = None  # optimiser steps in all epochs together; None: all of them
    max_seconds: float | None = None  # from the start of the round; None: unlimited

    def __post_init__(self) -> None:
        require_whole("round", self.round, 1)
        if self.max_steps is not None:
            require_whole("max_steps", self.max_steps, 1)
        if self.max_seconds is not None:
            require_positive("max_seconds", self.max_seconds)


def steps_per_epoch(samples: int, batch_size: int) -> int:
    """Return the steps of an epoch; the last partial batch is dropped unless it is the only one."""
    return max(1, samples // batch_size)


def steps_in_round(samples: int, settings: RoundSettings) -> int:
    """Return the steps of all epochs, limited by the device's budget."""
    steps = settings.training.epochs * steps_per_epoch(samples, settings.training.batch_size)
    return steps if settings.max_steps is None else min(steps, settings.max_steps)


def epoch_batches(samples: int, settings: RoundSettings, epoch: int) -> torch.Tensor:
    """Return an epoch's batches as indices [steps, B], derived from (seed, round, device, epoch)."""
    generator = torch.Generator().manual_seed(derived_seed(settings, epoch))
    order = torch.randperm(samples, generator=generator)
    steps = steps_per_epoch(samples, settings.training.batch_size)
    width = min(samples, settings.training.batch_size)
    return order[: steps * width].view(steps, width)


def sample_draws(samples: int, per_sample: int, settings: RoundSettings, number: int) -> torch.Tensor:
    """Return draws [N, R], uniform in [0, 1), in the order of the samples.

    `number`: the epoch's from 1, or the view's from 0.
    """
    kind = "view" if settings.training.views else "epoch"
    generator = torch.Generator().manual_seed(derived_seed(settings, f"draws of {kind} {number}"))
    return torch.rand(samples, per_sample, generator=generator)  # on the CPU: the same for every accelerator


def derived_seed(settings: RoundSettings, purpose: int | str) -> int:
    """Return a 63-bit seed from (seed, round, purpose, device); Python's own hash() differs between processes.

    The purpose is an epoch's number for its order of the samples, otherwise a text.
    """
    text = f"{settings.seed}/{settings.round}/{purpose}/{settings.device}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1
