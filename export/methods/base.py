"""What a learning method is to the rest of `export`: settings, and an objective that TorchScript can compile.

A method is one module of this folder plus one line of the registry in `export.methods`.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch


class Method(Protocol):
    """A method's validated hyperparameters: a frozen dataclass whose defaults are the paper's."""

    @property
    def previous_models(self) -> int:
        """How many previous local models a round begins with, at most; 0 for a method that compares with none."""

    @property
    def frozen_encoders(self) -> int:
        """How many frozen copies of encoder and head the plan holds: memory that a method without references saves."""

    def coefficients(self) -> dict[str, float]:
        """The hyperparameters that the objective reads, by name; a coordinator may change them from round to round."""

    def objective(self) -> torch.nn.Module:
        """The local objective, a module with two scripted methods.

        `reference_count(previous: int) -> int`: references per sample, given the previous models at hand.
        `forward(logits_BC, z_BD, labels_B, references_BRD, coefficients: dict[str, float]) -> Tensor`:
        the batch's loss.
        """


MethodClass = type[Any]  # of a Method; mypy has no way to say "a dataclass that fulfils a protocol"
