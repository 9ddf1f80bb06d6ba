"""FedAvg: every device minimises its cross-entropy, and the coordinator averages.

    loss = CE(F_w(x), y)

Source: McMahan, Moore, Ramage, Hampson, Agüera y Arcas, Communication-Efficient Learning of Deep Networks from
Decentralized Data (AISTATS 2017), algorithm 1.
Legend: B samples, C classes, D width of a representation, R references.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from moonfed.export.methods.method import Method, Objective


class CrossEntropy(Objective):
    """The mean cross-entropy of a batch."""

    def forward(
        self,
        logits_BC: torch.Tensor,
        z_BD: torch.Tensor,
        labels_B: torch.Tensor,
        references_BRD: torch.Tensor,
        hyperparameters: dict[str, float],
    ) -> torch.Tensor:
        """Return the batch's loss, a scalar."""
        return F.cross_entropy(logits_BC, labels_B)


@dataclass(frozen=True, slots=True, kw_only=True)
class FedAvg(Method):
    """FedAvg has no hyperparameters of its own."""

    def objective(self) -> Objective:
        """Cross-entropy alone."""
        return CrossEntropy()
