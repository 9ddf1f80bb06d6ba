"""MOON: pulls a device's representation towards the global model's and away from those of its own previous models.

    loss = CE(F_w(x), y) + mu · l_con
    l_con = −log( exp(sim(z, z_glob)/tau) / (exp(sim(z, z_glob)/tau) + Σ_j exp(sim(z, z_prev^j)/tau)) ),  j = 1..k

z = R_w(x) is the representation of the model in training, z_glob that of the round's global model, z_prev^j that of the
device's j-th latest local model; sim is cosine similarity. A device without a previous model has no contrastive term
yet; one with fewer than k compares with as many as it has. Frozen encoders are in eval mode (as in the authors' code).

Source: Li, He, Song, Model-Contrastive Federated Learning (CVPR 2021), section 3.3 and algorithm 1; mu 5 and tau 0.5
are its settings for CIFAR-10 (section 4.1), k > 1 its appendix (table 12).
Legend: B samples, C classes, D width of a representation, R references: the global one and the previous ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812

from export.methods.base import Method, Objective
from export.settings import require_at_least, require_positive, require_whole

MOST_PREVIOUS_MODELS = 1000  # each is a frozen encoder in the plan; the paper tries up to 100


class ModelContrastive(Objective):
    """Cross-entropy and MOON's model-contrastive loss, averaged over a batch."""

    def reference_count(self, previous: int, coefficients: dict[str, float]) -> int:
        """The global model's and each previous model's; none as long as there is no previous model."""
        return 0 if previous == 0 else 1 + previous

    def forward(
        self,
        logits_BC: torch.Tensor,  # noqa: N803
        z_BD: torch.Tensor,  # noqa: N803
        labels_B: torch.Tensor,  # noqa: N803
        references_BRD: torch.Tensor,  # noqa: N803
        coefficients: dict[str, float],
    ) -> torch.Tensor:
        """The batch's loss, a scalar."""
        loss = F.cross_entropy(logits_BC, labels_B)
        if references_BRD.numel() > 0:
            loss = loss + coefficients["mu"] * model_contrast(z_BD, references_BRD, coefficients["tau"])
        return loss


def model_contrast(z_BD: torch.Tensor, references_BRD: torch.Tensor, tau: float) -> torch.Tensor:  # noqa: N803
    """l_con, averaged over a batch; references_BRD[:, 0] are the global model's.

    Cosines are written out, and what only references need is outside autograd, because every kernel counts here: the
    whole term takes about as long as launching it. As in torch, a norm counts as 1e-8 at least.
    """
    with torch.no_grad():
        lengths_BR1 = torch.linalg.vector_norm(references_BRD, dim=2, keepdim=True)  # noqa: N806
        directions_BRD = references_BRD / (lengths_BR1.clamp_min(1e-8) * tau)  # noqa: N806
    lengths_B1 = torch.linalg.vector_norm(z_BD, dim=1, keepdim=True).clamp_min(1e-8)  # noqa: N806
    if references_BRD.size(1) == 2:  # one previous model, as usual: l_con = log(1 + exp((s_prev - s_glob)/tau))
        with torch.no_grad():
            away_BD = directions_BRD[:, 1] - directions_BRD[:, 0]  # noqa: N806
        return F.softplus((away_BD * z_BD).sum(1, keepdim=True) / lengths_B1).mean()
    similarities_BR = (directions_BRD * z_BD.unsqueeze(1)).sum(2) / lengths_B1  # noqa: N806
    # l_con is a cross-entropy in which the global model is the right answer
    right_B = torch.zeros([z_BD.size(0)], dtype=torch.int64, device=z_BD.device)  # noqa: N806
    return F.cross_entropy(similarities_BR, right_B)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moon(Method):
    """MOON's hyperparameters: mu weighs the contrastive term, tau is its temperature, previous_models is k."""

    mu: float = 5.0
    tau: float = 0.5
    previous_models: int = 1

    def __post_init__(self) -> None:
        require_at_least("mu", self.mu, 0.0)
        require_positive("tau", self.tau)
        require_whole("previous_models", self.previous_models, 1, MOST_PREVIOUS_MODELS)

    @property
    def frozen_encoders(self) -> int:
        """The global model's and one for each previous model."""
        return 1 + self.previous_models

    def coefficients(self) -> dict[str, float]:
        """mu and tau."""
        return {"mu": self.mu, "tau": self.tau}

    def objective(self) -> Objective:
        """Cross-entropy and the model-contrastive loss."""
        return ModelContrastive()
