"""Schedules of the learning rate over the steps of a round, inside TorchScript: a factor for each step.

They equal torch.optim.lr_scheduler's StepLR, CosineAnnealingLR and, for warm-up, LinearLR from 1/STEPS, in
SequentialLR. Only the device knows a round's number of steps. A step's factor is computed on the accelerator, where a
CUDA graph can replay it. Sources: see `moonfed.export.schedule`.
"""

import math
import re
from typing import Final

import torch

from moonfed.bundle.manifest import CONSTANT
from moonfed.errors import InvalidInput
from moonfed.export.script_utils import largest, rounded

SHAPES = (
    "constant, cosine, step:COUNT:FACTOR, warmup:COUNT, or warmup:COUNT and cosine or step with a comma between them; "
    "a COUNT is steps, such as 50, or a share of the round's, such as 10%, and a FACTOR above 0, below 1"
)
_COUNT = r"0*[1-9]\d{0,8}|\d{1,2}(?:\.\d{1,6})?%"
_WARM_UP = re.compile(rf"warmup:({_COUNT})", re.ASCII)
_SHAPE = re.compile(rf"cosine|step:({_COUNT}):(0?\.\d{{1,9}})", re.ASCII)


class ConstantRate(torch.nn.Module):
    """The learning rate of each step, which is the round's."""

    def begin(self, steps: int, device: torch.device) -> None:
        """Begin a round."""

    def rate(self, learning_rate: float) -> torch.Tensor | None:
        """Return None: the optimiser uses the round's."""
        return None


class ScheduledRate(torch.nn.Module):
    """The learning rate of each step, by its place in the round."""

    warm_up: Final[float]  # steps, or if it is below 1 a share of the round's; 0: none
    every: Final[float]  # likewise, between two multiplications by `factor`; 0: none
    factor: Final[float]
    cosine: Final[bool]

    def __init__(self, warm_up: float, every: float, factor: float, cosine: bool) -> None:
        super().__init__()
        self.warm_up, self.every, self.factor, self.cosine = warm_up, every, factor, cosine
        self.steps = 1  # of this round
        self.taken = torch.empty(0)

    def begin(self, steps: int, device: torch.device) -> None:
        """Begin a round of so many steps."""
        self.steps = steps
        self.taken = torch.zeros([], dtype=torch.float64, device=device)

    def rate(self, learning_rate: float) -> torch.Tensor | None:
        """Return the next step's learning rate, a float32 scalar."""
        rate = (self.factors(self.taken) * learning_rate).to(torch.float32)
        self.taken.add_(1.0)
        return rate

    def factors(self, taken: torch.Tensor) -> torch.Tensor:
        """Return the factors [S] of the steps before which so many have been taken."""
        warm_up = self.span(self.warm_up)
        later = (taken - warm_up).clamp(min=0.0)
        factors = torch.ones_like(taken)
        if self.cosine:
            factors = (1.0 + torch.cos(later * (math.pi / largest(1, self.steps - warm_up)))) / 2.0
        elif self.every > 0.0:
            factors = torch.exp(torch.floor(later / self.span(self.every)) * math.log(self.factor))
        if warm_up > 0:
            factors = torch.where(taken < warm_up, (taken + 1.0) / warm_up, factors)
        return factors

    def span(self, given: float) -> int:
        """Return steps; a share is rounded, and one step at least."""
        return largest(1, rounded(given * self.steps)) if 0.0 < given < 1.0 else int(given)


def read_step_schedule(text: str) -> torch.nn.Module:
    """Return a schedule as people write it, for TorchScript; raise InvalidInput for a shape that is not allowed."""
    if text == CONSTANT:
        return ConstantRate()
    parts = [part.strip() for part in text.split(",")]
    warm_up = _WARM_UP.fullmatch(parts[0])
    shape = _SHAPE.fullmatch(parts[-1])
    if len(parts) != (warm_up is not None) + (shape is not None):
        raise InvalidInput(field="step_schedule", value=text, allowed=SHAPES)
    steps = shape is not None and shape[1] is not None
    counts = [_count(found[1]) if found and found[1] else None for found in (warm_up, shape)]
    factor = float(shape[2]) if shape and steps else 1.0
    if 0.0 in (*counts, factor):
        raise InvalidInput(field="step_schedule", value=text, allowed=SHAPES)
    return ScheduledRate(counts[0] or 0.0, counts[1] or 0.0, factor, shape is not None and not steps)


def _count(text: str) -> float:
    return float(text[:-1]) / 100 if text.endswith("%") else float(text)
