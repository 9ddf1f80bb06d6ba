"""FedSSC with local contrast: representations of a batch's samples of one class attract each other, others repel.

    loss = FedSSC's + local_contrast · mean_i l_sup(i)
    l_sup(i) = −1/|P(i)| · Σ_{p in P(i)} log( exp(z_i·z_p/tau) / Σ_{a ≠ i} exp(z_i·z_a/tau) )

over the samples of a batch. z are normalised; P(i) are the batch's other samples of i's class; l_sup(i) is 0 for a
sample without any.

Source: Hu, Feng, Yang, Chen, FedSSC: Shared Supervised-Contrastive Federated Learning; l_sup is L_out of Khosla et al.,
Supervised Contrastive Learning (NeurIPS 2020), equation 2.
Legend: B samples, C classes, D width of a representation, R references.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from moonfed.export.methods.fedssc import FedSsc, SharedContrastive
from moonfed.export.methods.method import Objective
from moonfed.validate import require_at_least


class LocalContrast(SharedContrastive):
    """FedSSC's loss and the contrast among a batch's samples."""

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
        loss = loss + self.contrast(z_BD, targets, references_BRD, hyperparameters)
        return loss + hyperparameters["local_contrast"] * supervised_contrast(z_BD, targets, hyperparameters["tau"])


def supervised_contrast(z_BD: torch.Tensor, labels_B: torch.Tensor, tau: float) -> torch.Tensor:
    """l_sup, a scalar."""
    directions_BD = F.normalize(z_BD, dim=1)
    itself_BB = torch.eye(z_BD.size(0), dtype=torch.bool, device=z_BD.device)
    # Not −inf: a batch of one would have no denominator at all.
    similarities_BB = (directions_BD.matmul(directions_BD.t()) / tau).masked_fill(itself_BB, -1e9)
    logarithms_BB = torch.log_softmax(similarities_BB, dim=1)
    positives_BB = (labels_B.unsqueeze(0) == labels_B.unsqueeze(1)) & ~itself_BB
    summed_B = (logarithms_BB * positives_BB).sum(1)
    return -(summed_B / positives_BB.sum(1).clamp(min=1)).mean()


@dataclass(frozen=True, slots=True, kw_only=True)
class FedSscLocalContrast(FedSsc):
    """FedSSC's settings and the weight of the contrast among a batch's samples."""

    local_contrast: float = 1.0

    def __post_init__(self) -> None:
        FedSsc.__post_init__(self)
        require_at_least("local_contrast", self.local_contrast, 0.0)

    def hyperparameters(self) -> dict[str, float]:
        """Return FedSSC's hyperparameters and the weight."""
        return {**FedSsc.hyperparameters(self), "local_contrast": self.local_contrast}

    def objective(self) -> Objective:
        """FedSSC's loss and the contrast among a batch's samples."""
        return LocalContrast()
