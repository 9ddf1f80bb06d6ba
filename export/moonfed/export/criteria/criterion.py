"""The interface of a criterion: a task's loss, sums and output, in TorchScript.

Legend: B samples, K sums.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from importlib import import_module
from typing import Any, ClassVar

import torch

from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import TargetSpec
from moonfed.errors import InvalidInput
from moonfed.tasks.task import Task


class Criterion(torch.nn.Module, ABC):
    """A task's criterion. Its constructor takes a task, a `TargetSpec` and an `InputSpec`; it has no parameters."""

    compares_samples: ClassVar[bool] = False  # whether targets or predictions follow from preprocessed samples

    def targets(self, samples: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the loss's targets [B, …] of preprocessed samples and raw targets; by default the raw ones."""
        return targets

    def begin(self) -> None:
        """Begin a round."""

    def wants_survey(self) -> bool:
        """Return whether `survey` must see all targets of the round before its first step."""
        return False

    def survey(self, targets: torch.Tensor) -> None:
        """See a batch of the loss's targets."""

    @abstractmethod
    def forward(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the batch's mean loss, a scalar."""

    @abstractmethod
    def sums(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return [K] numbers that add up over batches: first the loss that is reported, summed over samples."""

    @abstractmethod
    def metric(self, sums: torch.Tensor, samples: int) -> torch.Tensor:
        """Return the task's metric, a scalar, from sums [K] over a number of samples."""

    @abstractmethod
    def predict(self, outputs: torch.Tensor, samples: torch.Tensor) -> torch.Tensor:
        """Return what the ONNX graph returns, of outputs [B, …] and preprocessed samples [B, …]."""


def build_criterion(task: Task, target: TargetSpec, sample: InputSpec) -> Any:  # noqa: ANN401 - whatever is there
    """Build a task's criterion; InvalidInput if its package has none."""
    module, _, name = task.criterion.partition(":")
    try:
        found = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise InvalidInput(
            f"task {task.name!r} names the criterion {task.criterion}, which cannot be imported: {error}",
            field="criterion",
            value=task.criterion,
        ) from error
    if not (isinstance(found, type) and issubclass(found, Criterion)):
        raise InvalidInput(field="criterion", value=task.criterion, allowed=f"a subclass of {Criterion.__qualname__}")
    return found(task, target, sample)
