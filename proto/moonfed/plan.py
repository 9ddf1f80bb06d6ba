"""The plan interface, version torchscript/1: what a device can ask of a compiled plan. docs/design.md has the table.

`Plan` is free of TorchScript's own types, so that another compiled format can stand beside it.
Legend: B samples, D width of a representation, C classes, k previous models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import torch


class Plan(Protocol):
    """A model, a learning method and everything that belongs to them, ready to train on one device."""

    def begin_round(
        self,
        model: Sequence[torch.Tensor],
        previous_models: Sequence[Sequence[torch.Tensor]],
        hyperparameters: Mapping[str, float],
    ) -> None:
        """Starts from the global model; momentum is zero. Models are tensors in the manifest's order.

        `previous_models`: this device's previous local models, newest first; those beyond the method's k are ignored.
        """

    def reference_count(self) -> int:
        """Representations per sample that `step` wants: 0, or 1 + the previous models at hand."""

    def references(self, inputs: torch.Tensor) -> torch.Tensor:
        """Frozen representations [B, 1 + j, D]: the global model's, then the previous ones', newest first."""

    def step(self, inputs: torch.Tensor, labels: torch.Tensor, references: torch.Tensor) -> torch.Tensor:
        """One optimiser step on a batch; returns its loss before the step, a detached scalar on the device."""

    def end_round(self) -> list[torch.Tensor]:
        """The model after local training, in the manifest's order."""

    def evaluate(self, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """[2]: the batch's summed cross-entropy and its number of correct predictions."""

    def predict(self, inputs: torch.Tensor) -> torch.Tensor:
        """Class probabilities [B, C]."""


def load_plan(path: Path, device: str) -> Plan:
    """Loads a plan onto `cpu` or `cuda` and allocates its tensors; TrainingFailed if it cannot be loaded."""
    raise NotImplementedError  # to be written with export/plan.py
