"""L2: MOON's ablation, in which the distance to the global model's representation takes the contrastive term's place.

    loss = CE(F_w(x), y) + mu · ‖z − z_glob‖₂,  averaged over a batch

The norm's gradient at z = z_glob, where every round begins, is taken as 0.

Source: Li, He, Song, Model-Contrastive Federated Learning (CVPR 2021), table 5, which tries mu from 0.001 to 10; the
default is the middle of that grid.
Legend: B samples, C classes, D width of a representation, R references: one, the global model's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from moonfed.export.methods.method import Method, Objective
from moonfed.validate import require_at_least


class Distance(Objective):
    """The task's loss and the distance between two representations."""

    def reference_count(self, previous: int, hyperparameters: dict[str, float]) -> int:
        """Count the frozen encoders: always one, the global model."""
        return 1

    def forward(
        self,
        loss: torch.Tensor,
        outputs: torch.Tensor,
        z_BD: torch.Tensor,
        targets: torch.Tensor,
        references_BRD: torch.Tensor,
        hyperparameters: dict[str, float],
    ) -> torch.Tensor:
        """Return the batch's loss, a scalar."""
        distances_B: torch.Tensor = torch.linalg.vector_norm(z_BD - references_BRD[:, 0], dim=1)
        return loss + hyperparameters["mu"] * distances_B.mean()


@dataclass(frozen=True, slots=True, kw_only=True)
class L2(Method):
    """mu weighs the distance."""

    compares_representations: ClassVar[bool] = True

    mu: float = 0.1

    def __post_init__(self) -> None:
        require_at_least("mu", self.mu, 0.0)

    @property
    def frozen_encoders(self) -> int:
        """The number of frozen encoders: the global model's."""
        return 1

    def hyperparameters(self) -> dict[str, float]:
        """Return mu."""
        return {"mu": self.mu}

    def objective(self) -> Objective:
        """Return the task's loss and the distance."""
        return Distance()
