"""Two-stage FedSSC: first the representation by contrast alone, then the output layer on top of it.

    rounds 1 to first_stage_rounds:  loss = mu_moon · l_con + mu_glob(t) · l_glob;  the output layer stays as it is
    later rounds:                    loss = CE(F_w(x), y);  encoder and head stay, in eval mode, statistics and all

While the first stage has nothing to compare with (the first round: no previous model, no prototypes), a step has
loss 0 and changes nothing, BatchNorm's statistics included.

Source: Hu, Feng, Yang, Chen, FedSSC: Shared Supervised-Contrastive Federated Learning: 90 of 100 rounds.
Legend: B samples, C classes, D width of a representation, R references.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from moonfed.bundle.manifest import Schedule
from moonfed.export.methods.fedssc import FedSsc, SharedContrastive
from moonfed.export.methods.method import Objective
from moonfed.validate import require_whole


class TwoStage(SharedContrastive):
    """The contrastive terms in stage 1, cross-entropy in stage 2."""

    def reference_count(self, previous: int, hyperparameters: dict[str, float]) -> int:
        """Count MOON's references in stage 1, none in stage 2."""
        unused = hyperparameters["stage"] > 1.0 or previous == 0 or hyperparameters["mu_moon"] == 0.0
        return 0 if unused else 1 + previous

    def trains_encoder(self, previous: int, hyperparameters: dict[str, float]) -> bool:
        """Return True in stage 1 if there is something to compare with."""
        comparable = self.prototypes.any() or self.reference_count(previous, hyperparameters) > 0
        return comparable and hyperparameters["stage"] == 1.0

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
        if hyperparameters["stage"] == 1.0:
            return self.contrast(z_BD, targets, references_BRD, hyperparameters)
        return loss


@dataclass(frozen=True, slots=True, kw_only=True)
class FedSscTwoStage(FedSsc):
    """FedSSC's settings and the length of the first stage."""

    first_stage_rounds: int = 90

    def __post_init__(self) -> None:
        FedSsc.__post_init__(self)
        require_whole("first_stage_rounds", self.first_stage_rounds, 1)

    def hyperparameters(self) -> dict[str, float]:
        """Return FedSSC's hyperparameters and the stage."""
        return {**FedSsc.hyperparameters(self), "stage": 1.0}

    def schedules(self) -> dict[str, Schedule]:
        """Return FedSSC's schedules and the stage's: 1, then 2."""
        last = self.first_stage_rounds
        return {**FedSsc.schedules(self), "stage": ((last, 1.0), (last + 1, 2.0))}

    def objective(self) -> Objective:
        """Return the objective: the contrastive terms, then cross-entropy."""
        return TwoStage()
